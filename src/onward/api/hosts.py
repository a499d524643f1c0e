"""Hosts: made, imported, labelled, disabled; and what is forbidden on them."""

from __future__ import annotations

from onward.api.routing import router

hosts = router("/hosts", "hosts")
blocks = router("/blocks", "hosts")
