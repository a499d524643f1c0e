"""The registry: one command after the other, one event after the other, at a time that is told."""

import copy
import gc
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from onward.core import AGENT, Command, CommandRegistry, CommandStatus, TransitionResult
from onward.errors import InvalidInput
from tests.core.registry_model import (
    ACCEPT_TIMEOUT_S,
    ENDED,
    EXEC_TIMEOUT_S,
    METHODS,
    TTL_S,
    Clock,
    a_command,
    bring,
    new_registry,
    send,
)

OK = TransitionResult.OK
DUPLICATE = TransitionResult.DUPLICATE
CONFLICT = TransitionResult.CONFLICT
UNKNOWN_COMMAND = TransitionResult.UNKNOWN_COMMAND


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    return new_registry(clock)


# What the document asks for at least.


def test_a_duplicate_on_received_is_duplicate(registry):
    first = registry.on_received(a_command())
    second = registry.on_received(a_command())
    assert (first.result, first.changed) == (OK, True)
    assert second == (first.record, DUPLICATE, False)


def test_the_happy_path_goes_from_received_to_accepted_to_executed(registry, clock):
    received = registry.on_received(a_command()).record
    clock.advance(1)
    accepted = registry.on_accepted("c-1")
    clock.advance(2)
    executed = registry.on_executed("c-1")

    assert received == (a_command(), "RECEIVED", 1000.0, 1000.0, 1000.0 + ACCEPT_TIMEOUT_S)
    assert (accepted.result, accepted.changed) == (OK, True)
    assert accepted.record == (a_command(), "ACCEPTED", 1000.0, 1001.0, 1001.0 + EXEC_TIMEOUT_S)
    assert (executed.result, executed.changed) == (OK, True)
    assert executed.record == (a_command(), "EXECUTED", 1000.0, 1003.0, None)
    assert executed.record == registry.get("c-1")
    assert executed.record.command_id == "c-1"


def test_the_invalid_order_from_received_to_executed_is_invalid_state(registry):
    received = registry.on_received(a_command()).record
    assert registry.on_executed("c-1") == (received, TransitionResult.INVALID_STATE, False)
    assert registry.get("c-1") == received


def test_after_the_accept_timeout_the_state_becomes_timeout(registry, clock):
    registry.on_received(a_command())
    clock.advance(ACCEPT_TIMEOUT_S)
    (expired,) = registry.expire_timeouts()
    assert (expired.result, expired.changed) == (OK, True)
    assert expired.record == (a_command(), "TIMEOUT", 1000.0, 1000.0 + ACCEPT_TIMEOUT_S, None)
    assert registry.get("c-1") == expired.record


# Every status and every event.


@pytest.mark.parametrize("status", CommandStatus)
@pytest.mark.parametrize("event", METHODS)
def test_every_event_in_every_status_gets_the_verdict_of_the_lifecycle(
    registry, clock, status, event
):
    before = bring(registry, clock, status)
    record, result, changed = send(registry, event)
    assert (result, record.status) == AGENT.decide(status, event)
    assert changed == (result is OK)
    assert registry.get("c-1") == record
    if not changed:
        assert record == before


def test_every_event_of_the_lifecycle_can_be_sent():
    assert set(METHODS) | {AGENT.timeout_event} == set(AGENT.moves)


def test_no_command_comes_to_a_status_twice():
    """The registry's queues rely on it: who is elsewhere has left for good."""
    for move in AGENT.moves.values():
        assert all(AGENT.states[source] < AGENT.states[move.target] for source in move.sources)


@pytest.mark.parametrize("status", CommandStatus)
def test_a_command_that_is_received_again_is_a_duplicate_in_every_status(registry, clock, status):
    before = bring(registry, clock, status)
    assert registry.on_received(a_command()) == (before, DUPLICATE, False)


@pytest.mark.parametrize("status", CommandStatus)
def test_the_timeout_leaves_the_statuses_that_the_lifecycle_says(registry, clock, status):
    bring(registry, clock, status)
    clock.advance(ACCEPT_TIMEOUT_S + EXEC_TIMEOUT_S)
    expired = registry.expire_timeouts()
    assert len(expired) == (AGENT.decide(status, AGENT.timeout_event).result is OK)


@pytest.mark.parametrize("event", METHODS)
def test_an_event_for_an_id_that_was_never_received_is_unknown(registry, event):
    assert send(registry, event) == (None, UNKNOWN_COMMAND, False)
    assert "c-1" not in registry


# Timeouts.


