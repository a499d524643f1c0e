"""OpenSSH's configuration: the hosts that it names, reached as `ssh` would reach them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from onward.channels.ssh.address import parse
from onward.store.hosts import NewHost
from tests.fleet.inventories import hosts, mistakes, the_mistake


def addresses(text: str) -> dict[str, str]:
    """Where the hosts of a configuration are; each is one that the channel understands."""
    found = {name: host.address for name, host in hosts(dedent(text), "ssh_config").items()}
    for address in found.values():
        parse(address)
    return found


def test_names_become_hosts_of_the_channel_ssh_and_wildcards_do_not():
    found = hosts("Host a *.b ?c d\nHost *\n", "ssh_config", channel="mqtt")
    assert found == {"a": NewHost("a", {}, "ssh", "a"), "d": NewHost("d", {}, "ssh", "d")}


def test_every_option_that_an_address_can_hold_is_in_it():
    text = """\
        Host web
            HostName %h.example.com
            User ann
            Port 2222
            IdentityFile "~/.ssh/id_web"
            ProxyJump bob@bastion:99,far
        """
    assert addresses(text) == {
        "web": "ann@web.example.com:2222?jump=bob@bastion:99&jump=far&key=id_web"
    }


def test_the_first_value_counts_and_defaults_come_from_every_block_that_fits():
    text = """\
        Compression yes
        Host web1 web2
            User ann
        Host web* !web2
            User bob
            Port 2222
        Host *
            Port 22000
            HostName %h.example.com
        Host web2
            User late
            Port 1
        """
    assert addresses(text) == {
        "web1": "ann@web1.example.com:2222",
        "web2": "ann@web2.example.com:22000",
    }


def test_what_stands_before_the_first_host_is_for_all():
    assert addresses("User ann\nHost a\nUser bob\nHost b\n") == {"a": "ann@a", "b": "ann@b"}


@pytest.mark.parametrize(
    "line",
    ["Port 22", "port 22", "PORT=22", "Port = 22", "\tPort\t22  ", 'Port "22"', "Port 22 # why"],
)
def test_a_line_is_read_however_it_is_spaced_and_quoted(line: str):
    assert addresses(f"Host a\n{line}\n") == {"a": "a:22"}


def test_a_machine_on_the_way_is_looked_up_in_the_same_file():
    text = """\
        Host inner
            ProxyJump middle
        Host middle
            HostName 2001:db8::1
            ProxyJump me@outer
        Host outer
            HostName 10.0.0.1
            User nobody
            Port 99
        """
    way = "jump=me@10.0.0.1:99"
    assert addresses(text) == {
        "inner": f"inner?{way}&jump=[2001:db8::1]",
        "middle": f"[2001:db8::1]?{way}",
        "outer": "nobody@10.0.0.1:99",
    }


def test_of_a_jump_and_a_command_the_first_counts():
    for first, second, address in (
        ("ProxyJump a", "ProxyCommand nc %h %p", "h?jump=a"),
        ("ProxyJump none", "ProxyCommand nc %h %p", "h"),
        ("ProxyCommand none", "ProxyJump a", "h"),
        ("ProxyCommand ssh -q -W %h:%p -p 99 me@a", "ProxyJump b", "h?jump=me@a:99"),
    ):
        assert addresses(f"Host h\n{first}\nHost h*\n{second}\n") == {"h": address}


def test_one_key_is_named_and_several_leave_the_choice():
    text = """\
        Host one
            IdentityFile ~/.ssh/id_one
        Host two
            IdentityFile id_a
            IdentityFile %d/.ssh/id_b
        Host none
            IdentityFile none
        Host *
            IdentityFile ~/.ssh/id_everybody
        """
    assert addresses(text) == {"one": "one?key=id_one", "two": "two", "none": "none"}


def test_a_host_that_is_named_twice_is_one():
    assert addresses("Host a b\nPort 1\nHost b a\nPort 2\n") == {"a": "a:1", "b": "b:1"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("Match all\nHost a\n", 1, "write the hosts behind Host instead"),
        ("Host a\nMatch host a\n  User x\n", 2, "Match: its conditions are not followed"),
        ("Include other\nHost a\n", 1, "onward hosts import"),
        ("Host a\nProxyCommand nc %h %p\n", 1, "ProxyCommand in line 2: only `ssh -W %h:%p HOST`"),
        ("Host a\nHostName %n.x\n", 1, "HostName in line 2: '%n' is not followed"),
        ("Host a\nHostName a?jump=b\n", 1, "HostName in line 2: 'a?jump=b' is neither"),
        ("Host a\nHostName -oProxyCommand=x\n", 1, "neither"),
        ("Host a\nPort ssh\n", 1, "Port in line 2: 'ssh' is not a number up to 65535"),
        ("Host a\nPort 0\n", 1, "not a number up to 65535"),
        ("Host a\nUser a@b\n", 1, "User in line 2: 'a@b' cannot be the name of a user"),
        ("Host a\nProxyJump b:c\n", 1, "ProxyJump in line 2: 'b:c' is not [user@]host[:port]"),
        ("Host a\nProxyJump a\n", 1, "the way to 'a' leads in a circle"),
        ("Host a\nIdentityFile 'my key'\n", 1, "IdentityFile in line 2: 'my key' is not a file"),
        ('Host "a\n', 1, "Host: a quote is not closed".lower()),
        ("Host a\nHost\n", 2, "says nothing"),
        ("Host a\nPort\n", 2, "port: says nothing"),
        ("Host a\n<html>\n", 2, "is it a configuration of ssh?"),
        ("Host *\n", 1, "there is no host in it"),
        ("Host a:b\n", 1, "neither the name of a machine nor its address"),
    ],
)
def test_what_cannot_be_followed_is_told_with_its_line(text: str, line: int, said: str):
    found = the_mistake(text, "ssh_config")
    assert found.line == line
    assert said.lower() in found.text.lower()
    assert found.text.isascii()
    assert len(found.text) < 300


def test_what_follows_a_mistaken_host_line_is_not_for_everybody():
    found = mistakes("Host ä\nPort x\nHost b\n", "ssh_config")
    assert [mistake.line for mistake in found] == [1]
