r"""Selectors: who a job is for.

Theory. A selector picks hosts by their name and labels. It arrives as JSON in one of four forms, or
in the shorthand of one, and becomes a small tree that is asked about one host (`matches`), rendered
for the database (`to_sql`), shown to people (`describe`) or written down again (`to_json`).

    "all"               {"all": true}
    ["a", "b"]          {"hostnames": ["a", "b"]}                     exact names
                        {"labels": {"role": "web", "zone": "eu"}}     exact values, all must match
    "role=web"          {"expression": "role=web and not zone=eu"}

    expression  any { "or" any }            any   term { ("and" | ",") term }
    term        "not" term | "(" expression ")" | "has" key
              | key ("=" | "==" | "!=") value | key ["not"] "in" "(" value { "," value } ")"
    key         letters, digits and _ . - /
    value       a word in which * stands for any characters and ? for one, or a text in quotes
                (and, or, not, in and has, in any case, are keys and values only in quotes)

Rule 1. The key `name` is the name of the host, in every form. A label of that name is not seen.
Rule 2. A host without the label has no value: `key=value` is false of it, and `key!=value` and
        `key not in (...)` are true. `not` is plain negation; there is no third truth value.
Rule 3. Quotes take everything literally, as in a shell: `name="web-*"` is a host with a star in its
        name. A backslash does the same for one sign: `name=web-\*`, `title=front\ door*`.
Rule 4. Nothing selects everything by accident: an empty list, mapping or expression is refused, and
        so is "," beside "or" without parentheses, which people read in two ways.
Rule 5. A selector that exists is valid, and `parse(to_json(selector)) == selector`.
Rule 6. No text of the caller's becomes SQL: it travels in parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, TypeAlias, assert_never

from onward.errors import InvalidInput

MAX_LENGTH: Final = 4_096  # of an expression, as given and as written down again
MAX_DEPTH: Final = 64  # of parentheses and "not" within each other
MAX_NAMES: Final = 10_000
NAME_MAX: Final = 255

_NAME: Final = "name"
_FORMS: Final = ("all", "hostnames", "labels", "expression")
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "has"})
_KEY = re.compile(r"[A-Za-z0-9_.\-/]+").fullmatch
# What may stand in a word as it is. Signs of other languages are left out so that `a<b` and `a&&b`
# are explained instead of being taken for words.
_PLAIN: Final = r"""[^\s()=,!<>&|"'\\]"""
_PLAIN_CHARACTER = re.compile(_PLAIN).fullmatch
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r\n]+)
       | (?P<sign>==|!=|[=(),])
       | (?P<quoted>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
       | (?P<word>(?:{_PLAIN}|\\.)+)""",
    re.VERBOSE,
)
_HINTS: Final = {
    "!": "; write 'not' or '!='",
    "&": "; write 'and'",
    "|": "; write 'or'",
    "\\": "; a backslash goes before the sign that it takes literally",
}


def _refuse(problem: str) -> NoReturn:
    raise InvalidInput("selector", problem)


class _Piece(NamedTuple):
    """A character of a pattern; a wild one is `*` or `?`."""

    character: str
    wild: bool


@dataclass(frozen=True, slots=True)
class Glob:
    r"""A pattern with at least one wildcard; `\*`, `\?` and `\\` are the signs themselves."""

    pattern: str
    pieces: tuple[_Piece, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_text("a pattern", self.pattern)
        pieces = tuple(_without_repeated_stars(_pieces(self.pattern)))
        if not any(piece.wild for piece in pieces):
            _refuse(f"the pattern {_shown(self.pattern)} has no * and no ?")
        object.__setattr__(self, "pieces", pieces)
        object.__setattr__(self, "pattern", _joined(pieces, keep=_is_plain_in_glob))


Value: TypeAlias = str | Glob  # a text stands for itself


@dataclass(frozen=True, slots=True)
class Is:
    """The value of the key is there, and is one of these."""

    key: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        _check_key(self.key)
        if not self.values:
            _refuse(f"{self.key!r} is compared with nothing")
        for value in self.values:
            if isinstance(value, str):
                _check_text(f"a value of {self.key!r}", value)
        object.__setattr__(self, "values", tuple(dict.fromkeys(self.values)))


@dataclass(frozen=True, slots=True)
class Has:
    """The host has the label, whatever its value."""

    key: str

    def __post_init__(self) -> None:
        _check_key(self.key)


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    part: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds; an `And` among them is taken apart, since brackets change nothing."""

    parts: tuple[Condition, ...]

    def __post_init__(self) -> None:
        flat = (part.parts if isinstance(part, And) else (part,) for part in self.parts)
        object.__setattr__(self, "parts", _two_or_more(flat))


@dataclass(frozen=True, slots=True)
class Or:
    """Some part holds; an `Or` among them is taken apart, since brackets change nothing."""

    parts: tuple[Condition, ...]

    def __post_init__(self) -> None:
        flat = (part.parts if isinstance(part, Or) else (part,) for part in self.parts)
        object.__setattr__(self, "parts", _two_or_more(flat))


Condition: TypeAlias = Is | Has | Not | And | Or


@dataclass(frozen=True, slots=True)
class All:
    """Every host."""


@dataclass(frozen=True, slots=True)
class Names:
    """The hosts of these names, each once, in the order in which they were first given."""

    names: tuple[str, ...]
    members: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.names:
            _refuse("the list of hostnames is empty")
        if len(self.names) > MAX_NAMES:
            _refuse(f"{len(self.names)} hostnames are more than the {MAX_NAMES} allowed")
        for position, name in enumerate(self.names, start=1):
            _check_name(position, name)
        object.__setattr__(self, "names", tuple(dict.fromkeys(self.names)))
        object.__setattr__(self, "members", frozenset(self.names))


@dataclass(frozen=True, slots=True)
class Match:
    """The hosts of which the condition holds."""

    condition: Condition
    expression: str = field(init=False, repr=False, compare=False)  # the condition, written down

    def __post_init__(self) -> None:
        expression = _written(self.condition, depth=0)
        if len(expression) > MAX_LENGTH:
            _refuse(f"written out, it is longer than the {MAX_LENGTH} characters allowed")
        object.__setattr__(self, "expression", expression)


Selector: TypeAlias = All | Names | Match
JsonSelector: TypeAlias = dict[str, bool | str | list[str]]


# What can be done with one.


def parse(value: object) -> Selector:
    """Read a selector in any of its forms, or raise `InvalidInput` that says what is wrong."""
    match value:
        case str():
            return All() if value.strip().lower() == "all" else _of_expression(value)
        case list() | tuple():
            return Names(tuple(value))
        case Mapping():
            return _of_form(value)
        case _:
            _refuse(f"expected text, a list of hostnames or an object, not {type(value).__name__}")


def matches(selector: Selector, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the host of this name and these labels is selected."""
    match selector:
        case All():
            return True
        case Names():
            return name in selector.members
        case Match():
            return _holds(selector.condition, name, labels)
    assert_never(selector)


def to_json(selector: Selector) -> JsonSelector:
    """Write a selector in its canonical form, which `parse` reads back as an equal one."""
    match selector:
        case All():
            return {"all": True}
        case Names():
            return {"hostnames": list(selector.names)}
        case Match():
            return {"expression": selector.expression}
    assert_never(selector)


def describe(selector: Selector, *, names_shown: int = 3) -> str:
    """Say in a few words who is selected, for a person to read."""
    match selector:
        case All():
            return "all hosts"
        case Names(names):
            shown, left = ", ".join(names[:names_shown]), len(names) - names_shown
            hosts = "1 host" if len(names) == 1 else f"{len(names):,} hosts"
            return f"{hosts}: {shown}" + (f" and {left:,} more" if left > 0 else "")
        case Match():
            return f"hosts where {selector.expression}"
    assert_never(selector)


def to_sql(selector: Selector, *, first: int = 1) -> tuple[str, list[object]]:
    """Render a condition over `h.name text` and `h.labels jsonb`, and its parameters from `$first`.

    Neither column may be NULL, and `h.labels` is an object of texts. The condition is never NULL,
    so it can be negated. Equality of labels is containment, which GIN (jsonb_path_ops) serves.
    """
    parameters: list[object] = []

    def parameter(value: object) -> str:
        parameters.append(value)
        return f"${first + len(parameters) - 1}"

    match selector:
        case All():
            return "TRUE", parameters
        case Names(names):
            return f"h.name = ANY ({parameter(list(names))}::text[])", parameters
        case Match(condition):
            return _sql(condition, parameter), parameters
    assert_never(selector)


# The forms.


def _of_form(value: Mapping[object, object]) -> Selector:
    if len(value) != 1 or not set(value) <= set(_FORMS):
        given = ", ".join(_shown(key) for key in list(value)[:5]) or "nothing"
        _refuse(f"expected exactly one of {', '.join(_FORMS)}, not {given}")
    [(form, content)] = value.items()
    match form, content:
        case "all", True:
            return All()
        case "all", _:
            _refuse("all can only be true; leave it out to select by something else")
        case "hostnames", list() | tuple():
            return Names(tuple(content))
        case "labels", Mapping():
            return _of_labels(content)
        case "expression", str():
            return _of_expression(content)
        case _:
            wanted = {"hostnames": "a list", "labels": "an object", "expression": "text"}[str(form)]
            _refuse(f"{form} must be {wanted}, not {type(content).__name__}")


def _of_labels(labels: Mapping[object, object]) -> Match:
    if not labels:
        _refuse("labels is empty; to select every host, write all")
    # Each takes some characters to write down, so that this many cannot be short enough.
    if len(labels) > MAX_LENGTH:
        _refuse(f"{len(labels)} labels are more than can be written in {MAX_LENGTH} characters")
    parts = tuple(_of_label(key, value) for key, value in labels.items())
    return Match(parts[0] if len(parts) == 1 else And(parts))


def _of_label(key: object, value: object) -> Is:
    checked = _check_key(key)
    if not isinstance(value, str):
        _refuse(f"the value of the label {checked!r} must be text, not {type(value).__name__}")
    return Is(checked, (value,))


def _of_expression(text: str) -> Match:
    if not text.strip():
        _refuse("the expression is empty; to select every host, write all")
    if len(text) > MAX_LENGTH:
        _refuse(f"{len(text)} characters are more than the {MAX_LENGTH} allowed")
    for position, character in enumerate(text, start=1):
        if not character.isprintable() and character not in "\t\r\n":
            _refuse(f"has the character {character!a} at position {position}")
    return Match(_Parser(text).read())


# The expression.


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
        pieces = tuple(_pieces(token.text[1:-1] if quoted else token.text))
        if quoted or not any(piece.wild for piece in pieces):
            return "".join(piece.character for piece in pieces)
        return Glob(_joined(pieces, keep=_is_plain_in_glob))

    def _key(self, wanted: str) -> str:
        token = self._token
        self._take_word_or_quoted(wanted)
        key = token.text[1:-1] if token.kind == "quoted" else token.text
        if not _KEY(key):
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
        if self._token.is_word(*_KEYWORDS):
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
        after = f" after {_shown(before)}" if before else ""
        self._fail(f"expected {wanted}{after}{hint}", self._token.start)

    def _fail(self, problem: str, at: int) -> NoReturn:
        """Refuse the expression, with the place counted from 1 and marked by a caret before it."""
        begin, end = max(0, at - 24), at + 24
        left, right = self._text[begin:at].lstrip(), self._text[at:end].rstrip()
        around = f"{'...' * (begin > 0)}{left}^{right}{'...' * (end < len(self._text))}"
        _refuse(f"{problem} at position {at + 1}: {_on_one_line(around)}")


# A condition, written down, asked and rendered.


def _written(condition: Condition, depth: int) -> str:
    if depth > MAX_DEPTH:
        _refuse(f"nested deeper than {MAX_DEPTH} levels")
    match condition:
        case Is():
            return _written_is(condition, negated=False)
        case Has(key):
            return f"has {_written_key(key)}"
        case Not(part):
            if isinstance(part, Is):
                return _written_is(part, negated=True)
            return f"not {_written_within(part, (And, Or), depth + 1)}"
        case And(parts):
            return " and ".join(_written_within(part, (Or,), depth) for part in parts)
        case Or(parts):
            return " or ".join(_written(part, depth) for part in parts)
    assert_never(condition)


def _written_within(part: Condition, weaker: tuple[type[Condition], ...], depth: int) -> str:
    """Write a part, in parentheses if what it is part of would otherwise tear it apart."""
    return f"({_written(part, depth + 1)})" if isinstance(part, weaker) else _written(part, depth)


def _written_is(condition: Is, *, negated: bool) -> str:
    key = _written_key(condition.key)
    values = [_written_value(value) for value in condition.values]
    if len(values) == 1:
        return f"{key}{'!=' if negated else '='}{values[0]}"
    return f"{key} {'not in' if negated else 'in'} ({', '.join(values)})"


def _written_key(key: str) -> str:
    return f'"{key}"' if key.lower() in _KEYWORDS else key


def _written_value(value: Value) -> str:
    if isinstance(value, Glob):
        return _joined(value.pieces, keep=_is_plain_in_word)
    if value and value.lower() not in _KEYWORDS and all(map(_is_plain_in_word, value)):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def _holds(condition: Condition, name: str, labels: Mapping[str, str]) -> bool:
    match condition:
        case Is(key, values):
            found = name if key == _NAME else labels.get(key)
            return found is not None and any(_fits(found, value) for value in values)
        case Has(key):
            return key == _NAME or key in labels
        case Not(part):
            return not _holds(part, name, labels)
        case And(parts):
            return all(_holds(part, name, labels) for part in parts)
        case Or(parts):
            return any(_holds(part, name, labels) for part in parts)
    assert_never(condition)


def _fits(text: str, value: Value) -> bool:
    """Whether the text is the value or fits the pattern, in at most text × pattern steps.

    Only the last star is ever widened: whatever an earlier one could take, the last can take too.
    A regular expression would try them all, and a pattern of many stars would not end.
    """
    if isinstance(value, str):
        return text == value
    pieces, at, piece = value.pieces, 0, 0
    star, resume = -1, 0  # the last star, and where the text goes on if it takes one more
    while at < len(text):
        if piece < len(pieces) and pieces[piece] == _STAR:
            star, resume, piece = piece, at, piece + 1
        elif piece < len(pieces) and pieces[piece] in (_ANY_ONE, (text[at], False)):
            at, piece = at + 1, piece + 1
        elif star >= 0:
            resume += 1
            at, piece = resume, star + 1
        else:
            return False
    return all(left == _STAR for left in pieces[piece:])


def _sql(condition: Condition, parameter: Callable[[object], str]) -> str:
    match condition:
        case Is(key, values) if key == _NAME:
            return _either(_sql_name(values, parameter))
        case Is(key, values):
            return _either(_sql_label(key, value, parameter) for value in values)
        case Has(key):
            # A host always has a name.
            return "TRUE" if key == _NAME else f"(h.labels ->> {parameter(key)}::text) IS NOT NULL"
        case Not(part):
            return f"NOT ({_sql(part, parameter)})"
        case And(parts):
            return f"({' AND '.join(_sql(part, parameter) for part in parts)})"
        case Or(parts):
            return _either(_sql(part, parameter) for part in parts)
    assert_never(condition)


def _sql_name(values: Sequence[Value], parameter: Callable[[object], str]) -> Iterator[str]:
    if texts := [value for value in values if isinstance(value, str)]:
        yield f"h.name = ANY ({parameter(texts)}::text[])"
    for value in values:
        if isinstance(value, Glob):
            yield f"h.name LIKE {parameter(_like(value))}::text"


def _sql_label(key: str, value: Value, parameter: Callable[[object], str]) -> str:
    if isinstance(value, str):
        # Through text, so that it means the same whatever codec the connection has for jsonb.
        # One containment a value: GIN does not serve `@> ANY (...)`, but joins these by bitmap.
        contained = json.dumps({key: value}, ensure_ascii=False)
        return f"h.labels @> {parameter(contained)}::text::jsonb"
    # Without the label this would be NULL, and so would be its negation, which must be true.
    like = f"(h.labels ->> {parameter(key)}::text) LIKE {parameter(_like(value))}::text"
    return f"coalesce({like}, FALSE)"


def _like(glob: Glob) -> str:
    wildcards = {"*": "%", "?": "_"}
    return "".join(
        wildcards[character] if wild else re.sub(r"[%_\\]", r"\\\g<0>", character)
        for character, wild in glob.pieces
    )


def _either(conditions: Iterable[str]) -> str:
    rendered = list(conditions)
    return rendered[0] if len(rendered) == 1 else f"({' OR '.join(rendered)})"


# Patterns, checks and messages.

_STAR: Final = _Piece("*", wild=True)
_ANY_ONE: Final = _Piece("?", wild=True)


def _pieces(pattern: str) -> Iterator[_Piece]:
    for found in re.finditer(r"\\(.)|(.)", pattern, re.DOTALL):
        escaped, plain = found.groups()
        yield _Piece(escaped or plain, wild=escaped is None and plain in "*?")


def _without_repeated_stars(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    last = None
    for piece in pieces:
        if not piece == last == _STAR:
            yield piece
        last = piece


def _joined(pieces: Iterable[_Piece], *, keep: Callable[[str], bool]) -> str:
    """Write a pattern; a literal character that `keep` does not keep gets a backslash."""
    return "".join(
        character if wild or keep(character) else f"\\{character}" for character, wild in pieces
    )


def _is_plain_in_glob(character: str) -> bool:
    return character not in "*?\\"


def _is_plain_in_word(character: str) -> bool:
    return _is_plain_in_glob(character) and _PLAIN_CHARACTER(character) is not None


def _two_or_more(parts: Iterable[tuple[Condition, ...]]) -> tuple[Condition, ...]:
    flat = tuple(part for nested in parts for part in nested)
    if len(flat) < 2:  # noqa: PLR2004 - as the name says
        _refuse("'and' and 'or' join at least two conditions")
    return flat


def _check_key(key: object) -> str:
    if not isinstance(key, str) or not _KEY(key):
        _refuse(f"{_shown(key)} is not a key; a key has only letters, digits and _ . - /")
    return key


def _check_name(position: int, name: object) -> None:
    if not isinstance(name, str):
        _refuse(f"hostname {position} must be text, not {type(name).__name__}")
    if not name or len(name) > NAME_MAX:
        _refuse(f"hostname {position} has {len(name)} characters, and not 1 to {NAME_MAX}")
    _check_text(f"hostname {position}", name)


def _check_text(what: str, value: str) -> None:
    if not value.isprintable():
        hidden = next(character for character in value if not character.isprintable())
        _refuse(f"{what} has the character {hidden!a}, which cannot be seen")


def _shown(value: object) -> str:
    shown = f"'{_on_one_line(value)}'" if isinstance(value, str) else ascii(type(value).__name__)
    return shown if len(shown) <= 40 else f"{shown[:36]}...'"  # noqa: PLR2004 - a part of a line


def _on_one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