@pytest.mark.parametrize(
    ("status", "timeout_s"),
    [(CommandStatus.RECEIVED, ACCEPT_TIMEOUT_S), (CommandStatus.ACCEPTED, EXEC_TIMEOUT_S)],
)
def test_the_deadline_belongs_to_the_timeout(registry, clock, status, timeout_s):
    record = bring(registry, clock, status)
    assert record.deadline_at == clock.now + timeout_s
    clock.now = record.deadline_at - 0.001
    assert registry.expire_timeouts() == ()
    clock.now = record.deadline_at
    assert [made.record.status for made in registry.expire_timeouts()] == [CommandStatus.TIMEOUT]
    assert registry.expire_timeouts() == ()


def test_accepting_starts_a_clock_of_its_own(registry, clock):
    registry.on_received(a_command())
    clock.advance(ACCEPT_TIMEOUT_S - 1)
    registry.on_accepted("c-1")
    clock.advance(EXEC_TIMEOUT_S - 1)
    assert registry.expire_timeouts() == ()
    clock.advance(1)
    assert len(registry.expire_timeouts()) == 1


def test_an_event_after_its_deadline_is_judged_by_the_status_on_record_until_the_sweep(
    registry, clock
):
    registry.on_received(a_command())
    clock.advance(2 * ACCEPT_TIMEOUT_S)
    assert registry.on_accepted("c-1").result is OK
    assert registry.expire_timeouts() == ()


def test_only_what_is_due_times_out_and_in_the_order_of_its_deadlines(registry, clock):
    for number in range(10):
        registry.on_received(a_command(f"c-{number}"))
        clock.advance(1)
    registry.on_accepted("c-2")
    registry.on_rejected("c-3")
    clock.now = 1000.0 + ACCEPT_TIMEOUT_S + 4
    expired = registry.expire_timeouts()
    assert [made.record.command_id for made in expired] == ["c-0", "c-1", "c-4"]


def test_a_new_life_of_an_id_neither_ends_early_nor_holds_up_others(clock):
    """What the first life left behind in the queues must not be taken for the second."""
    short = new_registry(clock, accept_timeout_s=50, ttl_s=1)
    short.on_received(a_command("slow"))
    short.on_received(a_command("again"))
    short.on_rejected("again")
    clock.advance(1)
    short.on_received(a_command("other"))
    assert short.gc_ttl() == 1
    clock.advance(1)
    short.gc_ttl()
    second = short.on_received(a_command("again"))
    assert second.result is OK
    clock.now = 1051.0
    assert [made.record.command_id for made in short.expire_timeouts()] == ["slow", "other"]
    clock.now = second.record.deadline_at
    assert [made.record.command_id for made in short.expire_timeouts()] == ["again"]


# A clock that steps back.


def test_a_clock_that_steps_back_counts_as_one_that_stands_still(registry, clock):
    registry.on_received(a_command("first"))
    clock.advance(-500)
    record = registry.on_received(a_command("second")).record
    assert record.received_at == 1000.0
    assert registry.on_accepted("second").record.updated_at == 1000.0
    clock.now = 1000.0 + ACCEPT_TIMEOUT_S
    expired = registry.expire_timeouts()
    assert [made.record.command_id for made in expired] == ["first"]


def test_a_sweep_that_sees_the_clock_step_back_still_knows_the_later_time(registry, clock):
    registry.on_received(a_command("first"))
    clock.advance(ACCEPT_TIMEOUT_S)
    registry.on_received(a_command("second"))
    clock.advance(-ACCEPT_TIMEOUT_S)
    (expired,) = registry.expire_timeouts()
    assert expired.record.command_id == "first"
    assert expired.record.updated_at == 1000.0 + ACCEPT_TIMEOUT_S


# Removal.


@pytest.mark.parametrize("status", ENDED)
def test_what_has_ended_is_removed_at_its_ttl_and_not_before(registry, clock, status):
    record = bring(registry, clock, CommandStatus(status))
    clock.now = record.updated_at + TTL_S - 0.001
    assert registry.gc_ttl() == 0
    assert "c-1" in registry
    clock.now = record.updated_at + TTL_S
    assert registry.gc_ttl() == 1
    assert "c-1" not in registry
    assert registry.get("c-1") is None
    assert len(registry) == 0


@pytest.mark.parametrize("status", [CommandStatus.RECEIVED, CommandStatus.ACCEPTED])
def test_what_has_not_ended_is_never_removed(registry, clock, status):
    bring(registry, clock, status)
    clock.advance(1000 * TTL_S)
    assert registry.gc_ttl() == 0
    assert registry.get("c-1").status is status


@pytest.mark.parametrize("event", METHODS)
def test_an_event_for_a_removed_id_is_unknown(registry, clock, event):
    bring(registry, clock, CommandStatus.EXECUTED)
    clock.advance(TTL_S)
    registry.gc_ttl()
    assert send(registry, event) == (None, UNKNOWN_COMMAND, False)


