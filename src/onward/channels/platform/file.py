"""Reads the file that describes the platforms.

Whatever is wrong with it is told with the name of the platform and the field, before anything is
sent anywhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onward.channels.platform import forms
from onward.channels.platform.description import NO_PLATFORMS, Platform, Platforms, Shape, Word
from onward.channels.platform.pointers import Pointer, pointer
from onward.core.lifecycles import PLATFORM, PLATFORM_LENIENT, lifecycle_named
from onward.errors import InvalidInput

_is_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}").fullmatch
_is_header = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_is_header_value = re.compile(r"[\x20-\x7e]*").fullmatch
_OURS: Final = frozenset(
    {"connection", "content-length", "content-type", "host", "idempotency-key", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
_LIFECYCLES: Final = (PLATFORM.name, PLATFORM_LENIENT.name)
_NAMED: Final = frozenset({"cmd_id", "device_id", "command_type"})
_IN_BODY: Final = _NAMED | {"params", "timeout_s", "timeout_ms", "callback_url"}
_MERGED: Final = ("words", "callback", "headers")  # field by field with those of a preset


def load(path: Path | None) -> Platforms:
    """Read a file of descriptions; `InvalidInput` says what is wrong with it."""
    if path is None:
        return NO_PLATFORMS
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("ONWARD_PLATFORMS", f"{path} cannot be read: {error}") from None
    return read(text, folder=path.parent)


def read(text: str, *, folder: Path = Path()) -> Platforms:
    """Read descriptions; files that they name are looked for in `folder`."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("ONWARD_PLATFORMS", f"the file is not TOML: {error}") from None
    return MappingProxyType(
        {name: _platform(name, table, folder) for name, table in tables.items()}
    )


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Meaning(_Strict):
    status: str
    failed: bool = False
    cancelled: bool = False


class _Callback(_Strict):
    url: str = ""
    task_id: str
    device_id: str
    status: str
    error: str | None = None
    result: str | None = None


_Method = Literal["POST", "PUT", "PATCH", "DELETE"]


class _Description(_Strict):
    preset: str | None = None
    lifecycle: str = PLATFORM.name
    url: str
    path: str = ""
    method: _Method = "POST"
    cancel_url: str | None = None
    cancel_path: str | None = None
    cancel_method: _Method = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    body: dict[str, Any]
    task_id: str | None = None
    callback: _Callback = _Callback(task_id="/task_id", device_id="/device_id", status="/status")
    words: dict[str, str | _Meaning] = Field(default_factory=dict)
    insecure: bool = False
    private: bool = False
    ca: str | None = None
    timeout_s: Annotated[float, Field(gt=0, le=300, strict=False)] = 10.0
    connections: Annotated[int, Field(ge=1, le=10_000)] = 20


def _platform(name: str, table: object, folder: Path) -> Platform:
    if not _is_name(name):
        raise InvalidInput(
            f"[{name:.80}]", "takes 1 to 63 small letters, digits, - and _: it stands in addresses"
        )
    if not isinstance(table, dict):
        raise InvalidInput(name, f"is a table: write it below [{name}]")
    told = _described(name, _with_preset(name, table))
    if told.lifecycle not in _LIFECYCLES:
        raise InvalidInput(f"{name}.lifecycle", f"takes {' or '.join(_LIFECYCLES)}")
    forms.check(f"{name}.body", told.body, _IN_BODY)
    url = _address(name, "url", told.url.rstrip("/") + told.path, told)
    return Platform(
        name=name,
        lifecycle=told.lifecycle,
        method=told.method,
        url=url,
        cancel_method=told.cancel_method,
        cancel_url=_cancel_url(name, told, url),
        headers=_headers(name, told.headers),
        body=told.body,
        callback_url=told.callback.url,
        task_id=None if told.task_id is None else pointer(f"{name}.task_id", told.task_id),
        shape=_shape(name, told.callback),
        words={word: _word(name, told.lifecycle, word, each) for word, each in told.words.items()},
        private=told.private,
        ca=None if told.ca is None else folder / told.ca,
        timeout_s=told.timeout_s,
        connections=told.connections,
    )


