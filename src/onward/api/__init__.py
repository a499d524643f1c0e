"""The HTTP API: FastAPI by resource, on one foundation.

What every request goes through, in this order:

- `edge`: a request id, limits on headers and address, headers of every answer, the last resort;
- `routing`: who calls (`auth`, `signatures`), what they may (`permissions`), a strict `body`;
- FastAPI's own validation, then the handler;
- `problems`: whatever went wrong, as `application/problem+json`.
"""
