"""What is believed for a second: asked for once, forgotten at once, and never believed too late."""

from __future__ import annotations

import asyncio

import pytest

from onward.store.belief import Belief


class Source:
    """Answers when it is let, and counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: str | None = "ann"
        self.asked = 0
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, digest: bytes) -> str | None:
        assert digest == b"d"
        self.asked += 1
        self.was_asked.set()
        # As it was when it was asked.
        answer = self.answer
        await self.may_answer.wait()
        return answer


async def test_all_who_ask_at_once_ask_once():
    source = Source()
    belief = Belief(source.ask)
    assert set(await asyncio.gather(*(belief.of(b"d") for _ in range(100)))) == {"ann"}
    assert source.asked == 1


async def test_an_answer_is_believed_for_a_second_from_when_it_was_asked_for():
    now = 0.0
    source = Source()
    belief = Belief(source.ask, clock=lambda: now)
    await belief.of(b"d")
    source.answer = None
    now = 0.999
    assert await belief.of(b"d") == "ann"
    now = 1.0
    assert await belief.of(b"d") is None


async def test_what_was_not_found_is_asked_for_again():
    source = Source()
    source.answer = None
    belief = Belief(source.ask)
    assert await belief.of(b"d") is None
    source.answer = "bob"
    assert await belief.of(b"d") == "bob"


async def test_an_answer_to_a_question_from_before_is_not_believed():
    source = Source()
    source.may_answer.clear()
    belief = Belief(source.ask)
    before = asyncio.create_task(belief.of(b"d"))
    await source.was_asked.wait()
    source.answer = None
    belief.forget()
    after = asyncio.create_task(belief.of(b"d"))
    source.may_answer.set()
    assert (await before, await after) == ("ann", None)
    assert await belief.of(b"d") is None


async def test_whoever_leaves_does_not_take_the_question_with_them():
    source = Source()
    source.may_answer.clear()
    belief = Belief(source.ask)
    leaving, staying = (asyncio.create_task(belief.of(b"d")) for _ in range(2))
    await source.was_asked.wait()
    leaving.cancel()
    source.may_answer.set()
    assert await staying == "ann"
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert source.asked == 1


async def test_the_memory_is_bounded():
    async def ask(digest: bytes) -> bytes:
        return digest

    belief = Belief(ask)
    for number in range(10_001):
        await belief.of(str(number).encode())
    assert len(belief._known) <= 10_000
