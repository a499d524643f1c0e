"""What nobody is to see: the parameters that a type has masked, taken out of whatever is told.

1. Whoever looks at parameters sees `***` in place of a masked one, whatever it holds.
2. What a host prints, and what went wrong, is searched for the values themselves: as they are, line
   by line if they have several, and as JSON would write them.
3. A value of fewer than four characters is not searched for, nor are `true`, `false` and `null`:
   they would be found everywhere, and where they are found would tell them.
4. Text that comes in pieces is held back for as long as it could be the beginning of a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

SHOWN: Final = "***"
LEAST: Final = 4  # characters of a value that is searched for
_LONGEST: Final = 4_096  # that are searched for at once; a longer value is several

Span = tuple[int, int]


class Hidden:
    """The values that are taken out of texts."""

    __slots__ = ("_values",)

    def __init__(self, values: Sequence[str]) -> None:
        self._values = values

    def __repr__(self) -> str:
        return "Hidden(...)"

    def out_of(self, text: str) -> str:
        """Return a text without the values."""
        return Veil(self).take(text, last=True)

    def out_of_value(self, value: object) -> object:
        """Return what JSON means, without the values."""
        match value:
            case dict():
                return {self.out_of(name): self.out_of_value(each) for name, each in value.items()}
            case list():
                return [self.out_of_value(each) for each in value]
            case None | bool():
                return value
            case str():
                return self.out_of(value)
            case _:
                return SHOWN if str(value) in self._values else value

    def found(self, text: str) -> Iterator[Span]:
        """Say where the values are in a text, also where they overlap."""
        for value in self._values:
            at, length = text.find(value), len(value)
            while at >= 0:
                yield at, at + length
                # One that repeats itself may be there again before its end. The last of those
                # covers the others, which could be very many.
                again = text.rfind(value, at + 1, at + 2 * length)
                at = again if again >= 0 else text.find(value, at + length)

    def open_at(self, text: str) -> int:
        """Return the place from which on a text could be the beginning of a value."""
        return min(_begins(text, value) for value in self._values)


class Veil:
    """Takes the values out of one stream of text, whose pieces end anywhere."""

    __slots__ = ("_covered", "_held", "_hidden")

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        self._held = ""  # what could be the beginning of a value
        self._covered = 0  # how much of that is the end of one that has been taken out already

    def take(self, text: str, *, last: bool = False) -> str:
        """Return what may be told now; after the `last` piece nothing is held back."""
        text = self._held + text
        until = self._hidden.open_at(text)
        found = [*self._hidden.found(text), (0, self._covered)]
        if last:
            # Whoever was cut off in the middle of a value has told the beginning of it.
            found += [(until, len(text))] if len(text) - until >= LEAST else []
            until = len(text)
        told, at = [], 0
        for begin, end in _merged(found):
            before = begin < self._covered  # it began in what has been told
            if begin >= until and not before:
                break
            told += [text[at:begin], "" if before else SHOWN]
            at = end
        told.append(text[at:until])
        self._held, self._covered = text[until:], max(at - until, 0)
        return "".join(told)


def masked_params(params: Mapping[str, object], masked: Sequence[str]) -> Mapping[str, object]:
    """Return parameters as they may be shown."""
    if not masked:
        return params
    return {name: SHOWN if name in masked else value for name, value in params.items()}


def hidden_of(params: str, masked: Sequence[str]) -> Hidden | None:
    """Return what is to be taken out of the output of a job with these parameters, in JSON.

    `None` if there is nothing, which is mostly so and costs nothing.
    """
    return _hidden(params, tuple(masked)) if masked else None


# A job asks for it once a host.
@lru_cache(maxsize=64)
def _hidden(params: str, masked: tuple[str, ...]) -> Hidden | None:
    given = json.loads(params)
    texts = {text for name in masked for text in _texts(given.get(name))}
    values = {part for text in texts for form in _forms(text) for part in _parts(form)}
    # Longer ones first, so that most texts are settled before their parts are looked for.
    return Hidden(sorted(values, key=len, reverse=True)) if values else None


def _texts(value: object) -> Iterator[str]:
    """Yield every text and number that a value holds."""
    match value:
        case dict():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
        case None | bool():
            return
        case _:
            yield str(value)


def _forms(text: str) -> Iterator[str]:
    yield text
    yield text.strip()
    yield from text.splitlines()
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def _parts(text: str) -> Iterator[str]:
    for at in range(0, len(text), _LONGEST):
        part = text[at : at + _LONGEST]
        if len(part.strip()) >= LEAST:
            yield part


def _begins(text: str, value: str) -> int:
    at = text.find(value[0], max(len(text) - len(value) + 1, 0))
    while at >= 0:
        if value.startswith(text[at:]):
            return at
        at = text.find(value[0], at + 1)
    return len(text)


def _merged(spans: Sequence[Span]) -> Iterator[Span]:
    """Join what overlaps or touches, in the order of the text."""
    begin = end = 0
    for each in sorted(spans):
        if each[0] > end:
            if end > begin:
                yield begin, end
            begin, end = each
        else:
            end = max(end, each[1])
    if end > begin:
        yield begin, end