def _with_preset(name: str, table: dict[str, Any]) -> dict[str, Any]:
    if "preset" not in table:
        return table
    known = presets()
    if not isinstance(table["preset"], str) or table["preset"] not in known:
        raise InvalidInput(f"{name}.preset", f"takes one of {', '.join(sorted(known))}")
    begun = known[table["preset"]]
    merged = {
        key: {**begun[key], **table[key]}
        for key in _MERGED
        if isinstance(begun.get(key), dict) and isinstance(table.get(key), dict)
    }
    return {**begun, **table, **merged}


def presets() -> dict[str, dict[str, Any]]:
    """What is known about platforms that many people have."""
    text = resources.files(__package__).joinpath("presets.toml").read_text("utf-8")
    return tomllib.loads(text)


def _described(name: str, table: Mapping[str, Any]) -> _Description:
    try:
        return _Description.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in (name, *first["loc"]))
        raise InvalidInput(place, first["msg"]) from None


def _cancel_url(name: str, told: _Description, url: str) -> str | None:
    if told.cancel_url is None and told.cancel_path is None:
        return None
    form = told.cancel_url or told.url.rstrip("/") + (told.cancel_path or "")
    cancel_url = _address(name, "cancel_url", form, told, more=frozenset({"task_id"}))
    if origin_of(cancel_url) != origin_of(url):
        raise InvalidInput(f"{name}.cancel_url", "has to be at the same server as url")
    return cancel_url


def origin_of(url: str) -> tuple[str, str]:
    """The part of an address that says which server is asked."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _address(
    name: str, key: str, form: str, told: _Description, *, more: frozenset[str] = frozenset()
) -> str:
    """Check the form of an address: the server is fixed, and only what follows is filled in."""
    place = f"{name}.{key}"
    forms.check(place, form, _NAMED | more)
    try:
        parts = urlsplit(form)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidInput(place, "is no address") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and told.insecure):
        raise InvalidInput(
            place, "has to begin with https://; http:// only if insecure = true says so"
        )
    if not host or not form.isascii() or not form.isprintable() or {*form} & {*' "<>\\^`|'}:
        raise InvalidInput(place, "is no address: write other than plain ASCII in % or as xn--")
    if "@" in parts.netloc:
        raise InvalidInput(place, "has a user or password in it: use headers, with env:VARIABLE")
    if {*parts.netloc} & {*"{}"} or parts.fragment:
        raise InvalidInput(place, "takes {names} in its path or query only, and no #")
    return form


def _headers(name: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in headers.items():
        place = f"{name}.headers.{key:.80}"
        if not _is_header(key) or not _is_header_value(value):
            raise InvalidInput(place, "is no header: plain ASCII on one line")
        if key.lower() in _OURS:
            raise InvalidInput(place, "is set by Onward itself")
    return headers


def _shape(name: str, told: _Callback) -> Shape:
    def at(key: str) -> Pointer:
        return pointer(f"{name}.callback.{key}", getattr(told, key))

    return Shape(
        task_id=at("task_id"),
        device_id=at("device_id"),
        status=at("status"),
        error=None if told.error is None else at("error"),
        result=None if told.result is None else at("result"),
    )


def _word(name: str, lifecycle: str, word: str, told: str | _Meaning) -> Word:
    meaning = Word(told) if isinstance(told, str) else Word(**told.model_dump())
    place, table = f"{name}.words.{word:.80}", lifecycle_named(lifecycle)
    event = table.event_called(meaning.status)
    if event is None:
        raise InvalidInput(place, f"takes one of {', '.join(table.states)}")
    if (meaning.failed or meaning.cancelled) and event not in table.results:
        ends = sorted(table.moves[result].target for result in table.results)
        raise InvalidInput(place, f"can only be failed or cancelled as {', '.join(ends)}")
    return meaning
