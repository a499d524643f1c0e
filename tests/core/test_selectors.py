r"""Who a job is for: how it is read, whom it takes, and how it is written down again.

`matches` is judged by a second evaluator that shares no idea with it: it works on whole sets of
hosts, where `not` is the rest of the fleet, and reads patterns by their definition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import assert_never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.selectors import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_NAMES,
    All,
    And,
    Condition,
    Glob,
    Has,
    Is,
    Match,
    Names,
    Not,
    Or,
    Selector,
    Value,
    describe,
    matches,
    parse,
    to_json,
    to_sql,
)
from onward.errors import InvalidInput

FLEET: Mapping[str, Mapping[str, str]] = {
    "web-1": {"role": "web", "zone": "eu"},
    "web-2": {"role": "web", "zone": "us"},
    "db-1": {"role": "db", "zone": "eu", "tier/1.x_y-z": "gold"},
    "bare*": {},
}


def chosen(selector: object) -> set[str]:
    """The hosts of the fleet that a selector takes."""
    parsed = parse(selector)
    return {name for name, labels in FLEET.items() if matches(parsed, name, labels)}


# Reading.


@pytest.mark.parametrize(
    ("selector", "hosts"),
    [
        ("all", "web-1 web-2 db-1 bare*"),
        ("  ALL\n", "web-1 web-2 db-1 bare*"),
        ({"all": True}, "web-1 web-2 db-1 bare*"),
        (["web-1", "db-1", "web-1", "unknown"], "web-1 db-1"),
        ({"hostnames": ["web-*", "bare*"]}, "bare*"),
        ({"labels": {"role": "web"}}, "web-1 web-2"),
        ({"labels": {"role": "web", "zone": "eu"}}, "web-1"),
        ({"labels": {"role": "w*"}}, ""),
        ({"labels": {"name": "web-1"}}, "web-1"),
        ({"expression": "role=web and not zone=eu"}, "web-2"),
        ("role=web", "web-1 web-2"),
        ("role==web", "web-1 web-2"),
        ("role = web", "web-1 web-2"),
        ("Role=web", ""),
        ("role=WEB", ""),
        ("role!=web", "db-1 bare*"),
        ("not role=web", "db-1 bare*"),
        ("role in (web, db)", "web-1 web-2 db-1"),
        ("role in(web)", "web-1 web-2"),
        ("role not in (web)", "db-1 bare*"),
        ("role NOT IN (web, db)", "bare*"),
        ("has role", "web-1 web-2 db-1"),
        ("not has role", "bare*"),
        ("has name", "web-1 web-2 db-1 bare*"),
        ("has tier/1.x_y-z", "db-1"),
        ("tier/1.x_y-z=gold", "db-1"),
        ("zone=eu,role!=db", "web-1"),
        ("zone=eu, role=db, name=*", "db-1"),
        ("zone=eu AND role=db Or name=bare*", "db-1 bare*"),
        ("name=bare* or zone=eu and role=db", "db-1 bare*"),
        ("(name=bare* or zone=eu) and role!=db", "web-1 bare*"),
        ("(zone=eu, role=db) or zone=us", "db-1 web-2"),
        ("not (zone=eu or zone=us)", "bare*"),
        ("not zone=eu and role=web", "web-2"),
        ("not not role=db", "db-1"),
        ("((role=db))", "db-1"),
        ("name=web-1", "web-1"),
        ("name=web-*", "web-1 web-2"),
        ("name=???-1", "web-1"),
        ("name=*-1", "web-1 db-1"),
        ("name=*e*-?", "web-1 web-2"),
        ("name in (db-?, *2)", "db-1 web-2"),
        ("name!=web-*", "db-1 bare*"),
        ("name not in (w*, d*)", "bare*"),
        ("zone=?u", "web-1 db-1"),
        ("zone=*", "web-1 web-2 db-1"),
        ("zone!=*", "bare*"),
        ("role=?", ""),
        ('name="bare*"', "bare*"),
        ("name='web-*'", ""),
        (r"name=bare\*", "bare*"),
        (r"name=ba?e\*", "bare*"),
        ("\trole=web\r\n and\n zone=eu\n", "web-1"),
        ('"role"=web', "web-1 web-2"),
    ],
)
def test_a_selector_takes_these_hosts(selector, hosts):
    assert chosen(selector) == set(hosts.split())


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a=b", Is("a", ("b",))),
        ("a!=b", Not(Is("a", ("b",)))),
        ("a in (b)", Is("a", ("b",))),
        ("a in (b, c, b)", Is("a", ("b", "c"))),
        ("a=b*", Is("a", (Glob("b*"),))),
        ("a=b***", Is("a", (Glob("b*"),))),
        (r"a=\*b\?", Is("a", ("*b?",))),
        (r"a=\*b?", Is("a", (Glob(r"\*b?"),))),
        (r"a=front\ door*", Is("a", (Glob("front door*"),))),
        ('a="say \\"hi\\" \\\\ it\'s"', Is("a", ('say "hi" \\ it\'s',))),
        ("a='it\\'s \"x\"'", Is("a", ('it\'s "x"',))),
        ('a=""', Is("a", ("",))),
        ('a="and"', Is("a", ("and",))),
        ('"and"="OR"', Is("and", ("OR",))),
        ("a=10.0.0.0/8:x@y#1;ж", Is("a", ("10.0.0.0/8:x@y#1;ж",))),
        ("a=b and (c=d and e=f)", And((Is("a", ("b",)), Is("c", ("d",)), Is("e", ("f",))))),
        ("a=b or (c=d or e=f)", Or((Is("a", ("b",)), Is("c", ("d",)), Is("e", ("f",))))),
        ("a=b or has c and not d=e", Or((Is("a", ("b",)), And((Has("c"), Not(Is("d", ("e",)))))))),
        ("not a=b and has c", And((Not(Is("a", ("b",))), Has("c")))),
        ("android=b", Is("android", ("b",))),
        ("notes in (innings)", Is("notes", ("innings",))),
    ],
)
def test_an_expression_becomes_this_tree(text, condition):
    assert parse(text) == Match(condition)


def test_a_missing_label_makes_equality_false_and_its_opposite_true():
    for text in ("zone=eu", "zone in (eu, us)", "zone=*", "has zone"):
        assert not matches(parse(text), "bare", {})
        assert matches(parse(f"not {text}"), "bare", {})
    assert matches(parse("zone!=eu"), "bare", {})
    assert matches(parse("zone not in (eu, us)"), "bare", {})


def test_a_label_called_name_is_not_seen():
    assert matches(parse("name=a"), "a", {"name": "b"})
    assert not matches(parse("name=b"), "a", {"name": "b"})


def test_names_are_folded_and_keep_the_order_in_which_they_came():
    assert parse(["b", "a", "b", "c", "a"]) == Names(("b", "a", "c"))


def test_a_pattern_of_many_stars_is_answered_without_trying_every_way():
    """With a search that goes back for every star, this would outlast the universe."""
    pattern = "name=" + "*a" * 100 + "b"
    assert not matches(parse(pattern), "a" * 255, {})
    assert matches(parse(pattern), "a" * 254 + "b", {})


# Writing.


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("all", {"all": True}),
        (["b", "a"], {"hostnames": ["b", "a"]}),
        ({"labels": {"b": "x", "a": "y*"}}, {"expression": 'b=x and a="y*"'}),
        ("a=b,c!=d", {"expression": "a=b and c!=d"}),
        ("NOT (a=b)", {"expression": "a!=b"}),
        ("a NOT IN ('b', c*)", {"expression": "a not in (b, c*)"}),
        ("(a=b and c=d) or e=f", {"expression": "a=b and c=d or e=f"}),
        ("a=b and (c=d or has e)", {"expression": "a=b and (c=d or has e)"}),
        ("not (a=b, c=d)", {"expression": "not (a=b and c=d)"}),
        ("a='b c'", {"expression": 'a="b c"'}),
        ('has "in"', {"expression": 'has "in"'}),
        ('a="Or"', {"expression": 'a="Or"'}),
    ],
)
def test_the_canonical_form(given, written):
    assert to_json(parse(given)) == written
    assert parse(written) == parse(given)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("all", "all hosts"),
        (["a"], "1 host: a"),
        (["a", "b", "c"], "3 hosts: a, b, c"),
        ([f"h{number}" for number in range(1_200)], "1,200 hosts: h0, h1, h2 and 1,197 more"),
        ("role=web,zone!=eu", "hosts where role=web and zone!=eu"),
    ],
)
def test_a_selector_is_described_for_people(selector, text):
    assert describe(parse(selector)) == text


# Trees at random. The alphabet is small, so that values meet, and holds every sign that means
# something to the expression, to JSON, to LIKE or to SQL.

ALPHABET = "ab*?\\%_\"' ,()=!;$é"
KEYS = ("name", "a", "role", "in", "Not", "x/y.z-1_")
texts = st.text(ALPHABET, max_size=4) | st.sampled_from(("and", "In", "a", "b"))
globs = st.builds(
    lambda before, wild, after: Glob(before + wild + after),
    st.text("ab*?%_ \"'(,é", max_size=3),
    st.sampled_from("*?"),
    st.lists(st.sampled_from((*"ab*?%_ ", "\\*", "\\?", "\\\\")), max_size=3).map("".join),
)
values = texts | globs
leaves = st.builds(
    Is, st.sampled_from(KEYS), st.lists(values, min_size=1, max_size=3).map(tuple)
) | st.builds(Has, st.sampled_from(KEYS))
conditions: st.SearchStrategy[Condition] = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=8,
)
host_names = st.text(ALPHABET, min_size=1, max_size=4)
selectors: st.SearchStrategy[Selector] = (
    st.builds(Match, conditions)
    | st.just(All())
    | st.lists(host_names, min_size=1, max_size=4).map(tuple).map(Names)
)
fleets = st.dictionaries(
    host_names,
    st.dictionaries(st.sampled_from(KEYS[1:]), st.text(ALPHABET, max_size=4), max_size=4),
    min_size=1,
    max_size=6,
)


@given(selectors)
def test_what_is_written_is_read_back_as_the_same(selector):
    assert parse(to_json(selector)) == selector
    assert to_json(parse(to_json(selector))) == to_json(selector)


@given(conditions, st.data())
def test_every_spelling_of_a_condition_is_read_as_that_condition(condition, data):
    text = spelled(condition, data)
    if len(text) <= MAX_LENGTH:
        assert parse(text) == Match(condition), text


@given(selectors, fleets)
@settings(max_examples=300)
def test_matches_agrees_with_an_evaluator_of_whole_fleets(selector, fleet):
    found = {name for name, labels in fleet.items() if matches(selector, name, labels)}
    assert found == taken(selector, fleet)


@given(selectors)
def test_no_text_of_the_callers_is_in_the_sql(selector):
    sql, parameters = to_sql(selector, first=7)
    assert re.fullmatch(
        r"(?:h\.name|h\.labels|\$\d+::text(?:::jsonb|\[\])?|coalesce|LIKE|IS NOT NULL|ANY|NOT|AND"
        r"|OR|TRUE|FALSE|@>|->>|=|,|[() ])*",
        sql,
    )
    numbers = [int(number) for number in re.findall(r"\$(\d+)", sql)]
    assert numbers == list(range(7, 7 + len(parameters)))


@given(st.text(st.sampled_from("ab=!(),*?\\\"' \n\t\x00\ud800<&") | st.characters(), max_size=30))
@settings(max_examples=500)
def test_any_text_is_either_a_selector_or_refused_in_one_line(text):
    check_answer(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("all", "hostnames", "labels", "expression", "a", "é")), inner
        )
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_json_is_either_a_selector_or_refused_in_one_line(value):
    check_answer(value)


def check_answer(value: object) -> None:
    try:
        selector = parse(value)
    except InvalidInput as refused:
        problem = str(refused)
    else:
        assert parse(to_json(selector)) == selector
        return
    assert problem.startswith("selector: ")
    assert problem.isprintable()


# Refusing.


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the expression is empty; to select every host, write all"),
        (" \n ", "the expression is empty; to select every host, write all"),
        ("role=web, zone=", "expected a value after '=' at position 16: role=web, zone=^"),
        ("role=)", "expected a value after '=' at position 6: role=^)"),
        (
            "role= and a=b",
            (
                "expected a value after '=' (write 'and' in quotes to make it one) "
                "at position 7: role= ^and a=b"
            ),
        ),
        ("role", "expected '=', '!=', 'in' or 'not in' after 'role' at position 5: role^"),
        ("a=b c=d", "expected 'and', 'or' or the end after 'b' at position 5: a=b ^c=d"),
        ("a=b)", "expected 'and', 'or' or the end after 'b' at position 4: a=b^)"),
        ("(a=b", "expected ')' after 'b' at position 5: (a=b^"),
        ("()", "expected a condition after '(' at position 2: (^)"),
        ("=a", "expected a condition at position 1: ^=a"),
        ("a=b and", "expected a condition after 'and' at position 8: a=b and^"),
        ("a=b,", "expected a condition after ',' at position 5: a=b,^"),
        (
            "a=b or or c=d",
            (
                "expected a condition after 'or' (write 'or' in quotes to make it one) "
                "at position 8: a=b or ^or c=d"
            ),
        ),
        ("not", "expected a condition after 'not' at position 4: not^"),
        ("has", "expected a key after 'has' at position 4: has^"),
        ("a in b", "expected '(' after 'in' at position 6: a in ^b"),
        ("a in ()", "expected a value after '(' at position 7: a in (^)"),
        ("a in (b,)", "expected a value after ',' at position 9: a in (b,^)"),
        ("a in (b", "expected ')' after 'b' at position 8: a in (b^"),
        ("a not b", "expected 'in' after 'not' at position 7: a not ^b"),
        ("é=a", "a key has only letters, digits and _ . - / at position 1: ^é=a"),
        ("a*=a", "a key has only letters, digits and _ . - / at position 1: ^a*=a"),
        ('""=a', 'a key has only letters, digits and _ . - / at position 1: ^""=a'),
        ('a="b', 'a quote is opened and never closed at position 3: a=^"b'),
        ("a='b\\'", "a quote is opened and never closed at position 3: a=^'b\\'"),
        ("a&&b", "unexpected &; write 'and' at position 2: a^&&b"),
        ("a=b||c=d", "unexpected |; write 'or' at position 4: a=b^||c=d"),
        ("!a", "unexpected !; write 'not' or '!=' at position 1: ^!a"),
        ("a<3", "unexpected <; put a value with it in quotes at position 2: a^<3"),
        (
            "a=b\\",
            (
                "unexpected \\; a backslash goes before the sign that it takes literally "
                "at position 4: a=b^\\"
            ),
        ),
        ("a=C:\\new", "a backslash goes before a sign, not before 'n' at position 5: a=C:^\\new"),
        ('a="\\t"', "a backslash goes before a sign, not before 't' at position 4: a=\"^\\t\""),
        ('a="b\nc"', 'a tab or the end of a line within a value at position 3: a=^"b c"'),
        ("a=b\\\tc*", "a tab or the end of a line within a value at position 3: a=^b\\ c*"),
        (
            "a=b or c=d, e=f",
            (
                "',' beside 'or' can be read in two ways; use parentheses or 'and' "
                "at position 11: a=b or c=d^, e=f"
            ),
        ),
        (
            "a=b, c=d or e=f",
            (
                "',' beside 'or' can be read in two ways; use parentheses or 'and' "
                "at position 4: a=b^, c=d or e=f"
            ),
        ),
        ("a=b\x00", "has the character '\\x00' at position 4"),
        ("a=\ud800", "has the character '\\ud800' at position 3"),
        ("a=b\u202e", "has the character '\\u202e' at position 4"),
        (
            "first=" + "x" * 40 + " oops " + "y" * 40,
            (
                "expected 'and', 'or' or the end after 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' "
                "at position 48: ...xxxxxxxxxxxxxxxxxxxxxxx ^oops yyyyyyyyyyyyyyyyyyy..."
            ),
        ),
    ],
)
def test_a_bad_expression_is_refused_with_its_place(text, problem):
    for value in (text, {"expression": text}):
        with pytest.raises(InvalidInput) as refused:
            parse(value)
        assert refused.value.field == "selector"
        assert refused.value.problem == problem


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "expected text, a list of hostnames or an object, not NoneType"),
        (True, "expected text, a list of hostnames or an object, not bool"),
        (b"all", "expected text, a list of hostnames or an object, not bytes"),
        ({}, "expected exactly one of all, hostnames, labels, expression, not nothing"),
        ({"hosts": []}, "expected exactly one of all, hostnames, labels, expression, not 'hosts'"),
        (
            {"all": True, "labels": {"a": "b"}},
            "expected exactly one of all, hostnames, labels, expression, not 'all', 'labels'",
        ),
        ({"all": False}, "all can only be true; leave it out to select by something else"),
        ({"all": 1}, "all can only be true; leave it out to select by something else"),
        ({"hostnames": "web"}, "hostnames must be a list, not str"),
        ({"labels": ["a"]}, "labels must be an object, not list"),
        ({"expression": None}, "expression must be text, not NoneType"),
        ([], "the list of hostnames is empty"),
        ({"hostnames": []}, "the list of hostnames is empty"),
        (["a", ""], "hostname 2 has 0 characters, and not 1 to 255"),
        (["a" * 256], "hostname 1 has 256 characters, and not 1 to 255"),
        (["a", 1], "hostname 2 must be text, not int"),
        (["a\x00"], "hostname 1 has the character '\\x00', which cannot be seen"),
        (["a\n"], "hostname 1 has the character '\\n', which cannot be seen"),
        (["\udcff"], "hostname 1 has the character '\\udcff', which cannot be seen"),
        (["a"] * (MAX_NAMES + 1), "10001 hostnames are more than the 10000 allowed"),
        ({"labels": {}}, "labels is empty; to select every host, write all"),
        ({"labels": {"a": 1}}, "the value of the label 'a' must be text, not int"),
        ({"labels": {"a": None}}, "the value of the label 'a' must be text, not NoneType"),
        (
            {"labels": {"a b": "c"}},
            "'a b' is not a key; a key has only letters, digits and _ . - /",
        ),
        ({"labels": {"": "c"}}, "'' is not a key; a key has only letters, digits and _ . - /"),
        (
            {"labels": {"a": "b\x7f"}},
            "a value of 'a' has the character '\\x7f', which cannot be seen",
        ),
        (
            {"labels": {"a": "b" * MAX_LENGTH}},
            "written out, it is longer than the 4096 characters allowed",
        ),
    ],
)
def test_a_bad_form_is_refused_in_words(value, problem):
    with pytest.raises(InvalidInput) as refused:
        parse(value)
    assert refused.value.field == "selector"
    assert refused.value.problem == problem


def test_everything_is_accepted_up_to_its_limit():
    long = "b" * (MAX_LENGTH - 2)
    names = tuple(f"h{number}" for number in range(MAX_NAMES))
    assert parse(f"a={long}") == Match(Is("a", (long,)))
    assert parse("(" * MAX_DEPTH + "a=b" + ")" * MAX_DEPTH) == parse("a=b")
    assert parse("not " * MAX_DEPTH + "has a") == Match(deep(MAX_DEPTH))
    assert parse(names) == Names(names)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a=" + "b" * (MAX_LENGTH - 1), "4097 characters are more than the 4096 allowed"),
        ("(" * 65 + "a=b" + ")" * 65, "nested deeper than 64 levels at position 65"),
        ("not " * 65 + "has b", "nested deeper than 64 levels at position 257"),
        ("(" * 4_096, "nested deeper than 64 levels at position 65"),
        # Short as given, but no longer so with "and" for each comma: it could not be stored.
        (",".join(["a=b"] * 1_000), "written out, it is longer than the 4096 characters allowed"),
    ],
)
def test_what_exceeds_a_limit_is_refused(text, problem):
    with pytest.raises(InvalidInput, match=re.escape(problem)):
        parse(text)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Glob("no wildcard"),
        lambda: Glob(r"only \* escaped"),
        lambda: Glob("*\x00"),
        lambda: Is("a", ()),
        lambda: Is("", ("b",)),
        lambda: Is("a", ("\x00",)),
        lambda: Has("a b"),
        lambda: And((Has("a"),)),
        lambda: Or(()),
        lambda: Names(()),
        lambda: Match(deep(MAX_DEPTH + 1)),
        lambda: Match(Is("a", ("b" * MAX_LENGTH,))),
    ],
)
def test_a_tree_that_could_not_be_written_down_cannot_be_made(build):
    with pytest.raises(InvalidInput):
        build()


def test_the_deepest_tree_that_can_be_made_is_read_back():
    selector = Match(deep(MAX_DEPTH))
    assert parse(to_json(selector)) == selector


def deep(levels: int) -> Condition:
    """A tree whose expression has this many levels of `not`."""
    condition: Condition = Has("a")
    for _ in range(levels):
        condition = Not(condition)
    return condition


# The second opinion.


def taken(selector: Selector, fleet: Mapping[str, Mapping[str, str]]) -> set[str]:
    """The hosts that a selector takes, by the algebra of sets."""
    match selector:
        case All():
            return set(fleet)
        case Names(names):
            return set(fleet) & set(names)
        case Match(condition):
            return holding(condition, fleet)
    assert_never(selector)


def holding(condition: Condition, fleet: Mapping[str, Mapping[str, str]]) -> set[str]:
    match condition:
        case Has(key):
            return {host for host, labels in fleet.items() if key in {"name", *labels}}
        case Is(key, wanted):
            seen = {host: {**labels, "name": host}.get(key) for host, labels in fleet.items()}
            return {
                host
                for (host, found), value in product(seen.items(), wanted)
                if found is not None and is_like(found, value)
            }
        case Not(part):
            return set(fleet) - holding(part, fleet)
        case And(parts):
            return set.intersection(*(holding(part, fleet) for part in parts))
        case Or(parts):
            return set.union(*(holding(part, fleet) for part in parts))
    assert_never(condition)


def is_like(text: str, value: Value) -> bool:
    return text == value if isinstance(value, str) else fits(text, value.pattern)


def fits(text: str, pattern: str) -> bool:
    """The definition of a pattern, one sign at a time."""
    if not pattern:
        return not text
    sign, rest = pattern[0], pattern[1:]
    if sign == "*":
        return any(fits(text[taken_by_star:], rest) for taken_by_star in range(len(text) + 1))
    if sign == "?":
        return bool(text) and fits(text[1:], rest)
    if sign == "\\":
        sign, rest = rest[0], rest[1:]
    return text[:1] == sign and fits(text[1:], rest)


# Other ways to write the same.


def spelled(condition: Condition, data: st.DataObject) -> str:
    """The condition as somebody else would type it: other case, quotes, spaces and brackets."""
    text = _spelled(condition, data)
    return f"({text})" if data.draw(st.booleans()) else f"{space(data, least=0)}{text}"


def _spelled(condition: Condition, data: st.DataObject) -> str:
    match condition:
        case Has(key):
            return word("has", data) + spelled_key(key, data)
        case Is():
            return spelled_is(condition, data, negated=False)
        case Not(Is() as part) if data.draw(st.booleans()):
            return spelled_is(part, data, negated=True)
        case Not(part):
            return f"{word('not', data)}({spelled(part, data)})"
        case And(parts):
            joints = [" , ", ",", " " + word("and", data)]
            return data.draw(st.sampled_from(joints)).join(
                f"({spelled(part, data)})" if isinstance(part, Or) else spelled(part, data)
                for part in parts
            )
        case Or(parts):
            return f" {word('or', data)}".join(
                f"({spelled(part, data)})" if isinstance(part, And) else spelled(part, data)
                for part in parts
            )
    assert_never(condition)


def spelled_is(condition: Is, data: st.DataObject, *, negated: bool) -> str:
    key = spelled_key(condition.key, data)
    found = [spelled_value(value, data) for value in condition.values]
    if len(found) == 1 and data.draw(st.booleans()):
        sign = "!=" if negated else data.draw(st.sampled_from(("=", "==", " = ")))
        return f"{key}{sign}{found[0]}"
    not_in = word("not", data) + word("in", data) if negated else word("in", data)
    return f"{key} {not_in}({', '.join(found)} )"


def spelled_key(key: str, data: st.DataObject) -> str:
    bare = [key] if key.lower() not in {"and", "or", "not", "in", "has"} else []
    return data.draw(st.sampled_from([*bare, f'"{key}"', f"'{key}'"]))


def spelled_value(value: Value, data: st.DataObject) -> str:
    if isinstance(value, Glob):
        return re.sub(
            r"""(\\.)|([ ()=,!"'])""", lambda sign: sign[1] or f"\\{sign[2]}", value.pattern
        )
    quote = data.draw(st.sampled_from("\"'"))
    escaped = value.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    bare = "".join(sign if sign.isalnum() else f"\\{sign}" for sign in value)
    ways = [f"{quote}{escaped}{quote}"]
    if value and value.lower() not in {"and", "or", "not", "in", "has"}:
        ways.append(bare)
    return data.draw(st.sampled_from(ways))


def word(text: str, data: st.DataObject) -> str:
    return data.draw(st.sampled_from((text, text.upper(), text.title()))) + space(data, least=1)


def space(data: st.DataObject, *, least: int) -> str:
    return data.draw(st.text(" \t\n\r", min_size=least, max_size=2))
