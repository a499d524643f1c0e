"""Where requests may go: to addresses that are nobody's secret network.

A name is resolved here, every address that it has is looked at, and the connection is made to one
of those: a name that means something else a moment later leads nowhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import httpcore2

from onward.errors import HostRefused

# Resolves a name and a port to addresses.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv6 addresses that a router turns into the IPv4 address in their last 32 bits.
_TRANSLATED: Final = (
    ipaddress.IPv6Network("64:ff9b::/96"),
    ipaddress.IPv6Network("::/96"),
    ipaddress.IPv6Network("::ffff:0:0:0/96"),
)
# What Python takes for an address of the open internet, and is none: translators and relays of
# somebody's own, and networks that were private when IPv6 was young.
_INSIDE: Final = tuple(
    map(
        ipaddress.ip_network,
        ("64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24", "192.88.99.0/24"),
    )
)
# Where clouds tell machines their secrets, although the address looks like anybody's.
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
)


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that a request may go to, and to no others."""

    def __init__(self, *, private: bool, resolve: Resolve | None = None) -> None:
        self._private = private
        self._resolve = resolve or _resolved
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers, after all of them have been looked at."""
        found = await self._found(host, port)
        for address in found:
            refuse(host, address, private=self._private)
        problem: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in found:
            try:
                return await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem

    async def sleep(self, seconds: float) -> None:
        """Wait, as httpcore does between tries."""
        await self._network.sleep(seconds)

    async def _found(self, host: str, port: int) -> Sequence[str]:
        try:
            return await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host} cannot be resolved") from error


def refuse(host: str, address: str, *, private: bool) -> None:
    """Refuse an address that requests must not go to; `private` opens the networks of one's own."""
    try:
        meant = list(_meant(ipaddress.ip_address(address)))
    except ValueError:
        raise HostRefused(f"The address of {host} cannot be read.") from None
    if any(_is_closed(each) for each in meant):
        raise HostRefused(
            f"{host} is at an address where only this machine's own cloud or network answers, "
            "and no platform: check its url."
        )
    if not private and any(_is_inside(each) for each in meant):
        raise HostRefused(
            f"{host} is at a private address: if the platform is in a network of yours, "
            "write private = true for it in the file of platforms."
        )


def _is_closed(address: Address) -> bool:
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in _METADATA
    )


def _is_inside(address: Address) -> bool:
    return not address.is_global or any(address in network for network in _INSIDE)


def _meant(address: Address) -> Iterable[Address]:
    """The address, and those that hide in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in (ipaddress.IPv6Address("::"), ipaddress.IPv6Address("::1")):
        return [address]
    hidden: list[Address] = [address.sixtofour] if address.sixtofour is not None else []
    hidden += address.teredo or ()
    if any(address in network for network in _TRANSLATED):
        # It goes where the address within it is, whatever it looks like itself.
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    return [address, *hidden]


async def _resolved(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # An IPv6 address may name an interface of this machine, which is no part of the address.
    return list(dict.fromkeys(str(place[0]).partition("%")[0] for *_, place in found))
