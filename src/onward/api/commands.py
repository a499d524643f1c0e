"""Commands that travel by themselves, and what nodes and platforms say about them."""

from __future__ import annotations

from onward.api.routing import router

commands = router("/commands", "commands")
callbacks = router("/callbacks", "commands")
