"""Logging in with a browser, and out again.

A key is shown once. What the browser keeps instead is a secret of its own in a cookie, which ends
after `ONWARD_SESSION_HOURS`, with the key, or when its owner logs out.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Request, Response
from pydantic import AfterValidator, Field

from onward.api import cookies
from onward.api.auth import caller_in
from onward.api.keys import Me, shown_to
from onward.api.models import Model
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import unauthorized
from onward.api.routing import router
from onward.api.services import Serving
from onward.api.tracing import request_id_of
from onward.api.tries import Tries

_KEY_MIN: Final = 32
_KEY_MAX: Final = 255
_VISIBLE = re.compile("[!-~]*").fullmatch
_CROSS_SITE: Final = {403: problem_response("A page of another site has sent it")}

session = router("/session", "keys")


def _visible(key: str) -> str:
    if not _VISIBLE(key):
        raise ValueError("a key has no spaces in it or around it, and nothing but ASCII")
    return key


class LogIn(Model):
    """The key of whoever logs in."""

    key: Annotated[
        str,
        Field(
            min_length=_KEY_MIN,
            max_length=_KEY_MAX,
            description="As it was shown when it was made.",
            examples=["onw_an-example-of-a-key-that-nobody-has-ever-made"],
        ),
        AfterValidator(_visible),
    ]


@session.post(
    "",
    status_code=201,
    **needs(
        Permission.PUBLIC,
        responses={
            401: problem_response("The key is not known, or was revoked"),
            429: problem_response("Too many keys that nobody has came from there"),
            **_CROSS_SITE,
        },
    ),
)
async def log_in(wanted: LogIn, request: Request, response: Response, services: Serving) -> Me:
    """Log in with a key: the browser is given a cookie, and is told who it is now."""
    # Or a page could log a browser in as somebody else, who then sees what its owner does.
    cookies.refuse_other_sites(request.scope)
    tries: Tries = request.app.state.logins
    where = request.client.host if request.client else ""
    lasts_s = services.settings.session_hours * 3_600
    begun = await services.sessions.begin(
        wanted.key.encode(), lasts_s=lasts_s, request_id=request_id_of(request)
    )
    if begun is None:
        # After the look: behind a proxy, those who guess and those who know have one address.
        tries.refuse(where, "keys that nobody has")
        tries.failed(where)
        raise unauthorized("key-unknown", "This key is not known, or has been revoked.")
    found, secret = begun
    cookies.give(response, secret, scope=request.scope, lasts_s=lasts_s)
    return shown_to(caller_in(found))


@session.delete(
    "",
    status_code=204,
    **needs(
        Permission.PUBLIC,
        responses={
            401: problem_response(f"The cookie came without `{cookies.PAGE}: 1`"),
            **_CROSS_SITE,
        },
    ),
)
async def log_out(request: Request, response: Response, services: Serving) -> None:
    """Log out: the session is over, and the browser forgets it. Without one, nothing happens."""
    if shown := cookies.secrets_of(request.scope):
        await services.sessions.end(shown, request_id=request_id_of(request))
    cookies.take(response, scope=request.scope)
