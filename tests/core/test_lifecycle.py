"""A table that contradicts itself does not load, and says what is wrong with it."""

import re

import pytest

from onward.core import Decision, Lifecycle, Timer, TransitionResult, move, ranked
from onward.errors import InvalidInput, InvalidLifecycle

DUPLICATE = TransitionResult.DUPLICATE
INVALID_STATE = TransitionResult.INVALID_STATE
STALE = TransitionResult.STALE
TERMINAL = TransitionResult.TERMINAL


def lifecycle(**changes):
    """A sound lifecycle of three states, with changes."""
    table = {
        "name": "parcel",
        "states": ranked("PACKED", "SHIPPED", "ARRIVED", "LOST"),
        "initial": "PACKED",
        "moves": {
            "ship": move("PACKED", to="SHIPPED"),
            "arrive": move("SHIPPED", to="ARRIVED"),
            "timeout": move("PACKED", "SHIPPED", to="LOST"),
        },
        "refuse_in_order": (TERMINAL, DUPLICATE, STALE, INVALID_STATE),
    }
    return Lifecycle(**{**table, **changes})


def moves(**changes):
    """The moves of that lifecycle, with changes; None takes one away."""
    merged = {**lifecycle().moves, **changes}
    return {event: way for event, way in merged.items() if way is not None}


BAD_TABLES = {
    "an initial state that is unknown": (
        {"initial": "LOADED"},
        "the initial state names LOADED, which is not a state of it",
    ),
    "a source that is unknown": (
        {"moves": moves(ship=move("LOADED", "PACKED", to="SHIPPED"))},
        "the event 'ship' names LOADED, which is not a state of it",
    ),
    "a target that is unknown": (
        {"moves": moves(ship=move("PACKED", to="LOADED"))},
        "the event 'ship' names LOADED, which is not a state of it",
    ),
    "an unknown state declared unreachable": (
        {"unreachable": frozenset({"LOADED"})},
        "unreachable names LOADED, which is not a state of it",
    ),
    "an unknown state declared untimed": (
        {"untimed": frozenset({"LOADED"})},
        "untimed names LOADED, which is not a state of it",
    ),
    "an unknown state declared a dead end": (
        {"dead_ends": frozenset({"LOADED"})},
        "dead_ends names LOADED, which is not a state of it",
    ),
    "an unknown state declared presumed": (
        {"presumed": frozenset({"LOADED"})},
        "presumed names LOADED, which is not a state of it",
    ),
    "an unknown event declared a result": (
        {"results": frozenset({"load"})},
        "results names load, which is not an event of it",
    ),
    "two states of one rank": (
        {"states": {"PACKED": 0, "SHIPPED": 1, "ARRIVED": 2, "LOST": 2}},
        "two states have the same rank",
    ),
    "a verdict that is no refusal": (
        {"refuse_in_order": (TransitionResult.OK, INVALID_STATE)},
        "refuse_in_order takes DUPLICATE, INVALID_STATE, STALE, TERMINAL, each at most once",
    ),
    "a refusal that is asked for twice": (
        {"refuse_in_order": (TERMINAL, TERMINAL, INVALID_STATE)},
        "each at most once",
    ),
    "refusals that may leave an event unexplained": (
        {"refuse_in_order": (TERMINAL, DUPLICATE)},
        "refuse_in_order must end with INVALID_STATE, which always holds",
    ),
    "no refusals at all": (
        {"refuse_in_order": ()},
        "refuse_in_order must end with INVALID_STATE, which always holds",
    ),
    "a state that nothing leads to": (
        {"moves": moves(arrive=move("SHIPPED", to="LOST"))},
        "nothing leads to ARRIVED from PACKED; add a move, or declare it unreachable",
    ),
    "a state declared unreachable that is reached": (
        {"unreachable": frozenset({"ARRIVED"})},
        "ARRIVED is declared unreachable, but a move leads there",
    ),
    "states that only lead to each other": (
        {
            "moves": {
                "ship": move("PACKED", to="SHIPPED"),
                "return": move("SHIPPED", to="PACKED"),
            },
            "unreachable": frozenset({"ARRIVED", "LOST"}),
            "untimed": frozenset({"PACKED", "SHIPPED"}),
        },
        "there is no way out of PACKED, SHIPPED: no move leads to an end",
    ),
    "a state among the live whose moves were forgotten": (
        {
            "moves": {
                "ship": move("PACKED", to="SHIPPED"),
                "arrive": move("PACKED", to="ARRIVED"),
                "return": move("ARRIVED", to="LOST"),
            },
            "untimed": frozenset({"PACKED", "ARRIVED"}),
        },
        "SHIPPED; add a move, rank it after the live states, or declare it in dead_ends",
    ),
    "a dead end declared that has a way out": (
        {"dead_ends": frozenset({"SHIPPED"})},
        "there is no way out of SHIPPED",
    ),
    "a live state without a timeout": (
        {"moves": moves(timeout=move("PACKED", to="LOST"))},
        "SHIPPED: either 'timeout' leaves a live state, or it is declared untimed, and never both",
    ),
    "a state declared untimed that times out": (
        {"untimed": frozenset({"PACKED"})},
        "PACKED: either 'timeout' leaves a live state, or it is declared untimed, and never both",
    ),
}


