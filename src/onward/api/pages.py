"""The dashboard, as it is served: one page, and the files that it loads."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.responses import Response

from onward.api.body import StrictRequest
from onward.api.permissions import Permission, needs
from onward.api.problems import Problem
from onward.api.routing import DirectRoute, router
from onward.dashboard import site

# Nothing from elsewhere, nothing inline, and no text can become a script, whoever wrote it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types onward"
)
_PAGE: Final = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# The address changes with the content.
_KEPT: Final = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}

pages = router("", "dashboard")
# A page is some thirty files, and all of them are asked for at once.
files = router("/dashboard", "dashboard", route_class=DirectRoute)


@pages.get("/", include_in_schema=False, **needs(Permission.PUBLIC))
async def dashboard_page(request: Request) -> Response:
    """Return the dashboard."""
    etag = f'"{site().digest}"'
    headers = {**_PAGE, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(site().index, media_type="text/html", headers=headers)


@files.get("/{digest}/{name:path}", include_in_schema=False, **needs(Permission.PUBLIC))
async def dashboard_file(request: StrictRequest) -> Response:
    """Return a file that the dashboard loads."""
    wanted = request.path_params
    file = site().files.get(wanted["name"]) if wanted["digest"] == site().digest else None
    if file is None:
        raise Problem(
            404, "not-found", "There is nothing at this address", "Load the dashboard anew."
        )
    # A worker is judged by the policy of its own script.
    headers = {
        **_KEPT,
        "Content-Security-Policy": "default-src 'none'; connect-src 'self'; script-src 'self'",
    }
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            file.packed,
            media_type=file.media_type,
            headers={**headers, "Content-Encoding": "gzip"},
        )
    return Response(file.content, media_type=file.media_type, headers=headers)
