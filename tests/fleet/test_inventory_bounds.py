"""However an inventory is made, reading it ends, stays within its bounds, and raises nothing."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onward.fleet import inventory
from onward.fleet.inventory import (
    MAX_BYTES,
    MAX_HOSTS,
    MAX_LABEL_CHARACTERS,
    MAX_MISTAKES,
    MISTAKES_SHOWN,
    Form,
)
from tests.fleet.inventories import hosts, the_mistake
from tests.fleet.test_inventory import TWO
from tests.fleet.test_inventory_ansible import INI, YAML
from tests.proof_table import Tried

FORMS: tuple[Form, ...] = get_args(Form)


def many(form: Form, count: int) -> str:
    """An inventory of so many hosts, each on a line of its own."""
    match form:
        case "csv":
            return "name\n" + "".join(f"h{n}\n" for n in range(count))
        case "json":
            return json.dumps([{"name": f"h{n}"} for n in range(count)], indent=0)
        case "ini":
            return "".join(f"h{n}\n" for n in range(count))
        case "yaml":
            return "all:\n hosts:\n" + "".join(f"  h{n}:\n" for n in range(count))
        case "ssh_config":
            return "".join(f"Host h{n}\n" for n in range(count))


@pytest.mark.parametrize("form", FORMS)
def test_as_many_hosts_as_there_may_be_are_read_and_one_more_is_refused(
    form: Form, tried: Tried, monkeypatch: pytest.MonkeyPatch, *, proof: bool
):
    if not proof:
        monkeypatch.setattr(inventory.gathering, "MAX_HOSTS", 2_000)
    count = inventory.gathering.MAX_HOSTS
    assert len(hosts(many(form, count), form)) == count
    line, text = the_mistake(many(form, count + 1), form)
    assert f"more than {count:,} hosts" in text
    assert line >= count
    tried("hosts in one inventory", count, "read, and one more refused")


@pytest.mark.parametrize(
    "pattern",
    [
        f"h[0:{MAX_HOSTS}]",
        "h[0:999999999]",
        "h" + "[0:999999999]" * 8,
        "h[0:99999]\ng[0:0]",
        "h[0:50000]\n[web]\ng[0:50000]",
    ],
)
def test_a_range_of_more_hosts_than_there_may_be_is_not_expanded(pattern: str):
    assert "more than 100,000 hosts" in the_mistake(f"{pattern}\n", "ini").text


def test_hosts_that_are_in_several_groups_count_once():
    text = f"[a]\nh[1:{MAX_HOSTS}]\n[b]\nh[1:{MAX_HOSTS}]\n"
    assert len(hosts(text, "ini")) == MAX_HOSTS


@pytest.mark.parametrize("form", FORMS)
def test_a_text_that_is_too_long_is_refused_unread(form: Form):
    line, text = the_mistake(b"#" * (MAX_BYTES + 1), form)
    assert line == 1
    assert "bytes are more than" in text


def test_mistakes_without_end_are_not_all_looked_for():
    rows = "-\n" * (MAX_MISTAKES * 2)
    found = inventory.read(f"name\n{rows}".encode(), "csv")
    assert len(found.mistakes) == MISTAKES_SHOWN
    assert found.more == MAX_MISTAKES - MISTAKES_SHOWN


def laughs(levels: int) -> str:
    """Every level holds the one before ten times."""
    rows = ["l0: &l0 [x, x]"]
    rows += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(rows)


def merges(count: int) -> str:
    """A mapping that merges the same thousand keys over and over."""
    keys = ", ".join(f"k{n}: 1" for n in range(1_000))
    return f"x: &x {{{keys}}}\ny: {{<<: [{', '.join(['*x'] * count)}]}}\n"


def shared(groups: int) -> str:
    """Groups that all have the same thousand hosts."""
    named = ", ".join(f"h{n}: {{v: 1}}" for n in range(1_000))
    below = ", ".join(f"g{n}: *x" for n in range(groups))
    return f"x: &x {{hosts: {{{named}}}}}\nall: {{children: {{{below}}}}}\n"


def handed_down(hosts: int, groups: int, variables: int) -> str:
    """A tower of groups with variables, above hosts that are each in groups of their own."""
    tower = "".join(
        f"[g{n}:children]\ng{n + 1}\n[g{n}:vars]\n"
        + "".join(f"v{k}={n}\n" for k in range(variables))
        for n in range(groups)
    )
    rooms = "".join(f"[r{n}]\nh{n}\n" for n in range(hosts))
    inside = "".join(f"r{n}\n" for n in range(hosts))
    return f"{tower}[g{groups}:children]\n{inside}{rooms}"


BOMBS: dict[str, tuple[Form, str, str]] = {
    "laughs": ("yaml", laughs(30), "aliases included"),
    "merges": ("yaml", merges(5_000), "aliases included"),
    "the same hosts in many groups": ("yaml", shared(2_000), "aliases included"),
    "an alias to itself": ("yaml", "a: &a [*a]\n", "before this alias"),
    "deep flow": ("yaml", "a: " + "[" * 1_000_000, "deeper than 64"),
    "deep blocks": ("yaml", "".join(f"{' ' * n}a:\n" for n in range(300)), "deeper than 64"),
    "deep JSON": ("json", "[" * 1_000_000, "nested too deep"),
    "deep JSON objects": ("json", '{"hosts": [' + '{"labels":' * 500_000, "nested too deep"),
    "a group below very many": (
        "ini",
        "[c]\nh\n" + "".join(f"[p{n}:children]\nc\n" for n in range(20_000)),
        "is in too many groups",
    ),
    "a high tower of groups": ("ini", handed_down(1, 300, 0), "is in too many groups"),
    "much handed down to many": ("ini", handed_down(5_000, 200, 20), "hands down too much"),
    "many in many groups": (
        "ini",
        "".join(f"[g{n}]\nh[1:100000]\n" for n in range(60)),
        "hands down too much",
    ),
    "many with many variables": (
        "ini",
        f"h[1:100000] {' '.join(f'v{n}=1' for n in range(60))}\n",
        "hands down too much",
    ),
    "long labels for many": (
        "ini",
        "h[1:100000]\n[all:vars]\n" + "".join(f"v{n}={'x' * 250}\n" for n in range(30)),
        f"more than {MAX_LABEL_CHARACTERS:,} characters",
    ),
    "many hosts and many patterns": (
        "ssh_config",
        "".join(f"Host *{n}*a*b*\n  User u\n" for n in range(20_000)) + many("ssh_config", 1_000),
        "hands down too much",
    ),
    "a long pattern": ("ssh_config", f"Host {'*a' * 500}\n", "more than 255"),
    "a long way": (
        "ssh_config",
        f"Host h\nProxyJump {','.join(f'j{n}' for n in range(1_000))}\n",
        "more than 8 machines",
    ),
    "a way in a circle": ("ssh_config", "Host h\nHost *\nProxyJump h\n", "leads in a circle"),
    "a long line of patterns": ("ssh_config", f"Host {'*a ' * 500_000}\n", "more than 8192"),
    "a quote that is never closed": ("csv", 'name\n"' + "a\n" * 500_000, "not CSV"),
    "a long line": ("ini", "h" + ":" * 1_000_000, "more than 65536"),
    "nothing but brackets": ("ini", "h" + "[" * 60_000, "too many for a host"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_text_that_asks_for_much_is_refused(
    bomb: str, monkeypatch: pytest.MonkeyPatch, *, proof: bool
):
    if not proof:
        monkeypatch.setattr(inventory.gathering, "MAX_STEPS", 400_000)
    form, text, said = BOMBS[bomb]
    assert said in the_mistake(text, form).text


# Whatever the bytes.

PIECES = st.sampled_from(
    ["name", "hosts", "all", "vars", "children", "labels", "[", "]", "{", "}", ":", ",", "=", '"',
     "'", "\\", "#", ";", "\n", "\r", " ", "\t", "-", "&a", "*a", "<<", "!vault", "!!python/x", "|",
     "Host ", "Match ", "ProxyJump ", "HostName %h", "!web", "*", "---", "web[1:3]",
     "0", "1e999", "NaN", "null", "~", "\ufeff", "\u2028", "\x85", "é", "\0"]
)  # fmt: skip
BROKEN = st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join)


def read(content: bytes, form: Form) -> None:
    found = inventory.read(content, form)
    assert bool(found.hosts) is not bool(found.mistakes)
    assert len({host.name for host in found.hosts}) == len(found.hosts)
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
    for line, text in found.mistakes:
        # YAML also takes a few other characters for the end of a line.
        assert 1 <= line <= lines + (len(content) if form == "yaml" else 0)
        assert text


@pytest.mark.parametrize("form", FORMS)
@given(content=st.binary(max_size=200) | BROKEN.map(str.encode))
@example(content=b"\xff\xfe[\x00]\x00")
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_hosts_or_mistakes(form: Form, content: bytes):
    read(content, form)


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_good_inventory_that_was_damaged_is_hosts_or_mistakes(form: Form, data: st.DataObject):
    text = {**TWO, "ini": INI, "yaml": YAML}[form]
    at = data.draw(st.integers(0, len(text)))
    left = data.draw(st.integers(0, 8))
    read((text[:at] + data.draw(BROKEN) + text[at + left :]).encode(), form)
