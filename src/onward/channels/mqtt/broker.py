"""Where the broker is, read from a URL whose password nobody gets to see."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from onward.errors import InvalidInput

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_FIELD: Final = "ONWARD_MQTT_URL"


@dataclass(frozen=True, slots=True)
class Broker:
    """The address of a broker, and who we are to it."""

    host: str
    port: int
    encrypted: bool
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address, for people and logs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def credentials(self) -> tuple[str, str | None] | None:
        """The user's name and password, if there are any."""
        return None if self.username is None else (self.username, self.password)

    def tls(self) -> ssl.SSLContext | None:
        """How to encrypt; the authorities are those of the system, or of SSL_CERT_FILE."""
        return ssl.create_default_context() if self.encrypted else None


def parse(url: str) -> Broker:
    """Read `mqtt[s]://[user[:password]@]host[:port]`. No message repeats any of it."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise InvalidInput(_FIELD, "cannot be read: is the port a number?") from None
    if scheme not in _PORTS:
        raise InvalidInput(_FIELD, "begins with mqtt:// or, encrypted, with mqtts://")
    if not host:
        raise InvalidInput(_FIELD, "names no host: write mqtt://broker.example:1883")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise InvalidInput(_FIELD, "ends with the port: topics are set by ONWARD_MQTT_PREFIX")
    return Broker(
        host,
        _PORTS[scheme] if port is None else port,
        scheme == "mqtts",
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )
