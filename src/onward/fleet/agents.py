"""What can be done about agents: a token for a host, its exchange for a key, and taking it back.

A token is 256 random bits, shown once. It is good for one agent, which may ask again with the same
nonce because the answer may be lost. Who enrols gets a new key; the former one is worth nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import Final, NamedTuple

from onward.channels.keyring import KeyRing
from onward.store import agents as store
from onward.store.agents import Enrolled
from onward.store.audit import Doer
from onward.store.database import Pool

TOKEN_S: Final = 3_600.0  # for which a token is good, unless somebody says otherwise
TOKEN_MAX_S: Final = 30 * 86_400.0
AGENT: Final = "agent"  # who enrols; which host it speaks for is said beside it
NONCE_MIN: Final = 16  # characters that an agent makes up, so that nobody else could have


class Token(NamedTuple):
    """A token that was made just now: the only time that it is seen."""

    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"Token(expires_at={self.expires_at})"


class Enrolment(NamedTuple):
    """A host that an agent may speak for now, and the key that it shows it with."""

    host_id: int
    host: str
    generation: int
    key: bytes

    def __repr__(self) -> str:
        return f"Enrolment(host_id={self.host_id}, generation={self.generation})"


async def make_token(pool: Pool, host_id: int, *, by: Doer, ttl_s: float = TOKEN_S) -> Token | None:
    """Make a token for a host, in place of any former one; `None` if there is no such host."""
    token = f"oat_{secrets.token_urlsafe(32)}"
    expires_at = await store.make_token(pool, host_id, digest=_digest(token), ttl_s=ttl_s, by=by)
    return None if expires_at is None else Token(token, expires_at)


async def enrol(
    pool: Pool, keyring: KeyRing, token: str, *, nonce: str, request_id: str | None = None
) -> Enrolment | None:
    """Exchange a token for the key of its host; `None` if it is not good for that, or no longer."""
    by = Doer(AGENT, request_id)
    found: Enrolled | None = await store.use_token(pool, _digest(token), _digest(nonce), by=by)
    if found is None:
        return None
    return Enrolment(*found, keyring.agent_key(found.host_id, found.generation))


async def take_key(pool: Pool, host_id: int, *, by: Doer) -> bool:
    """Make whatever key or token a host has been given worthless; false if there is no such host.

    A connection that was made with the key is ended by the process that holds it, within seconds.
    """
    return await store.take_key(pool, host_id, by=by) is not None


async def make_node_key(pool: Pool, keyring: KeyRing, host_id: int, *, by: Doer) -> bytes | None:
    """Give the node of a host a new key, in place of any former one; `None` if there is no host."""
    generation = await store.take_key(pool, host_id, by=by, deed="make_node_key")
    return None if generation is None else keyring.node_key(host_id, generation)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
