"""The lifecycles as data are those of the core."""

from __future__ import annotations

import httpx2
import pytest

from onward.core.lifecycles import LIFECYCLES
from onward.wiring import Onward


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Nothing is changed here."""
    return shared


async def test_every_lifecycle_is_told_with_its_states_and_moves(client: httpx2.AsyncClient):
    items = (await client.get("/lifecycles")).json()["items"]
    assert [item["name"] for item in items] == list(LIFECYCLES)
    for item, table in zip(items, LIFECYCLES.values(), strict=True):
        assert item["initial"] == table.initial
        assert {state["name"]: state["rank"] for state in item["states"]} == table.states
        ranks = [state["rank"] for state in item["states"]]
        assert ranks == sorted(ranks)
        ends = {state["name"] for state in item["states"] if state["terminal"]}
        assert ends == table.terminal
        moves = {move["event"]: (tuple(move["from"]), move["to"]) for move in item["moves"]}
        assert moves == {event: (move.sources, move.target) for event, move in table.moves.items()}
