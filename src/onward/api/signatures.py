"""Signed webhooks, by the Standard Webhooks scheme: who sent it, when, and that it is the first.

A signature covers the id, the time and the raw body. It is checked before anything is parsed.
A copy of a message is refused; an honest retry has the same id and a new time, and is taken.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from standardwebhooks import Webhook
from starlette.types import Scope

from onward.api.auth import Caller
from onward.api.body import StrictRequest
from onward.api.permissions import Role
from onward.api.problems import Problem, unauthorized
from onward.errors import InvalidInput
from onward.settings import Settings
from onward.store import keys
from onward.store.database import Pool

TOLERANCE_S: Final = 300
_SECRET_MIN_BYTES: Final = 24
_SIGNATURES_MAX: Final = 20
_NAMES: Final = (b"webhook-id", b"webhook-timestamp", b"webhook-signature")
# A full stop ends the id in what is signed, so that an id with one could be read in two ways.
_ID = re.compile(rb"[!-\-/-~]{1,255}").fullmatch
_TIMESTAMP = re.compile(rb"[0-9]{1,11}").fullmatch

WEBHOOK: Final = Caller(None, "webhook", "webhook", Role.operator)


class Signatures:
    """The secrets that webhooks may be signed with, and which messages were taken."""

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        pool: Pool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._webhooks = [_webhook(number, secret) for number, secret in enumerate(secrets, 1)]
        self._pool = pool
        self._clock = clock
        self._forget_at = 0.0

    async def caller(self, request: StrictRequest) -> Caller:
        """Return the sender of a message with a good signature that was not taken before."""
        if not self._webhooks:
            raise unauthorized(
                "signature-unknown", "Nothing to check it with is set (ONWARD_WEBHOOK_SECRETS)."
            )
        message_id, timestamp, signature = _headers(request.scope)
        self._refuse_untimely(timestamp)
        sent_at = datetime.fromtimestamp(timestamp, tz=UTC)
        body = await request.body()
        if not self._signed(message_id, sent_at, signature, body):
            raise unauthorized("signature-wrong", "The signature does not fit the message.")
        await self._take(message_id, sent_at)
        return WEBHOOK

    def _refuse_untimely(self, timestamp: int) -> None:
        if abs(int(self._clock()) - timestamp) > TOLERANCE_S:
            raise unauthorized(
                "signature-untimely",
                f"The time of the message is more than {TOLERANCE_S} seconds from now; "
                "send it again with the present time.",
            )

    def _signed(self, message_id: str, sent_at: datetime, signature: str, body: bytes) -> bool:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return False
        given = _given(signature)
        found = False
        for webhook in self._webhooks:
            right = _digest(webhook.sign(message_id, sent_at, text))
            # Every one is compared, so that the time it takes tells nothing.
            for each in given:
                found |= hmac.compare_digest(right, each)
        return found

    async def _take(self, message_id: str, sent_at: datetime) -> None:
        now = self._clock()
        if now >= self._forget_at:
            self._forget_at = now + TOLERANCE_S
            oldest = datetime.fromtimestamp(now, tz=UTC) - timedelta(seconds=2 * TOLERANCE_S)
            await keys.forget_messages(self._pool, before=oldest)
        if not await keys.take_message(self._pool, message_id, sent_at):
            raise Problem(
                409,
                "replayed",
                "This message was taken before",
                "A retry is signed anew, with the same id and the present time.",
            )


def signed(scope: Scope) -> bool:
    """Say whether a request claims to be signed."""
    return any(name in _NAMES for name, _ in scope["headers"])


def secrets_of(settings: Settings) -> list[str]:
    """Return the secrets that the settings name, the newest first."""
    if settings.webhook_secrets is None:
        return []
    return [part.strip() for part in settings.webhook_secrets.get_secret_value().split(",")]


def _webhook(number: int, secret: str) -> Webhook:
    told = InvalidInput(
        "ONWARD_WEBHOOK_SECRETS",
        f"secret {number} is not whsec_ and at least {_SECRET_MIN_BYTES} bytes in base64",
    )
    if not secret.startswith("whsec_"):
        raise told
    try:
        raw = base64.b64decode(secret.removeprefix("whsec_") + "==", validate=False)
    except (binascii.Error, ValueError):
        raise told from None
    if len(raw) < _SECRET_MIN_BYTES:
        raise told
    return Webhook(raw)


def _headers(scope: Scope) -> tuple[str, int, str]:
    """Return id, time and signatures, each said once and well-formed."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _NAMES:
            if name in found:
                raise unauthorized("signature-malformed", f"{name.decode()} is there twice.")
            found[name] = value
    if missing := [name.decode() for name in _NAMES if name not in found]:
        raise unauthorized("signature-malformed", f"There is no {' and no '.join(missing)}.")
    message_id, timestamp, signature = (found[name] for name in _NAMES)
    if not _ID(message_id):
        raise unauthorized("signature-malformed", "webhook-id is not 1 to 255 characters of ASCII.")
    if not _TIMESTAMP(timestamp):
        raise unauthorized("signature-malformed", "webhook-timestamp is not in whole seconds.")
    return message_id.decode(), int(timestamp), signature.decode("latin-1")


def _given(signature: str) -> list[bytes]:
    """Return the signatures of the version that we know; of others nothing is said."""
    found: list[bytes] = []
    for part in signature.split(" ")[:_SIGNATURES_MAX]:
        version, _, text = part.partition(",")
        if version == "v1":
            try:
                found.append(base64.b64decode(text, validate=True))
            except (binascii.Error, ValueError):
                continue
    return found


def _digest(signature: str) -> bytes:
    return base64.b64decode(signature.removeprefix("v1,"))
