"""Whether this machine has what Onward needs, and the servers beside PostgreSQL, as checks."""

from __future__ import annotations

import asyncio
import importlib.util
import platform
import shutil
import socket
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2

from onward.channels.keyring import FILE as MASTER_KEY
from onward.errors import OnwardError
from onward.fleet.doctor.check import Check, Found, Needs, Patient, Repair, broken
from onward.settings import Settings
from onward.store import valkey

_PYTHON: Final = (3, 11)
_SECRETS: Final = ("admin-key", MASTER_KEY)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_MIB: Final = 1024 * 1024
_DISK_LOW: Final = 1024 * _MIB
_DISK_OUT: Final = 100 * _MIB
_PATIENCE_S: Final = 3.0
_REDIS: Final = frozenset({"redis", "rediss", "unix"})
_AMQP_PORT: Final = 5672
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where others listen


async def _python(_: Patient) -> Found:
    if sys.version_info < _PYTHON:
        return broken(f"this is Python {platform.python_version()}")
    return Found(basis=platform.python_version())


async def _extras(patient: Patient) -> Found:
    if patient.settings.broker_url and importlib.util.find_spec("celery") is None:
        return broken("ONWARD_BROKER_URL is set, and Celery is not installed")
    return Found()


def _kept(settings: Settings) -> list[Path]:
    return [path for name in _SECRETS if (path := settings.data_dir / name).is_file()]


def _open(settings: Settings) -> list[Path]:
    return [path for path in _kept(settings) if path.stat().st_mode & _OTHERS]


async def _secrets(patient: Patient) -> Found:
    found = [f"{path} can be read by others" for path in _open(patient.settings)]
    return broken(*found) if found else Found(basis=f"{len(_kept(patient.settings))} files")


async def _close(patient: Patient) -> int:
    found = _open(patient.settings)
    for path in found:
        path.chmod(0o600)
    return len(found)


async def _disk(patient: Patient) -> Found:
    folder = patient.settings.data_dir
    if not folder.is_dir():
        return Found(basis=f"{folder} is not there yet")
    free = shutil.disk_usage(folder).free
    if free < _DISK_LOW:
        told = f"{free // _MIB:,} MiB are free for {folder}"
        return broken(told, warns=free >= _DISK_OUT)
    return Found(basis=f"{free // _MIB:,} MiB free")


async def _redis(patient: Patient) -> Found:
    if patient.settings.redis_url is None:
        return Found(basis="the embedded one is used")
    return await _answers(patient.settings.redis_url)


async def _answers(url: str) -> Found:
    try:
        await valkey.check(url)
    except OnwardError as error:
        return broken(str(error))
    return Found()


async def _broker(patient: Patient) -> Found:
    url = patient.settings.broker_url
    if url is None:
        return Found(basis="none is set")
    parts = urlsplit(url)
    if parts.scheme in _REDIS:
        return await _answers(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or _AMQP_PORT
    why = await _unreached(host, port)
    return broken(f"the broker at {host}:{port} does not answer ({why})") if why else Found()


async def _unreached(host: str, port: int) -> str:
    """Say why nobody answers there; nothing if somebody does."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return "nothing was heard in time"
    except (OSError, socket.gaierror) as error:
        return error.strerror or type(error).__name__
    writer.close()
    return ""


async def _api(patient: Patient) -> Found:
    """Ask the service whether it lives; that none is started is no fault, unless one is named."""
    settings = patient.settings
    address = settings.url or _address(settings)
    try:
        async with httpx2.AsyncClient(timeout=_PATIENCE_S, trust_env=False) as client:
            answer = await client.get(f"{address.rstrip('/')}/health/live")
            lives = answer.is_success and answer.json().get("live") is True
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        if settings.url is None and isinstance(error, httpx2.ConnectError):
            return Found(basis=f"nobody listens at {address}")
        return broken(f"{address} does not answer ({str(error) or type(error).__name__})")
    except (ValueError, AttributeError):
        lives = False
    if lives:
        return Found(basis=f"{address} answers")
    return broken(f"something else than Onward answers at {address}")


def _address(settings: Settings) -> str:
    host = _HERE.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


MACHINE: Final[Sequence[Check]] = (
    Check(
        "python",
        "Python is 3.11 or newer.",
        _python,
        "Install a newer Python, and Onward for it.",
        needs=Needs.NOTHING,
    ),
    Check(
        "extras",
        "What the settings ask for is installed.",
        _extras,
        "Install it: `pip install 'onward[celery]'`.",
        needs=Needs.NOTHING,
    ),
    Check(
        "secrets",
        "Only their owner can read the keys in the data directory.",
        _secrets,
        "Run `onward doctor --repair`, and replace keys that others may have read.",
        needs=Needs.NOTHING,
        repair=Repair("close them to others", _close),
    ),
    Check(
        "disk",
        "There is room on the disk of the data directory.",
        _disk,
        "Make room, or move ONWARD_DATA_DIR.",
        needs=Needs.NOTHING,
    ),
    Check(
        "valkey",
        "The Valkey or Redis of the settings answers.",
        _redis,
        "It only helps, and Onward works without it: start it, or correct ONWARD_REDIS_URL.",
        warns=True,
        needs=Needs.NOTHING,
    ),
    Check(
        "broker",
        "The broker of the settings answers.",
        _broker,
        "Without it, workers find their work only now and then: start it, or correct "
        "ONWARD_BROKER_URL.",
        warns=True,
        needs=Needs.NOTHING,
    ),
    Check(
        "api",
        "The API answers where it should, and nobody else does.",
        _api,
        "Start `onward up` or `onward api`, or choose another ONWARD_PORT or ONWARD_URL.",
        warns=True,
        needs=Needs.NOTHING,
    ),
)
