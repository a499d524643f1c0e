"""The lifecycles say what their documents say; the tables here are typed from those documents."""

import pytest

from onward.core import (
    AGENT,
    EXECUTION,
    LIFECYCLES,
    NODE,
    ORDER,
    PLATFORM,
    PLATFORM_LENIENT,
    CommandStatus,
    TransitionResult,
    lifecycle_named,
)
from onward.errors import UnknownLifecycle

# S0: each mark_command_* function, the statuses in its WHERE, and the status that it writes.
NODE_GUARDS = {
    "send": ({"QUEUED", "SEND_FAILED"}, "SENT"),  # allow_resend=True
    "send_once": ({"QUEUED"}, "SENT"),  # allow_resend=False
    "ack": ({"QUEUED", "SENT"}, "ACK"),
    "done": ({"QUEUED", "SENT", "ACK"}, "DONE"),
    "no_effect": ({"QUEUED", "SENT", "ACK"}, "NO_EFFECT"),
    "fail": ({"QUEUED", "SENT", "ACK"}, "ERROR"),
    "invalid": ({"QUEUED", "SENT", "ACK"}, "INVALID"),
    "busy": ({"QUEUED", "SENT", "ACK"}, "BUSY"),
    "timeout": ({"QUEUED", "SENT", "ACK"}, "TIMEOUT"),
    "send_fail": ({"QUEUED"}, "SEND_FAILED"),
}
NODE_STATES = {
    *("QUEUED", "SENT", "ACK", "SEND_FAILED"),
    *("DONE", "NO_EFFECT", "ERROR", "INVALID", "BUSY", "TIMEOUT"),
}

# S1: the table of moves between the platform's codes.
PLATFORM_CODES = {
    "INITIALIZED": 1,
    "SAVED": 2,
    "SENT": 3,
    "DELIVERED": 4,
    "COMPLETED": 5,
    "TTL_TIMEOUT": 6,
    "TIMEOUT": 7,
}
PLATFORM_MOVES = {1: {2, 3}, 2: {3}, 3: {4, 7}, 4: {5}, 5: set(), 6: set(), 7: set()}
CALLBACKS = {
    "INITIALIZED": "initialize",
    "SAVED": "save",
    "SENT": "send",
    "DELIVERED": "deliver",
    "COMPLETED": "complete",
    "TTL_TIMEOUT": "ttl_timeout",
    "TIMEOUT": "timeout",
}

# S3: the allowed transitions.
AGENT_MOVES = {
    ("RECEIVED", "accept", "ACCEPTED"),
    ("ACCEPTED", "execute", "EXECUTED"),
    ("RECEIVED", "reject", "REJECTED"),
    ("ACCEPTED", "fail", "FAILED"),
    ("RECEIVED", "timeout", "TIMEOUT"),
    ("ACCEPTED", "timeout", "TIMEOUT"),
}


def moves_of(lifecycle):
    return {
        (source, event, move.target)
        for event, move in lifecycle.moves.items()
        for source in move.sources
    }


def platform_verdict(old, new):
    """The four rules of S1, in their order, on codes."""
    if not PLATFORM_MOVES[old]:
        return "TERMINAL"
    if old == new:
        return "DUPLICATE"
    if new < old:
        return "STALE"
    return "OK" if new in PLATFORM_MOVES[old] else "INVALID_STATE"


def agent_verdict(status, target, event):
    """The rules of S3: said before, ended, or out of order."""
    if (status, event, target) in AGENT_MOVES:
        return "OK"
    if status == target:
        return "DUPLICATE"
    ended = status in {"EXECUTED", "REJECTED", "FAILED", "TIMEOUT"}
    return "TERMINAL" if ended else "INVALID_STATE"


def test_a_node_has_the_statuses_and_functions_of_its_document():
    assert set(NODE.states) == NODE_STATES
    assert set(NODE.moves) == set(NODE_GUARDS)
    assert NODE.initial == "QUEUED"
    assert NODE.terminal == {"DONE", "NO_EFFECT", "ERROR", "INVALID", "BUSY", "TIMEOUT"}


@pytest.mark.parametrize("event", NODE_GUARDS)
def test_a_node_moves_from_the_statuses_of_each_guard_and_from_no_other(event):
    sources, target = NODE_GUARDS[event]
    for status in NODE_STATES:
        result, after = NODE.decide(status, event)
        assert (result is TransitionResult.OK) == (status in sources)
        assert after == (target if status in sources else status)


def test_a_send_that_comes_after_the_ack_does_not_bring_a_node_back():
    assert NODE.decide("ACK", "send") == (TransitionResult.STALE, "ACK")


