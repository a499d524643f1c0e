"""The keys of hosts, derived from one secret: none of them is kept anywhere.

A host has a key of its own for each generation. To take a key from a host, give it another
generation: what the former key signs is worth nothing from then on.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

KEY_BYTES: Final = 32


class KeyRing:
    """Makes the key of a host from the secret that only the server's processes know."""

    def __init__(self, master: bytes) -> None:
        self._master = master

    def __repr__(self) -> str:
        return "KeyRing(...)"

    def agent_key(self, host_id: int, generation: int) -> bytes:
        """The key that an agent and the server sign their messages with."""
        return self._derived(f"onward agent {host_id} {generation}")

    def node_key(self, host_id: int, generation: int) -> bytes:
        """The key that a node and the server sign their messages with."""
        return self._derived(f"onward node {host_id} {generation}")

    def _derived(self, what: str) -> bytes:
        return hmac.digest(self._master, what.encode(), hashlib.sha256)
