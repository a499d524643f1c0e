"""The reading of an expression: from text to a condition, or to the place where it went wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn

from onward.core.selectors.conditions import (
    And,
    Condition,
    Glob,
    Has,
    Is,
    Not,
    Or,
    Value,
    in_brief,
    is_key,
    is_plain_in_glob,
    joined,
    on_one_line,
    pieces_of,
    refuse,
)
from onward.core.selectors.writing import KEYWORDS, MAX_DEPTH, MAX_LENGTH, PLAIN

_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r\n]+)
       | (?P<sign>==|!=|[=(),])
       | (?P<quoted>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
       | (?P<word>(?:{PLAIN}|\\.)+)""",
    re.VERBOSE,
)
_HINTS: Final = {
    "!": "; write 'not' or '!='",
    "&": "; write 'and'",
    "|": "; write 'or'",
    "\\": "; a backslash goes before the sign that it takes literally",
}


def read_expression(text: str) -> Condition:
    """Read an expression, or raise `InvalidInput` that shows the place."""
    if not text.strip():
        refuse("the expression is empty; to select every host, write all")
    if len(text) > MAX_LENGTH:
        refuse(f"{len(text)} characters are more than the {MAX_LENGTH} allowed")
    for position, character in enumerate(text, start=1):
        if not character.isprintable() and character not in "\t\r\n":
            refuse(f"has the character {character!a} at position {position}")
    return _Parser(text).read()


class _Token(NamedTuple):
    kind: str  # "sign", "quoted", "word" or "end"
    text: str
    start: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs


class _Parser:
    """Reads one expression by recursive descent; a method for each line of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0
        self._depth = 0

    def read(self) -> Condition:
        condition = self._expression()
        if self._token.kind != "end":
            self._expected("'and', 'or' or the end")
        return condition

    def _expression(self) -> Condition:
        parts = []
        commas: list[_Token] = []
        while True:
            parts.append(self._any(commas))
            if commas and (len(parts) > 1 or self._token.is_word("or")):
                problem = "',' beside 'or' can be read in two ways; use parentheses or 'and'"
                self._fail(problem, commas[0].start)
            if not self._take(self._token.is_word("or")):
                return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _any(self, commas: list[_Token]) -> Condition:
        parts = [self._term()]
        while self._token.is_word("and") or self._token.is_sign(","):
            if self._token.is_sign(","):
                commas.append(self._token)
            self._next += 1
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _term(self) -> Condition:
        if self._take(self._token.is_word("not")):
            return Not(self._deeper(self._term))
        if self._take(self._token.is_sign("(")):
            inner = self._deeper(self._expression)
            self._need(")")
            return inner
        if self._take(self._token.is_word("has")):
            return Has(self._key("a key"))
        return self._comparison(self._key("a condition"))

    def _comparison(self, key: str) -> Condition:
        if self._take(self._token.is_sign("=", "==")):
            return Is(key, (self._value(),))
        if self._take(self._token.is_sign("!=")):
            return Not(Is(key, (self._value(),)))
        negated = self._take(self._token.is_word("not"))
        if not self._take(self._token.is_word("in")):
            self._expected("'in'" if negated else "'=', '!=', 'in' or 'not in'")
        found = Is(key, self._values())
        return Not(found) if negated else found

    def _values(self) -> tuple[Value, ...]:
        self._need("(")
        values = [self._value()]
        while self._take(self._token.is_sign(",")):
            values.append(self._value())
        self._need(")")
        return tuple(values)

    def _value(self) -> Value:
        token = self._token
        self._take_word_or_quoted("a value")
        self._check_value(token)
        quoted = token.kind == "quoted"
        pieces = tuple(pieces_of(token.text[1:-1] if quoted else token.text))
        if quoted or not any(piece.wild for piece in pieces):
            return "".join(piece.character for piece in pieces)
        return Glob(joined(pieces, keep=is_plain_in_glob))

    def _key(self, wanted: str) -> str:
        token = self._token
        self._take_word_or_quoted(wanted)
        key = token.text[1:-1] if token.kind == "quoted" else token.text
        if not is_key(key):
            self._fail("a key has only letters, digits and _ . - /", token.start)
        return key

    def _deeper(self, read: Callable[[], Condition]) -> Condition:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH} levels", self._tokens[self._next - 1].start)
        inner = read()
        self._depth -= 1
        return inner

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, wanted: bool) -> bool:  # noqa: FBT001 - reads as a condition where it is called
        self._next += wanted
        return wanted

    def _take_word_or_quoted(self, wanted: str) -> None:
        # The words of the grammar are refused, so that a forgotten value is found where it is
        # missing and not behind the "and" that follows.
        if self._token.is_word(*KEYWORDS):
            self._expected(wanted, f" (write '{self._token.text}' in quotes to make it one)")
        if not self._take(self._token.kind in {"word", "quoted"}):
            self._expected(wanted)

    def _need(self, sign: str) -> None:
        if not self._take(self._token.is_sign(sign)):
            self._expected(f"'{sign}'")

    def _split(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if not found:
                self._stray(at)
            if found.lastgroup != "space":
                yield _Token(str(found.lastgroup), found[0], at)
            at = found.end()
        yield _Token("end", "", at)

    def _stray(self, at: int) -> NoReturn:
        sign = self._text[at]
        if sign in "\"'":
            self._fail("a quote is opened and never closed", at)
        self._fail(f"unexpected {sign}{_HINTS.get(sign, '; put a value with it in quotes')}", at)

    def _check_value(self, token: _Token) -> None:
        if not token.text.isprintable():
            self._fail("a tab or the end of a line within a value", token.start)
        # In other places \n is the end of a line; here it would silently be an n.
        for found in re.finditer(r"\\(.)", token.text):
            if found[1].isalnum():
                problem = f"a backslash goes before a sign, not before {found[1]!r}"
                self._fail(problem, token.start + found.start())

    def _expected(self, wanted: str, hint: str = "") -> NoReturn:
        before = self._tokens[self._next - 1].text if self._next else ""
        after = f" after {in_brief(before)}" if before else ""
        self._fail(f"expected {wanted}{after}{hint}", self._token.start)

    def _fail(self, problem: str, at: int) -> NoReturn:
        """Refuse the expression, with the place counted from 1 and marked by a caret before it."""
        begin, end = max(0, at - 24), at + 24
        left, right = self._text[begin:at].lstrip(), self._text[at:end].rstrip()
        around = f"{'...' * (begin > 0)}{left}^{right}{'...' * (end < len(self._text))}"
        refuse(f"{problem} at position {at + 1}: {on_one_line(around)}")