@pytest.mark.parametrize(("changes", "problem"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_is_refused_and_told_what_is_wrong(changes, problem):
    with pytest.raises(InvalidLifecycle, match=re.escape(problem)) as refusal:
        lifecycle(**changes)
    assert refusal.value.field == "lifecycle 'parcel'"


def test_a_bad_table_is_bad_input():
    with pytest.raises(InvalidInput):
        lifecycle(initial="LOADED")


def test_what_is_declared_loads():
    declared = lifecycle(
        moves=moves(timeout=move("SHIPPED", to="LOST"), arrive=None),
        unreachable=frozenset({"ARRIVED"}),
        untimed=frozenset({"PACKED"}),
        presumed=frozenset({"LOST"}),
        results=frozenset({"ship"}),
    )
    assert declared.timer("PACKED") is Timer.DUE
    assert declared.timer("SHIPPED") is Timer.DEADLINE
    assert declared.timer("LOST") is Timer.NONE
    assert declared.keeps_late("LOST", "ship")
    assert not declared.keeps_late("LOST", "timeout")
    assert not declared.keeps_late("SHIPPED", "ship")


def test_a_dead_end_that_is_declared_loads():
    table = lifecycle(
        states=ranked("PACKED", "LOST", "SHIPPED", "ARRIVED"), dead_ends=frozenset({"LOST"})
    )
    assert table.terminal == {"LOST", "ARRIVED"}


def test_terminal_is_what_no_move_leaves():
    assert lifecycle().terminal == {"ARRIVED", "LOST"}


def test_the_states_are_ranked_in_their_order():
    assert ranked("A", "B", "C", first=1) == {"A": 1, "B": 2, "C": 3}


def test_a_refusal_is_explained_by_the_first_reason_that_holds():
    ended_first = lifecycle(refuse_in_order=(TERMINAL, DUPLICATE, STALE, INVALID_STATE))
    said_first = lifecycle(refuse_in_order=(DUPLICATE, TERMINAL, STALE, INVALID_STATE))
    stale_first = lifecycle(refuse_in_order=(STALE, TERMINAL, DUPLICATE, INVALID_STATE))
    strict = lifecycle(refuse_in_order=(INVALID_STATE,))
    cases = {  # (status, event): the verdicts of the four
        ("ARRIVED", "arrive"): (TERMINAL, DUPLICATE, TERMINAL, INVALID_STATE),
        ("ARRIVED", "ship"): (TERMINAL, TERMINAL, STALE, INVALID_STATE),
        ("SHIPPED", "ship"): (DUPLICATE, DUPLICATE, DUPLICATE, INVALID_STATE),
        ("PACKED", "arrive"): (INVALID_STATE,) * 4,
    }
    for (status, event), expected in cases.items():
        tables = (ended_first, said_first, stale_first, strict)
        assert tuple(table.decide(status, event).result for table in tables) == expected
        assert all(table.decide(status, event).target == status for table in tables)


def test_an_event_that_is_applied_leads_to_its_target():
    assert lifecycle().decide("PACKED", "ship") == Decision(TransitionResult.OK, "SHIPPED")


def test_an_unknown_event_fits_no_status():
    assert lifecycle().decide("PACKED", "burn") == Decision(INVALID_STATE, "PACKED")


def test_the_table_answers_for_every_status_and_event_and_cannot_be_written():
    table = lifecycle().table
    assert set(table) == {(s, e) for s in lifecycle().states for e in lifecycle().moves}
    with pytest.raises(TypeError):
        table["PACKED", "ship"] = Decision(INVALID_STATE, "PACKED")


def test_the_events_that_a_status_allows_are_named():
    assert lifecycle().allowed("PACKED") == ("ship", "timeout")
    assert lifecycle().allowed("LOST") == ()


def test_a_status_is_called_by_its_name_or_its_rank_when_one_event_leads_there():
    assert lifecycle().event_called("SHIPPED") == "ship"
    assert lifecycle().event_called(lifecycle().states["SHIPPED"]) == "ship"
    assert lifecycle().event_called("PACKED") is None
    assert lifecycle().event_called("BURNT") is None
    assert lifecycle(moves=moves(lose=move("SHIPPED", to="LOST"))).event_called("LOST") is None
