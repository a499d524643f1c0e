"""Trading from a terminal: what is typed, what is refused and why, and what changed under whom."""

from __future__ import annotations

import pytest

from onward.cli import trade_change
from onward.cli.client import Answer, Client
from onward.cli.exits import ServiceAway, Usage
from onward.cli.money import digits, money, typed
from tests.cli.crew import Crew, Ended


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("12", "EUR", 1_200),
        ("12.5", "EUR", 1_250),
        ("12.50", "EUR", 1_250),
        ("12.500", "EUR", 1_250),
        ("0.01", "EUR", 1),
        ("12", "JPY", 12),
        ("12.0", "JPY", 12),
        ("1.234", "KWD", 1_234),
        ("0.0001", "CLF", 1),
    ],
)
def test_an_amount_is_read_to_the_last_cent(text: str, currency: str, minor: int):
    assert typed(text).minor(currency) == minor


@pytest.mark.parametrize(
    "text", ["12,50", "1,000.00", "", ".5", "5.", "-1", "+1", "1e3", "٣", "0", "0.00", "1 000", "x"]
)
def test_what_is_no_amount_is_refused_before_anybody_is_asked(text: str):
    with pytest.raises(Usage):
        typed(text)


@pytest.mark.parametrize(("text", "currency"), [("1.234", "EUR"), ("1.5", "JPY"), ("0.001", "XXX")])
def test_a_part_of_a_cent_is_refused(text: str, currency: str):
    with pytest.raises(Usage, match="behind"):
        typed(text).minor(currency)


@pytest.mark.parametrize(
    ("minor", "currency", "told"),
    [
        (123_456_789, "EUR", "1,234,567.89"),
        (0, "EUR", "0.00"),
        (-5, "EUR", "-0.05"),
        (1_234, "JPY", "1,234"),
        (5, "KWD", "0.005"),
        (None, "EUR", ""),
    ],
)
def test_money_is_written_by_its_digits(minor: object, currency: str, told: str):
    assert money(minor, currency) == told


def test_a_currency_that_nobody_knows_has_hundredths():
    assert digits("XYZ") == 2


def test_a_comma_is_told_what_to_write_instead(crew: Crew):
    ended = crew.run("trade", "deposit", "12,50", who="tom")
    assert ended.code == 2
    assert "such as 12.50" in ended.told


def available(crew: Crew) -> int:
    return int(crew.ok("trade", "account", "--json", who="tom").json["available"])


def meddled(monkeypatch: pytest.MonkeyPatch, crew: Crew, *words: str) -> None:
    """Let somebody else be quicker, just before the next change is sent."""
    send = Client.send
    over: list[bool] = []

    def first(self: Client, method: str, path: str, **said: object) -> Answer:
        if method == "POST" and not over:
            over.append(True)
            crew.ok(*words, who="tom")
        return send(self, method, path, **said)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(Client, "send", first)


def test_without_a_terminal_an_account_that_changed_is_a_conflict(crew: Crew, monkeypatch):
    crew.ok("trade", "deposit", "100", who="tom")
    before = available(crew)
    meddled(monkeypatch, crew, "trade", "deposit", "1")
    ended = crew.run("trade", "withdraw", "5", who="tom")
    assert ended.code == 6
    assert "It changed under you: tom has" in ended.told
    assert "onward: Nothing was done." in ended.told
    assert available(crew) == before + 100


def test_whoever_is_there_is_asked_again_and_it_is_done_once(crew: Crew, monkeypatch):
    crew.ok("trade", "deposit", "100", who="tom")
    before, asked = available(crew), []
    monkeypatch.setattr(trade_change, "somebody", lambda _given: True)
    monkeypatch.setattr(trade_change, "asked", lambda _given, question, **_: asked.append(question))
    meddled(monkeypatch, crew, "trade", "deposit", "1")
    ended = crew.ok("trade", "withdraw", "5", who="tom")
    assert asked == ["Withdraw 5.00 EUR all the same?"]
    assert ended.said.startswith("Operation ")
    assert available(crew) == before + 100 - 500


def test_an_order_that_was_placed_meanwhile_is_shown(crew: Crew, monkeypatch):
    crew.ok("trade", "deposit", "100", who="tom")
    meddled(monkeypatch, crew, "trade", "buy", "40", "--price", "1")
    ended = crew.run("trade", "buy", "40", "--price", "2", who="tom")
    assert ended.code == 6
    assert "It changed under you: Your last order to buy is" in ended.told
    assert "item 40 for 1.00 EUR, OPEN" in ended.told


REFUSED = {
    "lacking funds": (("trade", "withdraw", "1000000"), 1, "`onward trade deposit` brings money"),
    "lacking items": (("trade", "sell", "41", "--price", "1"), 1, "`onward trade items` lists"),
    "a currency of nowhere": (("trade", "account", "--currency", "XXX"), 1, "with --currency."),
    "another request": (("trade", "deposit", "2", "--key", "taken"), 1, "Take another --key"),
    "a key of two lines": (("trade", "deposit", "2", "--key", "a\nb"), 2, "visible ASCII"),
    "far too much": (("trade", "deposit", "99999999999"), 1, "amount"),
    "no such order": (("trade", "cancel", "999999"), 1, "`onward trade orders` lists yours."),
    "no such operation": (("trade", "ledger", "999999"), 1, "`onward trade ledger` lists yours."),
    "no such status": (("trade", "orders", "--status", "NOPE"), 1, "is not one of OPEN"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_to_do_next(crew: Crew, name: str):
    words, code, said = REFUSED[name]
    crew.ok("trade", "deposit", "1", "--key", "taken", who="tom")
    before = available(crew)
    ended = crew.run(*words, who="tom")
    assert (ended.code, ended.said) == (code, ""), ended
    assert said in ended.told
    assert available(crew) == before


def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the answer to a change get lost on its way."""
    once = Client._once

    def away(self: Client, method: str, *said: object, **named: object) -> Answer:
        answer = once(self, method, *said, **named)  # type: ignore[arg-type]  # as it was called
        if method == "POST":
            raise ServiceAway("It does not answer.")
        return answer

    monkeypatch.setattr(Client, "_once", away)


def test_an_answer_that_was_lost_can_be_asked_for_again(crew: Crew, monkeypatch):
    before = available(crew)
    with monkeypatch.context() as patched:
        lost(patched)
        ended: Ended = crew.run("trade", "deposit", "3", who="tom")
    assert ended.code == 10
    assert "Nobody knows whether it was done" in ended.told
    key = ended.told.rpartition("--key ")[2].partition(",")[0]
    crew.ok("trade", "deposit", "3", "--key", key, who="tom")
    assert available(crew) == before + 300


def test_another_request_of_ones_own_is_told_in_a_sentence(crew: Crew, monkeypatch):
    busy = Answer(409, {"title": "Another request is changing it", "code": "locked"})
    send = Client.send

    def locked(self: Client, method: str, path: str, **said: object) -> Answer:
        return busy if method == "POST" else send(self, method, path, **said)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(Client, "send", locked)
    ended = crew.run("trade", "deposit", "3", who="tom")
    assert ended.code == 6
    assert "try again in a moment" in ended.told.lower()
