"""The services that somebody talks to: a file of contexts, and which of them a command means.

1. What a command line says comes first: `--url`, then `--context`. Then the environment, then the
   current context of the file, then the service of this machine.
2. The key of a context goes to the address of that context, and nowhere else.
3. The file is written whole or not at all, and only its owner can read it.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import platformdirs
import typer

from onward.cli.exits import Usage
from onward.cli.tree import Given
from onward.errors import InvalidInput
from onward.settings import Settings

FILE: Final = "config.toml"
CONFIRM_ABOVE: Final = 10

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch
_OF_CONTEXT: Final = frozenset({"url", "key", "key_file"})
_OF_FILE: Final = frozenset({"current", "confirm_above", "contexts"})


@dataclass(frozen=True, slots=True)
class Context:
    """A service, and where one's key for it is."""

    url: str
    key: str | None = field(default=None, repr=False)
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """What is in the file."""

    current: str | None = None
    confirm_above: int = CONFIRM_ABOVE
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context:
        """Return the context of a name, or say which there are."""
        if name not in self.contexts:
            known = ", ".join(self.contexts) or "none yet: `onward context add` makes one"
            raise Usage(f"There is no context {name!a:.80}; there are {known}.")
        return self.contexts[name]


@dataclass(frozen=True, slots=True)
class Target:
    """The service that a command talks to, and where that was said."""

    url: str | None  # none: the service of this machine
    url_from: str
    context: str | None = None
    key: str | None = field(default=None, repr=False)
    key_file: Path | None = None
    key_from: str = ""
    confirm_above: int = CONFIRM_ABOVE


def path_of(settings: Settings) -> Path:
    """Where the file is, or would be."""
    return settings.config or platformdirs.user_config_path("onward") / FILE


def read(path: Path) -> Config:
    """Read the file; without one, there are no contexts."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Config()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(str(path), f"cannot be read: {why}") from None
    return _config(path, found)


def write(path: Path, config: Config) -> None:
    """Write the file whole, for its owner alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # for its owner alone
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(_text(config))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be written: {error.strerror}") from None


def checked_name(name: str) -> str:
    """Return the name of a context, or say what it takes."""
    if not _NAME(name):
        raise Usage("The name of a context takes letters, digits, dots, dashes and _, at most 64.")
    return name


def target(settings: Settings, given: Given) -> Target:
    """Decide which service a command means, and with which key."""
    path = path_of(settings)
    config = read(path)
    _warn_of_readers(path, config)
    chosen = _chosen(config, settings, given)
    found = _of_context(config, chosen[0], chosen[1], path) if chosen else Target(None, _OWN)
    if given.url is not None:
        # The key of a context is for its own address only.
        same = chosen is not None and found.url == given.url
        found = replace(found, url_from="--url") if same else Target(given.url, "--url")
    elif chosen is None and settings.url is not None:
        found = Target(settings.url, "ONWARD_URL")
    named = given.context is not None and (found.key is not None or found.key_file is not None)
    if settings.key is not None and not named:
        secret = settings.key.get_secret_value()
        found = replace(found, key=secret, key_file=None, key_from="ONWARD_KEY")
    return replace(found, confirm_above=config.confirm_above)


def _warn_of_readers(path: Path, config: Config) -> None:
    """Say so if others can read the keys of a file, which somebody has made by hand."""
    keys = any(each.key is not None for each in config.contexts.values())
    if keys and os.name == "posix" and path.stat().st_mode & 0o077:
        typer.echo(
            f"onward: others can read {path}, and there are keys in it: chmod 600 {path}", err=True
        )


_OWN: Final = "the service of this machine"


def _chosen(config: Config, settings: Settings, given: Given) -> tuple[str, str] | None:
    """The name of the context that counts, and who said so."""
    if given.context is not None:
        return given.context, "--context"
    if given.url is None and settings.url is not None:
        return None
    if settings.context is not None:
        return settings.context, "ONWARD_CONTEXT"
    return None if config.current is None else (config.current, "the current context")


def _of_context(config: Config, name: str, who: str, path: Path) -> Target:
    found = config.named(name)
    where = f"{who}, {name} in {path}"
    return Target(
        url=found.url,
        url_from=where,
        context=name,
        key=found.key,
        key_file=_expanded(found.key_file),
        key_from=where if found.key else (found.key_file or ""),
    )


def _expanded(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser()


def _config(path: Path, found: Mapping[str, object]) -> Config:
    """Make sense of the file, or say what in it makes none."""
    _refuse_unknown(path, "", found, _OF_FILE)
    contexts = found.get("contexts", {})
    current = found.get("current")
    above = found.get("confirm_above", CONFIRM_ABOVE)
    if not isinstance(contexts, dict):
        raise InvalidInput("contexts", f"takes tables such as [contexts.prod], in {path}")
    if current is not None and not isinstance(current, str):
        raise InvalidInput("current", f"takes the name of a context, in {path}")
    if isinstance(above, bool) or not isinstance(above, int) or above < 0:
        raise InvalidInput("confirm_above", f"takes a number of hosts, in {path}")
    return Config(
        current, above, {name: _context(path, name, each) for name, each in contexts.items()}
    )


def _context(path: Path, name: str, found: object) -> Context:
    where = f"contexts.{name}"
    if not isinstance(found, dict) or not isinstance(found.get("url"), str):
        raise InvalidInput(where, f'takes at least url = "https://…", in {path}')
    _refuse_unknown(path, f"{where}.", found, _OF_CONTEXT)
    for key in _OF_CONTEXT & found.keys():
        if not isinstance(found[key], str):
            raise InvalidInput(f"{where}.{key}", f"takes text, in {path}")
    return Context(**found)


def _refuse_unknown(
    path: Path, where: str, found: Mapping[str, object], known: frozenset[str]
) -> None:
    if unknown := sorted(found.keys() - known):
        raise InvalidInput(
            f"{where}{unknown[0]}", f"is none of {', '.join(sorted(known))}, in {path}"
        )


def _text(config: Config) -> str:
    lines = ["# Written by `onward context`."]
    if config.current is not None:
        lines.append(f"current = {_quoted(config.current)}")
    if config.confirm_above != CONFIRM_ABOVE:
        lines.append(f"confirm_above = {config.confirm_above}")
    for name, each in config.contexts.items():
        lines += ["", f"[contexts.{_quoted(name)}]", f"url = {_quoted(each.url)}"]
        for key in ("key", "key_file"):
            if (value := getattr(each, key)) is not None:
                lines.append(f"{key} = {_quoted(value)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # Nothing with control characters comes here, and the rest JSON and TOML write alike.
    return json.dumps(text, ensure_ascii=False)
