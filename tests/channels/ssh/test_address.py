"""An address says where a host is, through whom, and with which key; nothing else is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.channels.ssh.address import Address, Hop, parse
from onward.errors import InvalidInput

READ = {
    "web1": Address(Hop("web1")),
    "WEB1.Example.org": Address(Hop("web1.example.org")),
    "web1:2222": Address(Hop("web1", 2222)),
    "deploy@web1:22": Address(Hop("web1", 22, "deploy")),
    "10.0.0.7": Address(Hop("10.0.0.7")),
    "[::1]:2222": Address(Hop("::1", 2222)),
    "ann@[2001:DB8::1]": Address(Hop("2001:db8::1", 22, "ann")),
    "ann@2001:db8::1": Address(Hop("2001:db8::1", 22, "ann")),
    "[fe80::1%eth0]": Address(Hop("fe80::1%eth0")),
    "corp\\ann@web1": Address(Hop("web1", 22, "corp\\ann")),
    "web1?jump=bastion": Address(Hop("web1"), (Hop("bastion"),)),
    "web1?jump=ann@b1:2200&jump=[::1]:7&key=id_deploy": Address(
        Hop("web1"), (Hop("b1", 2200, "ann"), Hop("::1", 7)), "id_deploy"
    ),
    "web1?": Address(Hop("web1")),
}

NONE = (
    *("", "@web1", "web1:", "web1:0", "web1:65536", "web1:22x", "web1:²", "a b", "web1\n", "-web1"),
    *("ssh://web1", "web1/etc", "[::1", "::1]:22", "[web1]:22", "[]", "a@b@c", "web1?port=22"),
    *("web1?key=../id", "web1?key=", "web1?key=a&key=b", "web1?key=/etc/id", "web1?jump="),
    *("web1?key=.id", "-l@web1", "we\u0000b", "web1#x", "web1?" + "jump=a&" * 9, "x" * 2_001),
)


@pytest.mark.parametrize("text", READ)
def test_what_is_an_address_is_read(text: str):
    assert parse(text) == READ[text]


@pytest.mark.parametrize("text", READ)
def test_an_address_that_was_written_is_read_as_the_same(text: str):
    assert parse(str(READ[text])) == READ[text]


@pytest.mark.parametrize("text", NONE)
def test_what_is_none_is_refused_with_a_word_about_it(text: str):
    with pytest.raises(InvalidInput, match=r"^address: .+"):
        parse(text)


@given(st.text())
def test_whatever_is_written_is_an_address_or_refused(text: str):
    try:
        found = parse(text)
    except InvalidInput:
        return
    assert parse(str(found)) == found


def test_a_host_at_another_port_is_known_with_its_port():
    assert Hop("web1").known_as == "web1"
    assert Hop("web1", 2222).known_as == "[web1]:2222"
    assert Hop("::1", 2222).known_as == "[::1]:2222"
