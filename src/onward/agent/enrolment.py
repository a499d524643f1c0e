"""How a host gets its key: a token that somebody made for it is exchanged for it, once.

The agent makes a nonce up and writes it down before it asks. An answer that got lost may be asked
for again with the same nonce; whoever else has seen the token has not.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
from typing import Any, Final

import structlog

from onward.agent.server import Server
from onward.agent.state import Identity, State
from onward.errors import InvalidInput, ServerUnreachable

_TIMEOUT_S: Final = 15.0
_KEY_BYTES: Final = 32
_TRIES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
_ANSWER_MAX: Final = 65_536
_REFUSED: Final = 400

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.agent")


async def identity(state: State, server: Server, token: str | None) -> Identity:
    """The host's key: the one that is there, or one for the token if that is a new one."""
    known = state.identity()
    digest = "" if token is None else hashlib.sha256(token.encode()).hexdigest()
    if known is not None and (token is None or known.token_digest == digest):
        return known
    if token is None:
        raise InvalidInput(
            "ONWARD_AGENT_TOKEN",
            "this host has no key yet: make a token for it at the server, and give it here "
            "or in the file --token-file",
        )
    found = await _enrolled(server, token, state.nonce(digest), digest)
    state.keep_identity(found)
    log.info("enrolled", host=found.host, host_id=found.host_id, generation=found.generation)
    return found


async def _enrolled(server: Server, token: str, nonce: str, digest: str) -> Identity:
    for pause_s in (*_TRIES_S, None):
        try:
            said = await _ask(server, {"token": token, "nonce": nonce})
            return Identity(
                host_id=int(said["host_id"]),
                host=str(said["host"]),
                generation=int(said["generation"]),
                key=_key(said["key"]),
                token_digest=digest,
            )
        except (ServerUnreachable, TimeoutError) as error:
            if pause_s is None:
                raise
            log.warning("not_enrolled_yet", problem=str(error) or "no answer")
            await asyncio.sleep(pause_s)
        except InvalidInput:
            raise
        except (KeyError, TypeError, ValueError):
            raise ServerUnreachable(
                f"{server.shown} answered what no Onward answers: is it the right address?"
            ) from None
    raise AssertionError  # pragma: no cover - the loop returns or raises


def _key(text: object) -> bytes:
    key = base64.urlsafe_b64decode(str(text) + "==")
    if len(key) != _KEY_BYTES:
        raise ValueError(text)
    return key


async def _ask(server: Server, asked: dict[str, str]) -> dict[str, Any]:
    import httpx2  # noqa: PLC0415 - an agent that has its key never needs it

    verify: ssl.SSLContext | bool = server.tls or True
    try:
        async with httpx2.AsyncClient(verify=verify, timeout=_TIMEOUT_S) as client:
            answer = await client.post(f"{server.http}/agents/enrol", json=asked)
    except httpx2.HTTPError as error:
        raise ServerUnreachable(
            f"{server.shown} does not answer ({type(error).__name__}): is the address right?"
        ) from None
    if answer.status_code in {429, 502, 503, 504}:
        raise ServerUnreachable(f"{server.shown} cannot answer now ({answer.status_code})")
    said = json.loads(answer.content[:_ANSWER_MAX])
    if answer.status_code >= _REFUSED:
        raise InvalidInput("ONWARD_AGENT_TOKEN", _problem(said, answer.status_code))
    return dict(said)


def _problem(said: object, status: int) -> str:
    detail = said.get("detail") if isinstance(said, dict) else None
    return str(detail or f"the server refuses it ({status})")[:500]
