"""Requests go to the addresses that were looked at, and to none that is inside."""

from __future__ import annotations

from collections.abc import Sequence

import httpcore2
import pytest

from onward.channels.platform.addresses import CheckedNetwork, refuse
from onward.errors import HostRefused
from tests.platform.fake import Platform, serving
from tests.proof_table import Tried

OUTSIDE = ("8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::1")
INSIDE = (
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("100.64.0.1", "198.18.0.1", "192.0.2.1", "203.0.113.7", "192.88.99.1", "240.0.0.1"),
    *("255.255.255.255", "0.1.2.3", "192.0.0.8"),
    *("::1", "fc00::1", "fd12:3456::1", "fec0::1", "2001:db8::1", "64:ff9b:1::a00:1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:7f00:1"),
    *("64:ff9b::10.0.0.1", "2002:a00:1::", "2002:7f00:1::1", "2001:0:a00:1::"),
)
NOBODYS = (
    *("169.254.169.254", "169.254.0.1", "0.0.0.0", "224.0.0.1", "168.63.129.16", "192.0.0.192"),  # noqa: S104 - refused
    *("::", "fe80::1", "ff02::1", "fd00:ec2::254"),
    *("::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "::a9fe:a9fe", "2002:a9fe:a9fe::"),
)


def test_what_is_inside_is_opened_by_a_word_and_what_is_nobodys_never(tried: Tried):
    for address in OUTSIDE:
        refuse("host", address, private=False)
    for address in INSIDE:
        with pytest.raises(HostRefused, match="private = true"):
            refuse("host", address, private=False)
        refuse("host", address, private=True)
    for address in (*NOBODYS, "no address", ""):
        for private in (False, True):
            with pytest.raises(HostRefused):
                refuse("host", address, private=private)
    tried("addresses", len(OUTSIDE + INSIDE + NOBODYS) + 2, "each let through or refused")


@pytest.mark.parametrize(
    "name",
    [
        *("127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "localhost"),
        *("::1", "::ffff:127.0.0.1", "0"),
    ],
)
async def test_no_way_of_writing_this_machine_leads_to_it(name: str):
    """The name is resolved as a connection would resolve it, and then looked at."""
    async with serving(Platform()) as platform:
        network = CheckedNetwork(private=False)
        with pytest.raises((HostRefused, httpcore2.ConnectError)):
            await network.connect_tcp(name, platform.port, timeout=5)
        assert platform.requests == []


async def test_a_name_that_means_something_else_a_moment_later_leads_nowhere():
    """It is resolved once for a connection, and the connection goes to what was looked at."""
    answers: list[Sequence[str]] = [["127.0.0.1"], ["169.254.169.254"]]

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return answers.pop(0)

    async with serving(Platform()) as platform:
        network = CheckedNetwork(private=True, resolve=resolve)
        stream = await network.connect_tcp("moving.example", platform.port, timeout=5)
        assert stream.get_extra_info("server_addr")[0] == "127.0.0.1"
        await stream.aclose()
        assert len(answers) == 1
        with pytest.raises(HostRefused):
            await network.connect_tcp("moving.example", platform.port, timeout=5)


async def test_a_name_with_one_bad_address_is_refused_as_a_whole():
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(HostRefused):
        await CheckedNetwork(private=False, resolve=resolve).connect_tcp("two.example", 443)


async def test_the_next_address_is_tried_when_nobody_answers_at_the_first():
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with serving(Platform()) as platform:
        network = CheckedNetwork(private=True, resolve=resolve)
        stream = await network.connect_tcp("two.example", platform.port, timeout=5)
        assert stream.get_extra_info("server_addr")[0] == "127.0.0.1"
        await stream.aclose()


async def test_a_name_that_nobody_knows_could_not_be_reached():
    with pytest.raises(httpcore2.ConnectError):
        await CheckedNetwork(private=True).connect_tcp("nowhere.invalid", 443, timeout=10)
    for odd in ("a" * 300, "\udcff"):
        with pytest.raises(httpcore2.ConnectError):
            await CheckedNetwork(private=True).connect_tcp(odd, 443, timeout=10)