def test_a_removed_id_is_remembered_for_a_second_ttl(registry, clock):
    bring(registry, clock, CommandStatus.EXECUTED)
    clock.advance(3 * TTL_S)  # nobody swept in time: it is remembered from the sweep on
    registry.gc_ttl()
    clock.advance(TTL_S - 0.001)
    assert registry.gc_ttl() == 0
    assert registry.on_received(a_command()) == (None, DUPLICATE, False)
    assert len(registry) == 0
    clock.advance(0.001)
    assert registry.gc_ttl() == 0
    assert registry.on_received(a_command()).result is OK


def test_a_removed_payload_is_not_kept(registry, clock):
    class Weighty:
        """A value that can be watched."""

    value = Weighty()
    watched = weakref.ref(value)
    registry.on_received(a_command(value=value))
    del value
    registry.on_rejected("c-1")
    assert watched() is not None
    clock.advance(TTL_S)
    registry.expire_timeouts()
    registry.gc_ttl()
    gc.collect()
    assert watched() is None


# One id, one content.


OTHERS = {
    "another type": Command("c-1", "stop", {"host": "a", "args": [1, {"x": 2}]}),
    "another value": Command("c-1", "restart", {"host": "b", "args": [1, {"x": 2}]}),
    "another value inside": Command("c-1", "restart", {"host": "a", "args": [1, {"x": 3}]}),
    "another key": Command("c-1", "restart", {"node": "a", "args": [1, {"x": 2}]}),
    "one key more": Command("c-1", "restart", {"host": "a", "args": [1, {"x": 2}], "n": 1}),
    "nothing": Command("c-1", "restart", {}),
}
FIRST = Command("c-1", "restart", {"host": "a", "args": [1, {"x": 2}]})
REPEATED = Command("c-1", "restart", {"args": [1.0, {"x": 2}], "host": "a"})


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_known_id_with_another_content_is_a_conflict_and_changes_nothing(registry, other):
    known = registry.on_received(FIRST).record
    assert registry.on_received(other) == (known, CONFLICT, False)
    assert registry.get("c-1") == known


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_removed_id_with_another_content_is_a_conflict_too(registry, clock, other):
    registry.on_received(FIRST)
    registry.on_rejected("c-1")
    clock.advance(TTL_S)
    registry.gc_ttl()
    assert registry.on_received(other) == (None, CONFLICT, False)
    assert registry.on_received(REPEATED) == (None, DUPLICATE, False)


def test_a_payload_that_contains_itself_can_be_removed(registry, clock):
    ring: list[object] = []
    ring.append(ring)
    registry.on_received(a_command(ring=ring))
    registry.on_rejected("c-1")
    clock.advance(TTL_S)
    assert registry.gc_ttl() == 1


def test_a_caller_that_changes_its_mapping_later_does_not_change_the_command(registry):
    payload = {"host": "a"}
    registry.on_received(Command("c-1", "restart", payload))
    payload["host"] = "b"
    assert registry.get("c-1").command.payload == {"host": "a"}
    assert registry.on_received(Command("c-1", "restart", {"host": "a"})).result is DUPLICATE


# Values.


def test_a_command_and_its_record_cannot_be_written(registry):
    record = registry.on_received(a_command(host="a")).record
    with pytest.raises(AttributeError):
        record.command.command_id = "c-2"
    with pytest.raises(TypeError):
        record.command.payload["host"] = "b"
    with pytest.raises(AttributeError):
        record.status = CommandStatus.EXECUTED


def test_a_record_does_not_change_when_its_command_moves_on(registry):
    received = registry.on_received(a_command()).record
    registry.on_accepted("c-1")
    assert received.status is CommandStatus.RECEIVED
    assert registry.get("c-1").status is CommandStatus.ACCEPTED


def test_a_command_can_be_hashed_copied_and_pickled():
    command = a_command(args=[1])
    assert hash(command) == hash(a_command(args=[2]))
    assert copy.deepcopy(command) == command
    assert pickle.loads(pickle.dumps(command)) == command  # noqa: S301 - our own bytes


def test_the_registry_counts_what_it_holds(registry, clock):
    for number in range(3):
        registry.on_received(a_command(f"c-{number}"))
    assert len(registry) == 3
    assert "c-0" in registry
    assert "c-9" not in registry
    registry.on_rejected("c-0")
    clock.advance(TTL_S)
    registry.gc_ttl()
    assert len(registry) == 2


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("", "restart", {}), "command_id"),
        ((7, "restart", {}), "command_id"),
        ((None, "restart", {}), "command_id"),
        (("c-1", "", {}), "command_type"),
        (("c-1", b"restart", {}), "command_type"),
        (("c-1", "restart", None), "payload"),
        (("c-1", "restart", [("host", "a")]), "payload"),
        (("c-1", "restart", "host"), "payload"),
    ],
)
def test_a_command_without_an_id_a_type_or_a_mapping_is_refused(arguments, field):
    with pytest.raises(InvalidInput) as refusal:
        Command(*arguments)
    assert refusal.value.field == field


