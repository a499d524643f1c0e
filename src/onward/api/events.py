"""What changes, as it changes: one stream, which can be resumed where it broke."""

from __future__ import annotations

from onward.api.routing import router

events = router("/events", "events")
