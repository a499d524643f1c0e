"""The trading demo in parts: how something is asked for, what is drawn, how a price wanders."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from onward.demo.trading.asking import Asker
from onward.demo.trading.journal import DEPOSIT, Journal, Wanted
from onward.demo.trading.line import Line
from onward.demo.trading.screen import _Screen, shown
from onward.demo.trading.script import MARKETS, Demo, Wander
from onward.demo.trading.state import Book, DealState, Level, State, Sum
from onward.errors import InvariantBroken

WANTED = Wanted("ann", DEPOSIT, "EUR", 100, tag='"1"', key="ann-1")


def answer(status: str, body: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


@asynccontextmanager
async def door(answers: Sequence[bytes]) -> AsyncIterator[tuple[str, list[str]]]:
    """A service that gives each request one of these answers; with an empty one, it hangs up."""
    asked: list[str] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"Content-Length: (\d+)", head)
        assert length is not None
        body = await reader.readexactly(int(length[1]))
        writer.write(answers[len(asked)])
        asked.append(head + body.decode())
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}", asked


async def test_whoever_gets_no_answer_says_the_same_again_and_learns_what_became_of_it():
    done = answer("202 Accepted", '{"operation_id": 31}', "Idempotency-Replayed: true")
    async with door([b"", done]) as (address, asked):
        journal = Journal()
        line = Line([address], 0, key="key")
        await Asker(line, journal).change(WANTED)
        line.close()
    first, second = asked
    assert first == second
    assert 'If-Match: "1"' in first
    assert "Idempotency-Key: ann-1" in first
    (told,) = journal.told
    assert (told.made, told.replayed, told.silences) == (31, True, 1)
    assert journal.answers.total() == 0, "an answer that is given again is counted apart"


async def test_after_a_silence_a_lock_may_be_ones_own_and_is_waited_for():
    locked = answer("409 Conflict", '{"code": "locked"}')
    stale = answer("412 Precondition Failed", '{"code": "stale"}', 'ETag: "2"')
    async with door([b"", locked, stale]) as (address, asked):
        journal = Journal()
        line = Line([address], 0, key="key")
        await Asker(line, journal).change(WANTED)
        line.close()
    assert len(asked) == 3
    assert [told.code for told in journal.told] == ["stale"]


async def test_a_service_that_is_gone_is_passed_over_for_another():
    async with door([]) as (gone, _):
        pass
    done = answer("202 Accepted", '{"operation_id": 31}')
    async with door([done]) as (address, _):
        journal = Journal()
        line = Line([gone, address], 0, key="key")
        await Asker(line, journal).change(WANTED)
        line.close()
    (told,) = journal.told
    assert told.silences == 0, "who was not there cannot have heard anything"


async def test_an_answer_that_nobody_promised_is_quoted():
    async with door([answer("500 Internal Server Error", "Oops")]) as (address, _):
        line = Line([address], 0, key="key")
        with pytest.raises(InvariantBroken, match="500: Oops"):
            await Asker(line, Journal()).change(WANTED)
        line.close()


def test_a_price_wanders_the_same_way_for_the_same_seed():
    def way(seed: int) -> list[int]:
        wander = Wander(MARKETS[0], seed=seed, seconds=5)
        return [wander.at(tenth / 10) for tenth in range(60)]

    assert way(7) == way(7)
    assert way(7) != way(8)
    assert min(way(7)) > 0
    assert len(set(way(7))) > 10


def busy() -> State:
    """As much as there may be to show."""
    levels = [Level(MARKETS[0].price + 50 * n, 100 - n) for n in range(8)]
    deal = DealState(12_345, 7, "EUR", 250_00, "cleo", "rosa")
    money = Sum("EUR", 1_234_567_89, 1_200_000_00, 34_000_00, 567_89)
    return State(
        elapsed_s=9.9,
        requests_rate=1_234.5,
        books=[Book(each, levels, levels[:3], [250_00, 251_00] * 20, 999) for each in MARKETS],
        deals=[deal] * 5,
        answers=dict.fromkeys((202, 200, 409, 412, 422, 428), 12_345),
        replays=1_234,
        sums=[money, money._replace(asset="USD"), Sum("item:7", 1, 1, 0, 0)],
        looks=40,
        missed=0,
    )


def test_the_screen_fits_into_eighty_columns_and_twenty_four_lines():
    screen = _Screen(Demo(10, 2**32 - 1))
    for n in range(9):
        screen.say(f"{n}: " + "something happened " * 9)
    screen.show(busy())
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    lines = ["".join(part.text for part in line) for line in console.render_lines(screen)]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    drawn = "\n".join(lines)
    for part in ("250.00", "cleo from rosa", "12,345", "stale 412", "567.89 fees", "nothing, at"):
        assert part in drawn, part
    assert "8: something" in drawn


def test_a_log_gets_plain_lines_and_what_is_missing():
    console = Console(file=(log := io.StringIO()), highlight=False)
    with shown(Demo(10, 7), console) as view:
        view.show(busy())
    assert "seed 7" in log.getvalue()
    assert "1,998 deals; 12,345 accepted (202)" in log.getvalue()
    assert log.getvalue().endswith("missing: nothing, at 40 looks\n")
