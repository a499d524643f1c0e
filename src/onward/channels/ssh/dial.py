"""Opens connections: who the host is, who we are, and what is agreed on.

A handshake costs us and the host some milliseconds of work, so only so many are made at once.
What is the same for every connection is worked out once, and not by asyncssh anew for each.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import asyncssh

from onward.channels.ssh.address import Address, Hop
from onward.channels.ssh.keys import Identities
from onward.channels.ssh.known_hosts import KnownHosts, Trusted
from onward.errors import HostRefused, NotDelivered

# The quickest that is safe first. Nothing with SHA-1, CBC or less than 128 bits.
_KEX: Final = (
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group14-sha256",
)
_CIPHERS: Final = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)
_MACS: Final = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512",
)
_HOST_KEYS: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_CERTIFIED: Final = tuple(f"{kind}-cert-v01@openssh.com" for kind in _HOST_KEYS)


@dataclass(frozen=True, slots=True)
class SshWay:
    """How hosts are reached over SSH."""

    directory: Path  # of our keys, their certificates and `known_hosts`
    user: str = "onward"  # where an address names nobody
    agent: Path | None = None  # the socket of an agent
    connections: int = 500  # open at once
    sessions: int = 8  # commands at once over one of them
    handshakes: int = 50  # under way at once
    connect_timeout_s: float = 30.0  # for a handshake, and for a session on an open connection
    keepalive_s: float = 15.0  # of silence, until the host is asked whether it is there
    keepalives: int = 3  # without an answer, until the connection is given up
    idle_s: float = 60.0  # until a connection that nobody uses is closed
    grace_s: float = 2.0  # between asking a program to end, and ending it


class _Caller(asyncssh.SSHClient):
    """Remembers what the host showed, and hears when the connection is gone."""

    def __init__(self) -> None:
        self.shown: asyncssh.SSHKey | None = None
        self.gone: Callable[[], None] | None = None

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Accept nothing here: this is asked only about keys that are not known."""
        del host, addr, port
        self.shown = key
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """As above, for whoever has signed the certificate."""
        del host, addr, port
        self.shown = key
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Say so to whoever counts connections."""
        del exc
        if self.gone is not None:
            self.gone()


class Dialler:
    """Opens connections the way it is told."""

    def __init__(self, way: SshWay) -> None:
        self.way = way
        self.known = KnownHosts(way.directory / "known_hosts")
        self.identities = Identities(way.directory)
        self._handshakes = asyncio.Semaphore(way.handshakes)
        self._options = _options(way)
        # It tells every step of every connection, and what goes wrong is raised anyway.
        logging.getLogger("asyncssh").setLevel(logging.WARNING)

    async def open(
        self,
        address: Address,
        name: str,
        *,
        through: asyncssh.SSHClientConnection | None,
        gone: Callable[[], None],
    ) -> asyncssh.SSHClientConnection:
        """Connect to the host called `name` and log in; `gone` is called when it is over.

        Raises NotDelivered if it cannot be reached, HostRefused if it is not who it should be or
        does not let us in.
        """
        hop = address.target
        trusted = self.known.trusted(hop)
        caller = _Caller()
        options = self._options_for(address, trusted, caller)
        async with self._handshakes:
            try:
                connection = await self._shake_hands(hop, options, through)
            except (OSError, asyncssh.Error, TimeoutError) as error:
                self._explain(error, name, hop, trusted=trusted, shown=caller.shown)
        caller.gone = gone
        if connection.is_closed():
            gone()
        return connection

    async def _shake_hands(
        self,
        hop: Hop,
        options: asyncssh.SSHClientConnectionOptions,
        through: asyncssh.SSHClientConnection | None,
    ) -> asyncssh.SSHClientConnection:
        loop = asyncio.get_running_loop()
        in_time = options.waiter = loop.create_future()
        # A future that nobody asks any more must not be reported as forgotten.
        in_time.add_done_callback(lambda done: done.cancelled() or done.exception())
        made: list[asyncssh.SSHClientConnection] = []

        def make() -> asyncssh.SSHClientConnection:
            made.append(asyncssh.SSHClientConnection(loop, options, wait="auth"))
            return made[-1]

        try:
            async with asyncio.timeout(self.way.connect_timeout_s):
                if through is None:
                    await loop.create_connection(make, hop.host, hop.port)
                else:
                    await through.create_connection(make, hop.host, hop.port)  # type: ignore[arg-type]  # a connection is a session of the one that carries it
                await in_time
        except BaseException:
            for connection in made:
                connection.abort()
            raise
        return made[-1]

    def _options_for(
        self, address: Address, trusted: Trusted, caller: _Caller
    ) -> asyncssh.SSHClientConnectionOptions:
        options = copy.copy(self._options)
        hop = address.target
        options.host = options.orig_host = hop.host
        options.port = hop.port
        options.username = hop.user or self.way.user
        options.protocol_factory = lambda: caller
        options.known_hosts = (*trusted, (), (), (), ())
        options.server_host_key_algs = _kinds(trusted)
        options.client_keys = self._keys(address)
        # A key that the address names is the only one that is tried.
        options.agent_path = str(self.way.agent) if self.way.agent and not address.key else None
        return options

    def _keys(self, address: Address) -> list[asyncssh.SSHKeyPair]:
        pairs = self.identities.pairs(address.key)
        if not pairs and self.way.agent is None:
            problems = self.identities.problems()
            raise HostRefused(
                " ".join(problems)
                or f"There is no key to log in with: make one with "
                f"ssh-keygen -t ed25519 -N '' -f {self.way.directory / 'id_ed25519'}"
            )
        return pairs

    def _explain(
        self,
        error: Exception,
        name: str,
        hop: Hop,
        *,
        trusted: Trusted,
        shown: asyncssh.SSHKey | None,
    ) -> NoReturn:
        """Raise what an error means for whoever wanted to reach the host."""
        where = name if name in {hop.host, str(hop)} else f"{name} ({hop})"
        match error:
            case asyncssh.HostKeyNotVerifiable():
                raise _key_refused(where, name, trusted, shown, str(error)) from None
            case asyncssh.KeyExchangeFailed():
                raise HostRefused(
                    f"{where} offers no way of encrypting that is safe enough: {_said(error)}."
                ) from None
            case asyncssh.PermissionDenied():
                raise self._no_entry(where, hop) from None
            case TimeoutError():
                raise NotDelivered(
                    f"{where} has not answered for {self.way.connect_timeout_s:g} s."
                ) from None
            case _:
                raise NotDelivered(f"{where} cannot be reached: {_said(error)}.") from None

    def _no_entry(self, where: str, hop: Hop) -> HostRefused:
        user = hop.user or self.way.user
        left_out = " ".join(["", *self.identities.problems()])
        return HostRefused(
            f"{where} does not let {user} in with the keys of {self.way.directory}: "
            f"add a public key of them to the authorized_keys of {user} there.{left_out}"
        )


def _options(way: SshWay) -> asyncssh.SSHClientConnectionOptions:
    """What is the same for all: nothing of the user's own configuration, and nothing forwarded."""
    return asyncssh.SSHClientConnectionOptions(
        config=None,
        username=way.user,
        known_hosts=b"",
        client_keys=None,
        agent_path=None,
        agent_forwarding=False,
        x11_forwarding=False,
        x509_trusted_certs=None,
        gss_host=None,
        public_key_auth=True,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        preferred_auth=("publickey",),
        kex_algs=_KEX,
        encryption_algs=_CIPHERS,
        mac_algs=_MACS,
        compression_algs=("none",),
        login_timeout=0,
        keepalive_interval=way.keepalive_s,
        keepalive_count_max=way.keepalives,
        tcp_keepalive=True,
        utf8_decode_errors="backslashreplace",
        encoding=None,
    )


