"""A sweep costs what it ends, not what is held: counted in lines of Python, never timed."""

import sys

import pytest

from onward.core import registry as module
from tests.core.registry_model import ACCEPT_TIMEOUT_S, TTL_S, Clock, a_command, new_registry

LIVE = 100_000
DUE = 3


def lines_run(call):
    """Make a call, and count the lines of the registry's module that it ran."""
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, count


def filled(live, *, due):
    """A registry of which `due` commands are a second older than the others."""
    clock = Clock()
    registry = new_registry(clock)
    for number in range(due):
        registry.on_received(a_command(f"old-{number}"))
    clock.advance(1)
    for number in range(live - due):
        registry.on_received(a_command(f"young-{number}"))
    return registry, clock


@pytest.fixture(scope="module")
def few_and_many():
    return [filled(live, due=DUE) for live in (DUE + 1, LIVE)]


def test_sweeps_over_many_cost_the_same_as_over_few(few_and_many):
    counts = []
    for registry, clock in few_and_many:
        _, idle = lines_run(registry.expire_timeouts)
        clock.now = 1000.0 + ACCEPT_TIMEOUT_S
        expired, expiring = lines_run(registry.expire_timeouts)
        assert len(expired) == DUE
        assert lines_run(registry.gc_ttl)[0] == 0
        clock.advance(TTL_S)
        removed, removing = lines_run(registry.gc_ttl)
        assert removed == DUE
        clock.advance(TTL_S)
        _, forgetting = lines_run(registry.gc_ttl)
        assert not registry._tombstones
        counts.append((idle, expiring, removing, forgetting))
    few, many = counts
    assert few == many
    assert max(many) < 200


def test_what_moved_on_since_the_last_sweep_is_paid_for_once():
    registry, _ = filled(1000, due=0)
    for number in range(500):
        registry.on_accepted(f"young-{number}")
    _, first = lines_run(registry.expire_timeouts)
    _, second = lines_run(registry.expire_timeouts)
    assert first <= 2 * 500 + 60
    assert second < 60


def test_an_event_costs_the_same_among_few_and_among_many():
    counts = set()
    for live in (2, 10_000):
        registry, _ = filled(live, due=0)
        calls = [
            lambda: registry.on_received(a_command("new")),  # noqa: B023 - called in this turn
            lambda: registry.on_accepted("new"),  # noqa: B023 - as above
            lambda: registry.on_executed("new"),  # noqa: B023 - as above
        ]
        counts.add(tuple(lines_run(call)[1] for call in calls))
    assert len(counts) == 1


def test_the_count_would_show_a_walk_over_everything():
    registry, _ = filled(1000, due=0)
    ids = list(registry._entries)
    _, count = lines_run(lambda: [registry.get(command_id) for command_id in ids])
    assert count > 1000
