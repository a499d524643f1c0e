"""The server as an agent is told of it: one address, for a request and for the connection."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from onward.errors import InvalidInput

_WEB_SOCKET: Final = {"http": "ws", "https": "wss"}
_SAME: Final = {"ws": "http", "wss": "https"}


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server is."""

    http: str
    tls: ssl.SSLContext | None

    @property
    def web_socket(self) -> str:
        """Where the connection is made."""
        scheme, _, rest = self.http.partition("://")
        return f"{_WEB_SOCKET[scheme]}://{rest}/agent"

    @property
    def shown(self) -> str:
        """The address, for people."""
        return self.http


def server_at(url: str, *, insecure: bool = False, ca: Path | None = None) -> Server:
    """Read an address; InvalidInput if it is none, or leads over open ground."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    scheme = _SAME.get(parts.scheme, parts.scheme) if host else ""
    if not host or scheme not in _WEB_SOCKET or parts.query or parts.fragment or parts.username:
        raise InvalidInput("--server", "takes an address such as https://onward.example.com")
    if scheme == "http" and not insecure and not _loopback(host):
        raise InvalidInput(
            "--server",
            f"http to {host} can be read by everybody on the way: use https, "
            "or say --insecure if you trust that network",
        )
    where = f"[{host}]" if ":" in host else host
    where += "" if port is None else f":{port}"
    return Server(f"{scheme}://{where}{parts.path.rstrip('/')}", _tls(scheme, ca))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(scheme: str, ca: Path | None) -> ssl.SSLContext | None:
    if scheme == "http":
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError):
        raise InvalidInput("--ca", f"{ca} holds no certificates that can be read") from None
