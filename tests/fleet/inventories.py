"""Inventories as tests write them."""

from __future__ import annotations

from onward.fleet import inventory
from onward.fleet.hosts import Channel
from onward.fleet.inventory import Form, Mistake
from onward.store.hosts import NewHost


def hosts(text: str | bytes, form: Form, *, channel: Channel = "simulated") -> dict[str, NewHost]:
    """The hosts of an inventory that has no mistake."""
    found = inventory.read(_bytes(text), form, channel=channel)
    assert (found.mistakes, found.more) == ([], 0)
    return {host.name: host for host in found.hosts}


def mistakes(text: str | bytes, form: Form) -> list[Mistake]:
    """What is wrong with an inventory; then it has no hosts."""
    found = inventory.read(_bytes(text), form)
    assert found.mistakes
    assert found.hosts == []
    return found.mistakes


def the_mistake(text: str | bytes, form: Form) -> Mistake:
    """The one thing that is wrong with an inventory."""
    (mistake,) = mistakes(text, form)
    return mistake


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
