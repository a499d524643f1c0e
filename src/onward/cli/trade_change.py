"""A change of an account or of one's orders: about what was seen, and done once.

It names the version that was shown. If that has changed, nothing is done: what it is now is shown,
and whoever is there is asked again. It has a key of its own, so that saying it again is harmless.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from onward.cli.exits import Exit, Leaving, ServiceAway, Usage, of_status
from onward.cli.money import priced
from onward.cli.terminal import asked, somebody, watcher

if TYPE_CHECKING:
    from onward.cli.client import Answer, Client
    from onward.cli.tree import Given

_CHANGED: Final = 412
_KEY = re.compile(r'(?!")[!-~]{1,255}').fullmatch
_AWAY: Final = frozenset({502, 503, 504})
# What to do about a refusal, where the service does not say it in words of the command line.
_NEXT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "insufficient-items": "`onward trade items` lists what you have, and `onward trade orders "
        "--side sell --status OPEN` what is set aside.",
        "idempotency-key-running": "Say the same again in a moment, with the same --key.",
        "idempotency-key-reused": "Take another --key for another request.",
        "idempotency-key-malformed": "Take another --key.",
        "unknown-order": "`onward trade orders` lists yours.",
        "unknown-operation": "`onward trade ledger` lists yours.",
        "order-stands-otherwise": "`onward trade deals` lists them.",
        "locked": "Another request of yours is changing the same: try again in a moment.",
    }
)

Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="A name of your own for this request: said again, it is done once.",
        show_default="a new one",
    ),
]
Currency = Annotated[
    str | None,
    typer.Option(metavar="CODE", help="Such as EUR.", show_default="the first of the service"),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be changed, and what it is about."""

    deed: str  # a verb, for the question
    path: str
    body: Mapping[str, object]
    look: Callable[[], Answer]
    told: Callable[[Answer], str]  # what was seen, on one line
    seen: Answer


def change(service: Client, given: Given, wanted: Wanted, *, key: str | None) -> Answer:
    """Change what is shown; if it changes under us, show what it is now and ask again."""
    named, seen, to = checked_key(key), wanted.seen, watcher(given)
    to.print(wanted.told(seen))
    while True:
        answer = _sent(service, wanted, seen=seen.etag, key=named)
        if answer.status != _CHANGED:
            break
        seen = wanted.look()
        to.print(f"{to.style('It changed under you:', 'yellow')} {wanted.told(seen)}")
        if not somebody(given):
            raise Leaving(
                Exit.CONFLICT, "Nothing was done. Look at it as it is now, and say it again."
            )
        asked(given, f"{wanted.deed} all the same?", flag="it again")
    return answer if answer.good else refuse(answer, currency=wanted.body.get("currency"))


def checked_key(key: str | None) -> str:
    """Return the name of a request, or make one; one that no header can hold is refused."""
    if key is None:
        return f"cli-{secrets.token_hex(16)}"
    if not _KEY(key):
        raise Usage(f"--key {key!a:.80}: a key has 1 to 255 visible ASCII characters.")
    return key


def told(answer: Answer) -> Answer:
    """Return an answer, or fail with the sentence why it is none and what to do about it."""
    return answer if answer.good else refuse(answer)


def refuse(answer: Answer, *, currency: object = None) -> NoReturn:
    """Fail with what the service says, money as people read it, and what to do about it."""
    body = answer.body
    if answer.code == "insufficient-funds" and currency:
        raise Leaving(
            of_status(answer.status),
            f"There is not enough in the account: it takes {priced(body.get('needed'), currency)}, "
            f"and {priced(body.get('available'), currency)} is available; nothing was changed. "
            "`onward trade deposit` brings money in, and `onward trade cancel` gives back what "
            "an order holds.",
        )
    try:
        answer.refuse()
    except Leaving as error:
        raise Leaving(error.code, _with_advice(str(error), answer)) from None


def _with_advice(sentence: str, answer: Answer) -> str:
    wrong = {str(each.get("pointer")).strip("/") for each in answer.errors}
    advice = _NEXT.get(answer.code, "")
    if answer.code == "invalid" and "currency" in wrong:
        advice = "Name one of these with --currency."
    ended = sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
    return f"{ended} {advice}".strip() if advice and advice not in ended else sentence


def _sent(service: Client, wanted: Wanted, *, seen: str, key: str) -> Answer:
    # It goes with every request of this command; where it is of no use, nobody reads it.
    service.http.headers["Idempotency-Key"] = key
    try:
        answer = service.send("POST", wanted.path, body=wanted.body, seen=seen, repeat=True)
    except ServiceAway as error:
        raise _unknown(str(error), key) from error
    if answer.status in _AWAY:
        raise _unknown("The service cannot answer now.", key)
    return answer


def _unknown(why: str, key: str) -> Leaving:
    return Leaving(
        Exit.SERVICE_AWAY,
        f"{why} Nobody knows whether it was done: say the same again with --key {key}, "
        "and it is done once.",
    )
