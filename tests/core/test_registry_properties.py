"""Whatever comes, in whatever order and however often, ends where the lifecycle says."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from onward.core import AGENT, TransitionResult
from onward.core.registry import _canonical
from tests.core.registry_model import (
    ACCEPT_TIMEOUT_S,
    EXEC_TIMEOUT_S,
    METHODS,
    TTL_S,
    Clock,
    a_command,
    new_registry,
)

PATIENCE_S = {"RECEIVED": ACCEPT_TIMEOUT_S, "ACCEPTED": EXEC_TIMEOUT_S}
EVENTS = st.sampled_from(["receive", *METHODS])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


def send(registry, event, command_id="c-1"):
    if event == "receive":
        return registry.on_received(a_command(command_id))
    return METHODS[event](registry, command_id)


def expected(status, event):
    """What the lifecycle says to one event, and the status after it."""
    if event == "receive":
        return ("OK", AGENT.initial) if status is None else ("DUPLICATE", status)
    if status is None:
        return "UNKNOWN_COMMAND", None
    return AGENT.decide(status, event)


@given(st.lists(EVENTS, max_size=12).flatmap(lambda events: st.permutations(events * 2)))
def test_any_shuffle_and_doubling_ends_where_the_model_says(events):
    registry, status = new_registry(Clock()), None
    verdicts: Counter[TransitionResult] = Counter()
    for event in events:
        verdict, status = expected(status, event)
        record, result, changed = send(registry, event)
        verdicts[result] += 1
        assert result == verdict
        assert changed == (result is TransitionResult.OK)
        assert (record and record.status) == status
    assert verdicts.total() == len(events)
    assert verdicts[TransitionResult.OK] <= 3
    record = registry.get("c-1")
    assert (record and record.status) == status


@given(st.permutations(["receive", *METHODS] * 3))
def test_every_order_of_everything_said_three_times_ends_a_command_at_most_once(events):
    registry = new_registry(Clock())
    transitions = [send(registry, event) for event in events]
    statuses = [made.record.status for made in transitions if made.changed]
    assert statuses == sorted(statuses, key=AGENT.states.__getitem__)
    assert sum(status in AGENT.terminal for status in statuses) <= 1


@given(VALUES, VALUES)
def test_what_is_remembered_of_a_payload_tells_apart_what_differs_and_nothing_else(one, other):
    assert (_canonical(one) == _canonical(other)) == (one == other)


class Registry(RuleBasedStateMachine):
    """The registry beside a model that looks at everything it holds, at every step."""

    ids = st.sampled_from(["a", "b", "c"])

    @initialize()
    def start(self):
        self.clock = Clock(0.0)
        self.registry = new_registry(self.clock)
        self.now = -math.inf  # the registry has not looked at the clock yet
        self.held = {}  # id -> (status, entered)
        self.removed = {}  # id -> when
        self.verdicts: Counter[TransitionResult] = Counter()
        self.sent = 0

    def enter(self, command_id, status):
        self.held[command_id] = (status, self.now)

    @rule(seconds=st.sampled_from([0.5, 1, ACCEPT_TIMEOUT_S, EXEC_TIMEOUT_S, TTL_S / 2, TTL_S, -7]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(command_id=ids, event=EVENTS)
    def an_event_comes(self, command_id, event):
        self.now = max(self.now, self.clock.now)
        record, result, changed = send(self.registry, event, command_id)
        self.verdicts[result] += 1
        self.sent += 1
        status, _ = self.held.get(command_id, (None, None))
        if event == "receive" and command_id in self.removed:
            assert (record, result, changed) == (None, TransitionResult.DUPLICATE, False)
            return
        verdict, after = expected(status, event)
        assert (result, record and record.status) == (verdict, after)
        if changed:
            assert record.updated_at == self.now
            self.enter(command_id, after)

    @rule()
    def timeouts_are_swept(self):
        self.now = max(self.now, self.clock.now)
        due = {
            command_id
            for command_id, (status, entered) in self.held.items()
            if status in PATIENCE_S and self.now >= entered + PATIENCE_S[status]
        }
        assert {made.record.command_id for made in self.registry.expire_timeouts()} == due
        for command_id in due:
            self.enter(command_id, "TIMEOUT")

    @rule()
    def the_old_is_swept(self):
        self.now = max(self.now, self.clock.now)
        self.removed = {
            command_id: when for command_id, when in self.removed.items() if self.now < when + TTL_S
        }
        due = {
            command_id
            for command_id, (status, entered) in self.held.items()
            if status in AGENT.terminal and self.now >= entered + TTL_S
        }
        assert self.registry.gc_ttl() == len(due)
        for command_id in due:
            del self.held[command_id]
            self.removed[command_id] = self.now

    @invariant()
    def it_holds_what_the_model_holds(self):
        assert len(self.registry) == len(self.held)
        for command_id, (status, entered) in self.held.items():
            record = self.registry.get(command_id)
            assert (record.status, record.updated_at) == (status, entered)
            patience_s = PATIENCE_S.get(status)
            assert record.deadline_at == (None if patience_s is None else entered + patience_s)

    @invariant()
    def every_event_got_one_verdict(self):
        assert self.verdicts.total() == self.sent


TestRegistry = Registry.TestCase
