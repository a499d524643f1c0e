"""The keys of nodes by name, remembered for a moment.

A key that was taken from a node is forgotten within `_REMEMBERED_S`; one that does not fit is asked
for again, because the node may have a new one, but no more often than every `_AGAIN_S`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple

_REMEMBERED_S: Final = 10.0
_AGAIN_S: Final = 0.5
_STRANGERS_MAX: Final = 10_000  # names without a key: anybody may make some up


class _Known(NamedTuple):
    key: bytes | None  # none: there is no such node
    asked_at: float


class Keys:
    """Asks for the keys that it does not remember."""

    def __init__(
        self,
        ask: Callable[[Collection[str]], Awaitable[Mapping[str, bytes]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def of(self, nodes: Collection[str]) -> Mapping[str, bytes]:
        """The keys of those nodes that have one."""
        fresh_from = self._clock() - _REMEMBERED_S
        missing = [
            node
            for node in nodes
            if (known := self._known.get(node)) is None or known.asked_at < fresh_from
        ]
        if missing:
            await self._learn(missing)
        return {node: known.key for node in nodes if (known := self._known[node]).key is not None}

    def doubt(self, node: str) -> None:
        """Ask again soon: what this node says does not fit its key."""
        known = self._known.get(node)
        if known is not None and known.asked_at < self._clock() - _AGAIN_S:
            del self._known[node]

    async def _learn(self, nodes: Collection[str]) -> None:
        keys = await self._ask(nodes)
        now = self._clock()
        if len(self._known) > len(nodes) + _STRANGERS_MAX:
            self._known = {name: known for name, known in self._known.items() if known.key}
        for node in nodes:
            self._known[node] = _Known(keys.get(node), now)