def test_a_node_may_send_again_after_a_failed_send():
    assert NODE.decide("SEND_FAILED", "send") == (TransitionResult.OK, "SENT")
    assert NODE.decide("SEND_FAILED", "send_once").result is not TransitionResult.OK


def test_the_platform_keeps_its_own_codes_as_ranks():
    assert dict(PLATFORM.states) == PLATFORM_CODES
    assert dict(PLATFORM_LENIENT.states) == PLATFORM_CODES


@pytest.mark.parametrize("old", PLATFORM_CODES)
@pytest.mark.parametrize("new", PLATFORM_CODES)
def test_the_platform_decides_by_the_four_rules(old, new):
    result, after = PLATFORM.decide(old, CALLBACKS[new])
    assert result == platform_verdict(PLATFORM_CODES[old], PLATFORM_CODES[new])
    assert after == (new if result == "OK" else old)


@pytest.mark.parametrize(
    ("status", "callback", "verdict"),
    [
        pytest.param("COMPLETED", "DELIVERED", "TERMINAL", id="1: a late callback"),
        pytest.param("DELIVERED", "DELIVERED", "DUPLICATE", id="2: a repeated callback"),
        pytest.param("DELIVERED", "SENT", "STALE", id="3: a step back"),
        pytest.param("SENT", "COMPLETED", "INVALID_STATE", id="4: a jump ahead"),
    ],
)
def test_the_four_scenarios_of_the_platform_are_ignored_for_their_reasons(
    status, callback, verdict
):
    assert PLATFORM.decide(status, CALLBACKS[callback]) == (verdict, status)


@pytest.mark.parametrize("old", PLATFORM_CODES)
@pytest.mark.parametrize("new", PLATFORM_CODES)
def test_the_lenient_platform_takes_every_step_ahead_and_refuses_the_rest_alike(old, new):
    ahead = PLATFORM_CODES[old] < min(5, PLATFORM_CODES[new])
    strict, lenient = (
        table.decide(old, CALLBACKS[new]).result for table in (PLATFORM, PLATFORM_LENIENT)
    )
    assert lenient == ("OK" if ahead else strict)


def test_the_agent_has_the_statuses_and_moves_of_its_document():
    assert tuple(CommandStatus) == (
        *("RECEIVED", "ACCEPTED", "EXECUTED", "REJECTED", "FAILED", "TIMEOUT"),
    )
    assert set(AGENT.states) == set(CommandStatus)
    assert moves_of(AGENT) == AGENT_MOVES
    assert AGENT.initial == "RECEIVED"
    assert AGENT.terminal == {"EXECUTED", "REJECTED", "FAILED", "TIMEOUT"}


@pytest.mark.parametrize("status", CommandStatus)
@pytest.mark.parametrize("event", ["accept", "execute", "reject", "fail", "timeout"])
def test_the_agent_decides_by_the_rules_of_its_document(status, event):
    target = AGENT.moves[event].target
    assert AGENT.decide(status, event).result == agent_verdict(status, target, event)


def test_an_execution_moves_as_its_document_says():
    assert moves_of(EXECUTION) == {
        ("NEW", "plan", "QUEUED"),
        ("QUEUED", "claim", "RUNNING"),
        ("RUNNING", "succeed", "SUCCESS"),
        ("RUNNING", "fail", "FAILED"),
        ("RUNNING", "timeout", "TIMEOUT"),
        ("RUNNING", "retry", "QUEUED"),
        ("QUEUED", "block", "BLOCKED"),
        ("NEW", "cancel", "CANCELLED"),
        ("QUEUED", "cancel", "CANCELLED"),
        ("RUNNING", "cancel", "CANCELLED"),
    }
    assert {event for event, move in EXECUTION.moves.items() if move.draws_epoch} == {
        "claim",
        "retry",
    }


def test_an_order_stands_until_it_is_filled_or_withdrawn():
    assert moves_of(ORDER) == {("OPEN", "fill", "FILLED"), ("OPEN", "cancel", "CANCELLED")}


@pytest.mark.parametrize("lifecycle", LIFECYCLES.values(), ids=LIFECYCLES)
def test_no_event_moves_what_has_ended(lifecycle):
    for status in lifecycle.terminal:
        assert lifecycle.allowed(status) == ()
        assert all(lifecycle.decide(status, event).target == status for event in lifecycle.moves)


@pytest.mark.parametrize("name", LIFECYCLES)
def test_a_lifecycle_is_found_by_its_name(name):
    assert lifecycle_named(name).name == name


def test_a_name_that_is_none_of_ours_is_refused_with_those_that_are():
    with pytest.raises(UnknownLifecycle, match="'parcel' is not one of agent, execution, node"):
        lifecycle_named("parcel")