def _kinds(trusted: Trusted) -> list[str]:
    """The kinds of keys that a host may show: the known ones first, so that it shows those.

    Others may follow, so that one who has another key shows it, and can be told so.
    """
    known = {alg.decode() for key in trusted.keys for alg in key.sig_algorithms}
    plain = sorted(_HOST_KEYS, key=lambda kind: kind not in known)
    return [*_CERTIFIED, *plain] if trusted.authorities else plain


def _key_refused(
    where: str, name: str, trusted: Trusted, shown: asyncssh.SSHKey | None, said: str
) -> HostRefused:
    fingerprint = shown.get_fingerprint() if shown else None
    if "revoked" in said:
        return HostRefused(f"The key of {where} is revoked: it may be in the wrong hands.")
    if trusted.keys:
        known = ", ".join(key.get_fingerprint() for key in trusted.keys)
        return HostRefused(
            f"{where} shows the key {fingerprint} and not the known one ({known}): "
            "somebody may be in between. "
            f"Be sure that the host has a new key, then: onward hosts trust {name} --replace"
        )
    if trusted.authorities:
        return HostRefused(
            f"{where} has no certificate of a known authority that is good for it: {said}."
        )
    return HostRefused(
        f"The key of {where} is not known: {fingerprint}. "
        f"Compare it with what the host says, then: onward hosts trust {name}"
    )


def _said(error: Exception) -> str:
    """What an error says, in one line and not much of it: part of it may be the host's words."""
    if isinstance(error, socket.gaierror):
        return "its name is not known (DNS)"
    number = getattr(error, "errno", None)
    text = os.strerror(number) if number else getattr(error, "reason", None) or str(error)
    return " ".join(str(text).split())[:200].rstrip(".") or type(error).__name__