@pytest.mark.parametrize("event", METHODS)
@pytest.mark.parametrize("command_id", ["", 7, None, b"c-1", ["c-1"]])
def test_an_event_for_what_is_no_id_is_refused_and_the_registry_goes_on(
    registry, event, command_id
):
    registry.on_received(a_command())
    with pytest.raises(InvalidInput) as refusal:
        send(registry, event, command_id)
    assert refusal.value.field == "command_id"
    assert registry.on_accepted("c-1").result is OK


@pytest.mark.parametrize("command", [None, "c-1", {"command_id": "c-1"}])
def test_what_is_no_command_is_refused(registry, command):
    with pytest.raises(InvalidInput):
        registry.on_received(command)
    assert len(registry) == 0


@pytest.mark.parametrize("name", ["accept_timeout_s", "exec_timeout_s", "ttl_s"])
@pytest.mark.parametrize(
    "seconds", [0, -1, float("nan"), float("inf"), 10**400, True, None, "15"], ids=str
)
def test_a_timeout_that_is_not_finite_and_positive_is_refused(clock, name, seconds):
    with pytest.raises(InvalidInput) as refusal:
        CommandRegistry(clock=clock, **{name: seconds})
    assert refusal.value.field == name


def test_a_clock_that_cannot_be_asked_is_refused():
    with pytest.raises(InvalidInput, match="clock"):
        new_registry(1000.0)


def test_a_clock_that_fails_leaves_the_registry_as_it_was(registry, clock):
    registry.on_received(a_command())
    clock.now = "noon"
    with pytest.raises(TypeError):
        registry.on_accepted("c-1")
    clock.now = 1001.0
    assert registry.on_accepted("c-1").result is OK


def test_without_other_word_the_timeouts_are_those_of_the_house(clock):
    registry = CommandRegistry(clock=clock)
    registry.on_received(a_command())
    clock.advance(15)
    assert len(registry.expire_timeouts()) == 1
    registry.on_received(a_command("c-2"))
    registry.on_accepted("c-2")
    clock.advance(80)
    assert len(registry.expire_timeouts()) == 1
    clock.advance(600 - 80)
    assert registry.gc_ttl() == 1
    clock.advance(80)
    assert registry.gc_ttl() == 1


# Threads.


def at_once(*calls):
    """Make all calls from threads of their own, none before all are ready."""
    ready = Barrier(len(calls), timeout=60)

    def call(each):
        ready.wait()
        return each()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(call, each) for each in calls]]


@pytest.mark.usefixtures("impatient_threads")
def test_of_threads_that_race_for_one_id_exactly_one_is_ok(registry):
    for number in range(300):
        command_id = f"c-{number}"
        received = at_once(*[lambda: registry.on_received(a_command(command_id))] * 4)  # noqa: B023 - all calls end in this turn
        assert sorted(made.result for made in received) == [*[DUPLICATE] * 3, OK]
        ended = at_once(
            lambda: registry.on_rejected(command_id),  # noqa: B023 - as above
            lambda: registry.on_accepted(command_id),  # noqa: B023
            lambda: registry.on_rejected(command_id),  # noqa: B023
            lambda: registry.on_accepted(command_id),  # noqa: B023
        )
        (winner,) = [made.record for made in ended if made.changed]
        assert registry.get(command_id) == winner


@pytest.mark.usefixtures("impatient_threads")
def test_threads_that_send_everything_and_sweep_lose_no_command_and_end_each_once(registry, clock):
    ids = [f"c-{number}" for number in range(2000)]

    def send_everything():
        made = []
        for command_id in ids:
            clock.advance(0.05)
            made.append(registry.on_received(a_command(command_id)))
            made += [method(registry, command_id) for method in METHODS.values()]
            made += registry.expire_timeouts()
        return made

    transitions = [made for each in at_once(*[send_everything] * 4) for made in each]
    clock.advance(1000)
    transitions += registry.expire_timeouts()
    ends = [
        made.record.command_id
        for made in transitions
        if made.changed and made.record.status in AGENT.terminal
    ]
    assert sorted(ends) == sorted(ids)
    removals = at_once(*[registry.gc_ttl] * 4)
    clock.advance(TTL_S)
    assert sum(removals) + registry.gc_ttl() == len(ids)
    assert len(registry) == 0


@pytest.fixture
def impatient_threads():
    """Threads that take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
