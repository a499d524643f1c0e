"""The cookie of a browser that has logged in, and the proof that a page of ours has sent it.

A browser adds cookies to whatever any page makes it send. So the cookie counts for nothing alone:
a request says `X-Onward-Page: 1` as well. A page of another site cannot have that sent without the
browser asking us first whether it may, and nobody is ever told that it may.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from onward.api.problems import Problem, unauthorized

NAME: Final = "onward_session"
PAGE: Final = "X-Onward-Page"
_NAME: Final = NAME.encode()
_PAGE: Final = (PAGE.lower().encode(), b"1")
_SECRET = re.compile(rb"[A-Za-z0-9_-]{43}").fullmatch
# What browsers say of a request that this site has made, or a person by hand.
_OUR_SITE: Final = frozenset({b"same-origin", b"none"})


def secret_of(scope: Scope) -> bytes | None:
    """Return the secret of the session that a request shows; `None` if it shows none.

    Refused is what no page of ours has sent, and what is no secret that we have ever given.
    """
    found = _found(scope)
    if not found:
        return None
    _refuse_forged(scope)
    if len(found) > 1 or not _SECRET(found[0]):
        raise unauthorized(
            "session-malformed",
            f"The cookie `{NAME}` is there twice, or not as it was given: delete the cookies of "
            "this site, and log in again.",
        )
    return found[0]


def is_there(scope: Scope) -> bool:
    """Say whether a request shows a cookie of ours, whatever is in it."""
    return bool(_found(scope))


def secrets_of(scope: Scope) -> list[bytes]:
    """Return all secrets that a request shows, for whoever wants to be rid of them."""
    refuse_other_sites(scope)
    if found := _found(scope):
        _refuse_forged(scope)
    return [secret for secret in found if _SECRET(secret)]


def refuse_other_sites(scope: Scope) -> None:
    """Refuse with 403 what the browser itself says comes from another site."""
    for name, value in scope["headers"]:
        if name == b"sec-fetch-site" and value not in _OUR_SITE:
            raise Problem(
                403,
                "cross-site",
                "Another site has sent this",
                "A browser says that it was not a page of this service; open it there.",
            )


def _refuse_forged(scope: Scope) -> None:
    """Refuse what another site has made a browser send, and what does not say that none has."""
    refuse_other_sites(scope)
    if _PAGE not in scope["headers"]:
        raise unauthorized(
            "page-header-missing",
            f"The cookie `{NAME}` alone does not say who wants this: send `{PAGE}: 1` as well, or "
            "your key as `Authorization: Bearer onw_...`.",
        )


def give(response: Response, secret: str, *, scope: Scope, lasts_s: float) -> None:
    """Let the browser keep the secret of a session, where no script can read it."""
    response.set_cookie(
        NAME,
        secret,
        max_age=max(1, int(lasts_s)),
        path="/",
        secure=_encrypted(scope),
        httponly=True,
        samesite="strict",
    )


def take(response: Response, *, scope: Scope) -> None:
    """Let the browser forget it."""
    response.delete_cookie(
        NAME, path="/", secure=_encrypted(scope), httponly=True, samesite="strict"
    )


def _found(scope: Scope) -> list[bytes]:
    """Return what every cookie of our name says; a browser may send several, in several headers."""
    pairs = [
        pair.strip().partition(b"=")
        for name, value in scope["headers"]
        if name == b"cookie"
        for pair in value.split(b";")
    ]
    return [value for name, _, value in pairs if name == _NAME]


def _encrypted(scope: Scope) -> bool:
    """Say whether the browser speaks TLS, with us or with a proxy before us.

    Nobody has to be believed: whoever lies keeps their own cookie more carefully, or not at all.
    """
    return scope["scheme"] == "https" or any(
        value.startswith(b"https")
        for name, value in scope["headers"]
        if name in {b"origin", b"x-forwarded-proto"}
    )
