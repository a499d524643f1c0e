"""What is documented is what is decided."""

from pathlib import Path

import pytest

from onward.core import AGENT, LIFECYCLES, NODE, PLATFORM, TransitionResult
from onward.core.diagrams import markdown, mermaid, page

PAGE = Path(__file__).parents[2] / "docs" / "lifecycles.md"


def tables(text):
    """Read Markdown tables back: a list of rows each, and a row maps its column to its cell."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            head, _rule, *body = rows
            found.append([dict(zip(head, row, strict=True)) for row in body])
            rows = []
    return found


@pytest.mark.parametrize("lifecycle", LIFECYCLES.values(), ids=LIFECYCLES)
def test_every_verdict_in_the_table_is_the_one_that_is_decided(lifecycle):
    _, verdicts = tables(markdown(lifecycle))
    read = {(row["status"], event): row[event] for row in verdicts for event in list(row)[4:]}
    decided = {}
    for status in lifecycle.states:
        for event in lifecycle.moves:
            result, target = lifecycle.decide(status, event)
            decided[status, event] = f"→ {target}" if result is TransitionResult.OK else result
    assert read == decided


@pytest.mark.parametrize("lifecycle", LIFECYCLES.values(), ids=LIFECYCLES)
def test_every_status_shows_its_rank_its_end_and_its_clock(lifecycle):
    _, verdicts = tables(markdown(lifecycle))
    assert [(row["status"], int(row["rank"])) for row in verdicts] == [*lifecycle.states.items()]
    assert {row["status"] for row in verdicts if row["ended"]} == lifecycle.terminal
    assert {row["status"] for row in verdicts if row["clock"] == "deadline"} == lifecycle.timed


@pytest.mark.parametrize("lifecycle", LIFECYCLES.values(), ids=LIFECYCLES)
def test_every_move_is_in_the_table_of_moves(lifecycle):
    moves, _ = tables(markdown(lifecycle))
    read = {
        row["event"]: (row["leaves"], row["leads to"], row["new epoch"] == "yes") for row in moves
    }
    assert read == {
        event: (", ".join(move.sources) or "nothing", move.target, move.draws_epoch)
        for event, move in lifecycle.moves.items()
    }


@pytest.mark.parametrize("lifecycle", LIFECYCLES.values(), ids=LIFECYCLES)
def test_the_diagram_has_an_arrow_for_every_move_and_no_other(lifecycle):
    drawn = set()
    for line in mermaid(lifecycle).splitlines()[1:]:
        way, _, events = line.strip().partition(": ")
        source, target = way.split(" --> ")
        drawn |= {(source, target, event) for event in events.split(", ")}
    assert drawn == {
        ("[*]", lifecycle.initial, ""),
        *((status, "[*]", "") for status in lifecycle.terminal),
        *(
            (source, move.target, event)
            for event, move in lifecycle.moves.items()
            for source in move.sources
        ),
    }


def test_events_between_the_same_statuses_share_an_arrow():
    assert "    QUEUED --> SENT: send, send_once\n" in mermaid(NODE)


def test_a_small_diagram_reads_like_this():
    assert mermaid(AGENT) == (
        "stateDiagram-v2\n"
        "    [*] --> RECEIVED\n"
        "    RECEIVED --> ACCEPTED: accept\n"
        "    ACCEPTED --> EXECUTED: execute\n"
        "    RECEIVED --> REJECTED: reject\n"
        "    ACCEPTED --> FAILED: fail\n"
        "    RECEIVED --> TIMEOUT: timeout\n"
        "    ACCEPTED --> TIMEOUT: timeout\n"
        "    EXECUTED --> [*]\n"
        "    REJECTED --> [*]\n"
        "    FAILED --> [*]\n"
        "    TIMEOUT --> [*]\n"
    )


def test_the_page_has_every_lifecycle_and_what_it_declares():
    text = page()
    for lifecycle in LIFECYCLES.values():
        assert f"\n## {lifecycle.name}\n" in text
        assert markdown(lifecycle) in text
        assert mermaid(lifecycle) in text
    section = text[text.index(f"## {PLATFORM.name}\n") :]
    assert "- Declared unreachable, no event leads there: `TTL_TIMEOUT`.\n" in section
    assert "- Declared untimed, no deadline ends it: `DELIVERED`, `INITIALIZED`, `SAVED`.\n" in text
    assert "A result that finds it so (`execute`, `fail`) is refused, and kept as late.\n" in text


def test_the_page_explains_every_verdict():
    meanings = {row["verdict"]: row["meaning"] for row in tables(page())[0]}
    assert meanings == {verdict: verdict.meaning for verdict in TransitionResult}


def test_the_checked_in_page_is_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: onward docs"
