"""Where agents are: the process that each is connected to, asked for many hosts at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onward.channels.agent.relay import Place
from onward.errors import HostOffline, ServerProblem
from onward.store import agents as store
from onward.store.database import Pool
from onward.store.group_commit import GroupCommit

_GROUP_MAX: Final = 1_000


class Whereabouts:
    """Finds the process that the agent of a host is connected to.

    Nothing is remembered: an answer that is a moment old sends commands to where nobody is.
    """

    def __init__(self, pool: Pool, *, lost_after_s: float) -> None:
        self._pool = pool
        self._lost_after_s = lost_after_s
        self._questions = GroupCommit(self._look_up, wait_s=0.001, group_max=_GROUP_MAX)

    async def find(self, host_id: int) -> Place | None:
        """Return where the agent of a host is connected, if it is anywhere."""
        try:
            return await self._questions.submit(host_id)
        except ServerProblem:
            raise HostOffline(
                "It cannot be looked up where the agent is connected: the database is away."
            ) from None

    async def _look_up(self, host_ids: Sequence[int]) -> Sequence[Place | None]:
        found = await store.places(self._pool, list(set(host_ids)), lost_after_s=self._lost_after_s)
        return [Place(*found[host_id]) if host_id in found else None for host_id in host_ids]
