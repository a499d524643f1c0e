"""The measurement of agents: small, and only as to whether it measures what it says."""

from __future__ import annotations

from onward.bench.agents import Sizes, agents
from tests.bench.results import well_formed


def test_round_trips_through_agents_are_measured_beside_a_bare_echo():
    told: list[str] = []
    (result,) = agents(told.append, Sizes(agents=8, seconds=0.2, rounds=1))
    assert result.name == "no-op round trips through 8 agents"
    assert result.value > 0
    assert well_formed(result)
    assert "a bare WebSocket echo" in str(result.against)
    assert any("8 agents and as many clients are connected" in line for line in told)
