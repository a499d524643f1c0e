"""Command types: what can be asked of a host, and how carefully."""

from __future__ import annotations

from onward.api.routing import router

command_types = router("/command-types", "hosts")
