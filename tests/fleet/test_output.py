"""What hosts print: in order, capped, harmless, and readable while they run."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.channels.base import Delivery, Report, Stream
from onward.channels.base import Output as Sink
from onward.fleet.masking import Hidden, hidden_of
from onward.fleet.output import LINE_MAX, LINES_MAX, OURS, OUTPUT_MAX, Output, harmless
from onward.fleet.report import printed as said_to_print
from onward.store import executions, jobs, logs
from onward.store.database import Pool
from onward.store.executions import ExecutionEvent
from onward.wiring import Onward
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_engine import BOUND_S, QUICK, until_settled, working
from tests.fleet.test_retry import run

OUT, ERR = Stream.STDOUT, Stream.STDERR


def printed(*pieces: tuple[Stream, str], attempt: int = 1) -> list[tuple[str, str]]:
    output = Output(1, 7, attempt)
    for piece in pieces:
        output(*piece)
    lines = output.close()
    assert [(line.execution_id, line.epoch, line.line) for line in lines] == [
        (1, 7, number) for number in range(1, len(lines) + 1)
    ]
    return [(line.stream, line.text) for line in lines]


def test_lines_are_put_together_from_pieces_of_two_streams():
    assert printed((OUT, "on"), (ERR, "bad\r\n"), (OUT, "e\ntwo\nthr"), (OUT, "ee")) == [
        ("stderr", "bad"),
        ("stdout", "one"),
        ("stdout", "two"),
        ("stdout", "three"),
    ]


def test_empty_lines_stay_and_nothing_is_no_line():
    assert printed((OUT, "\n\na\n")) == [("stdout", ""), ("stdout", ""), ("stdout", "a")]
    assert printed() == []


@pytest.mark.parametrize("pieces", [1, 10, LINE_MAX])
def test_a_long_line_is_cut_and_says_by_how_much(pieces: int):
    text = "x" * (LINE_MAX + 500)
    size = -(-len(text) // pieces)
    parts = [(OUT, text[at : at + size]) for at in range(0, len(text), size)]
    assert printed(*parts, (OUT, "\nshort\n")) == [
        ("stdout", "x" * LINE_MAX),
        (OURS, "truncated: 500 more characters of the line above"),
        ("stdout", "short"),
    ]


def test_a_line_that_never_ends_does_not_pile_up():
    output = Output(1, 1, 1)
    for _ in range(1_000):
        output(OUT, "y" * 1_000)
    assert sum(map(len, output._begun.values())) <= LINE_MAX
    assert [line.stream for line in output.close()] == ["stdout", OURS]


@pytest.mark.parametrize("line", ["z" * 1_000, ""])
def test_an_attempt_that_prints_too_much_is_cut_off_once_in_words(line: str):
    lines = printed(*[(OUT, f"{line}\n")] * (LINES_MAX + 10))
    assert len(lines) <= LINES_MAX + 1
    assert [text for stream, text in lines if stream == OURS] == [lines[-1][1]]
    assert lines[-1][1].startswith("truncated")


def test_all_attempts_of_an_execution_stay_within_its_cap():
    flood = [(OUT, f"{'w' * 1_000}\n")] * 2_000
    total = sum(
        sum(len(text) for _, text in printed(*flood, attempt=attempt)) for attempt in range(1, 9)
    )
    assert OUTPUT_MAX * 0.9 < total < OUTPUT_MAX * 1.05


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("evil\u202etxt.exe", r"evil\u202etxt.exe"),
        ("half \ud800", r"half \ud800"),
        ("one\rtwo\u2028three", r"one\rtwo\u2028three"),
        (
            "tab\tstays, so does 中文\u3000 and 👩\u200d🚀",
            "tab\tstays, so does 中文\u3000 and 👩\u200d🚀",
        ),
    ],
)
def test_what_could_garble_a_terminal_is_written_out(text: str, shown: str):
    assert harmless(text) == shown


@given(st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.text(max_size=40))))
def test_any_text_can_be_stored_and_shown(pieces: list[tuple[Stream, str]]):
    for _, text in printed(*pieces):
        assert text.encode().decode() == text
        assert not any(ord(c) < 32 and c != "\t" for c in text)


# Digests


def digest(*pieces: tuple[Stream, str], hidden: Hidden | None = None) -> str | None:
    output = Output(1, 7, 1, hidden=hidden)
    for piece in pieces:
        output(*piece)
    output.close()
    return output.digest


def test_a_digest_is_that_of_what_was_printed_and_of_nothing_else():
    told = b"stdout\0one\ntwo\n"
    assert digest((OUT, "one\ntwo\n")) == blake2b(told, digest_size=16).hexdigest()
    assert digest() is None
    assert digest((OUT, "")) is None
    different = [
        digest((OUT, "one\ntwo\n")),
        digest((OUT, "two\none\n")),
        digest((OUT, "one\ntwo\n\n")),
        digest((OUT, "onetwo\n")),
        digest((OUT, "one\n")),
        digest((OUT, "\n")),
        digest((ERR, "one\ntwo\n")),
        digest((OUT, "one\n"), (ERR, "two\n")),
        digest((OUT, "two\n"), (ERR, "one\n")),
        digest((OUT, "x" * LINE_MAX)),
        digest((OUT, "x" * (LINE_MAX + 1))),
        # What is not kept is a difference, too.
        digest((OUT, "x" * LINE_MAX + "y")),
        digest((OUT, "x\n" * OUTPUT_MAX)),
        digest((OUT, "x\n" * OUTPUT_MAX + "y\n")),
    ]
    assert len(set(different)) == len(different)


def test_neither_the_end_of_a_line_nor_the_number_of_the_attempt_changes_a_digest():
    assert digest((OUT, "a\r\nb")) == digest((OUT, "a\nb\n")) == digest((OUT, "a\r"), (OUT, "\nb"))
    assert digest((OUT, "a\r")) != digest((OUT, "a"))
    much = [(OUT, "x" * 1_000 + "\n")] * 600
    first, second = Output(1, 7, 1), Output(1, 8, 2)
    for piece in much:
        first(*piece)
        second(*piece)
    assert len(first.close()) > len(second.close())
    assert first.digest == second.digest


@given(
    st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.text(max_size=20)), max_size=8), st.data()
)
def test_neither_pieces_nor_the_mixture_of_streams_change_a_digest(
    pieces: list[tuple[Stream, str]], data: st.DataObject
):
    """Streams come over pipes of their own, in whatever pieces, and either may be the faster."""
    whole = [
        (stream, "".join(text for other, text in pieces if other is stream))
        for stream in (OUT, ERR)
    ]
    cut = [(stream, character) for stream, text in pieces for character in text]
    reordered = data.draw(st.permutations(whole))
    assert digest(*pieces) == digest(*whole) == digest(*reordered) == digest(*cut)


def test_whoever_prints_a_secret_prints_the_same_as_the_others():
    """What is taken out of the lines is not in the digest either."""
    one, two = (
        digest((OUT, f"token is {secret}\n"), hidden=hidden_of(f'{{"t": "{secret}"}}', ["t"]))
        for secret in ("first-secret", "another-secret")
    )
    assert one == two == digest((OUT, "token is ***\n"))


class Printing:
    """Hosts that print what their attempt is told to: text of stdout, by attempt, and its end."""

    def __init__(self, *attempts: tuple[str, bool]) -> None:
        self._attempts = attempts
        self._seen: Counter[str] = Counter()

    async def deliver(self, delivery: Delivery, output: Sink) -> Report:
        text, succeeded = self._attempts[self._seen[delivery.command_id]]
        self._seen[delivery.command_id] += 1
        output(OUT, text)
        return Report(succeeded=succeeded, exit_code=0 if succeeded else 1)

    async def cancel(self, _delivery: Delivery) -> bool:
        return False


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        ([("done\n", True)], "done\n"),
        ([("", True)], ""),
        ([("failed\n", False), ("done\n", True)], "done\n"),
        ([("failed\n", False), ("", True)], ""),
        ([("", False), ("done\n", True)], "done\n"),
    ],
)
async def test_what_is_kept_is_the_digest_of_the_last_attempt(
    opened: Onward,
    make_hosts: MakeHosts,
    submit: Submit,
    attempts: list[tuple[str, bool]],
    kept: str,
):
    pool = opened.commands.pool
    await make_hosts(2)
    await submit()
    async with working(opened, Printing(*attempts), QUICK):
        await until_settled(pool)
    rows = await pool.fetch("SELECT status, exit_code, encode(output, 'hex') FROM executions")
    assert [tuple(row) for row in rows] == [("SUCCESS", 0, digest((OUT, kept)) or "")] * 2
    told = await pool.fetch(
        "SELECT detail ->> 'output' AS output FROM execution_timeline "
        "WHERE execution_id = 1 AND event IN ('succeed', 'retry') ORDER BY seq"
    )
    assert [row["output"] for row in told] == [digest((OUT, text)) or "" for text, _ in attempts]


class Remembering(Printing):
    """Hosts that have done it before, and only repeat how it ended."""

    async def deliver(self, delivery: Delivery, output: Sink) -> Report:
        return replace(await super().deliver(delivery, output), repeated=True)


@pytest.mark.parametrize("text", ["", "done\n"])
async def test_a_host_that_only_repeats_how_it_ended_is_not_told_as_silent(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, text: str
):
    pool = opened.commands.pool
    await make_hosts(1)
    await submit()
    async with working(opened, Remembering((text, True)), QUICK):
        await until_settled(pool)
    assert await kept_output(pool) == digest((OUT, text)), "none: nobody knows"


async def test_what_was_printed_is_known_between_two_attempts_and_of_what_never_had_a_second(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit()
    (claimed,) = await run(pool, job)
    event = ExecutionEvent(claimed.execution_id, "retry", claimed.epoch)
    await executions.report(pool, [said_to_print(event, "11" * 16)], ())
    assert await kept_output(pool) == "11" * 16
    await jobs.cancel(pool, job.job_id, by="ann")
    assert await kept_output(pool) == "11" * 16


async def test_an_attempt_has_printed_nothing_when_it_begins(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit()
    (claimed,) = await run(pool, job)
    event = ExecutionEvent(claimed.execution_id, "retry", claimed.epoch, "", '{"exit_code": 3}')
    await executions.report(pool, [said_to_print(event, "11" * 16)], ())
    (again,) = await run(pool, job)
    assert await kept_output(pool) is None
    assert await pool.fetchval("SELECT exit_code FROM executions") is None
    # Somebody else ended it: nobody knows of anything that it printed.
    await executions.report(pool, [ExecutionEvent(again.execution_id, "timeout", again.epoch)], ())
    assert await kept_output(pool) is None


async def kept_output(pool: Pool) -> str | None:
    found: str | None = await pool.fetchval("SELECT encode(output, 'hex') FROM executions")
    return found


# While it runs


class Talking:
    """A host that prints, waits to be heard, prints again and ends."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def deliver(self, _delivery: Delivery, output: Sink) -> Report:
        output(OUT, "first\nsecond\nhalf")
        await self.heard.wait()
        output(OUT, " a line\n")
        output(ERR, "last\n")
        return Report(succeeded=True, exit_code=0)

    async def cancel(self, _delivery: Delivery) -> bool:
        return False


async def test_output_is_read_while_the_command_runs_and_is_whole_when_it_ends(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool, channel = opened.commands.pool, Talking()
    await make_hosts(1)
    await submit()
    async with working(opened, channel, QUICK):
        async with asyncio.timeout(BOUND_S):
            while len(live := await logs.page(pool, 1, limit=10)) < 2:  # noqa: ASYNC110 - the tables have no event
                await asyncio.sleep(0.01)
        assert [line.text for line in live] == ["first", "second"]
        channel.heard.set()
        await until_settled(pool)
    lines = await logs.page(pool, 1, limit=10)
    assert [(line.line, line.stream, line.text) for line in lines] == [
        (1, "stdout", "first"),
        (2, "stdout", "second"),
        (3, "stdout", "half a line"),
        (4, "stderr", "last"),
    ]
    rest = await logs.page(pool, 1, after=(lines[1].epoch, 2), limit=1)
    assert [line.text for line in rest] == ["half a line"]
