"""The API's own description: `/openapi.json`, and a page to read it that needs no other server."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from fastapi import Request
from starlette.responses import JSONResponse, Response

from onward.api.cookies import NAME, PAGE
from onward.api.permissions import Permission, needs
from onward.api.problems import Problem
from onward.api.routing import router

# What the page loads: the files of Swagger UI, out of the package that ships them.
_FILES: Final = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
_STARTER: Final = "start.js"
_CACHED: Final = {"Cache-Control": "public, max-age=86400"}

# Relative addresses: the page works below any prefix that a proxy puts before it. Its script is a
# file of its own, so that the policy need not allow scripts inside the page.
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Onward API</title>
<link rel="icon" href="docs/static/favicon.png">
<link rel="stylesheet" href="docs/static/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="docs/static/swagger-ui-bundle.js"></script>
<script src="docs/static/start.js"></script>
</body>
</html>
"""
_START: Final = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis],
});
"""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

SCHEMAS: Final[dict[str, object]] = {
    "Problem": {
        "title": "Problem",
        "description": "What went wrong (RFC 9457).",
        "type": "object",
        "required": ["type", "title", "status", "detail", "instance", "code", "request_id"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string", "format": "uri"},
            "code": {"type": "string", "description": "What kind of problem it is."},
            "request_id": {"type": "string"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["pointer", "detail"],
                    "properties": {
                        "in": {"type": "string", "enum": ["body", "path", "query", "header"]},
                        "pointer": {"type": "string", "description": "A JSON pointer."},
                        "line": {"type": "integer", "description": "In a body of many lines."},
                        "detail": {"type": "string"},
                    },
                },
            },
        },
    }
}
SECURITY: Final[dict[str, object]] = {
    "key": {"type": "http", "scheme": "bearer", "description": "`onw_...`, as it was shown once."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": NAME,
        "description": f"Of a browser that has logged in; counts only with `{PAGE}: 1`.",
    },
    "webhook": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "Standard Webhooks: with webhook-id and webhook-timestamp.",
    },
}

documents = router("", "documents")


@documents.get("/openapi.json", include_in_schema=False, **needs(Permission.PUBLIC))
async def openapi_document(request: Request) -> Response:
    """Return the description of the API."""
    return JSONResponse(request.app.openapi())


@documents.get("/docs", include_in_schema=False, **needs(Permission.PUBLIC))
async def docs_page() -> Response:
    """Return the page that shows the description."""
    return Response(_PAGE, media_type="text/html", headers={"Content-Security-Policy": _POLICY})


@documents.get("/docs/static/{name}", include_in_schema=False, **needs(Permission.PUBLIC))
async def docs_file(name: str) -> Response:
    """Return a file that the page loads."""
    if name == _STARTER:
        return Response(_START, media_type="text/javascript", headers=_CACHED)
    if name not in _FILES:
        raise Problem(404, "not-found", "There is nothing at this address")
    return Response(_file(name), media_type=_FILES[name], headers=_CACHED)


@cache
def _file(name: str) -> bytes:
    return resources.files("fastapi_offline").joinpath("static", name).read_bytes()
