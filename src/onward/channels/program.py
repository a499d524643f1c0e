"""What a host is to run: a program and its arguments, made from what a job says.

1. A type may fix its arguments; `{name}` in one of them stands for the parameter of that name, and
   whatever the parameter holds stays within that one argument. Elsewhere `{{` and `}}` are braces.
   An argument that is nothing but `{name}` becomes several if the parameter is a list.
2. Without such a type, the job says itself what is run: `argv`, or `shell` for a script that is
   handed to `sh` because somebody asked for that by name.
3. A masked parameter is never an argument, because everybody on the host can read those. The
   program finds it in its environment as `ONWARD_` and the name in capitals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from onward.channels.base import Delivery
from onward.errors import HostRefused, InvalidInput

ARGUMENTS_MAX: Final = 1_024
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_KNOWN: Final = frozenset({"argv", "shell", "env", "cwd", "stdin", "user"})
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_is_param = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_is_user = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*").fullmatch


class Program(NamedTuple):
    """A program, and what it is started with."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = NOTHING  # beside what the host gives it
    cwd: str | None = None
    stdin: str | None = None
    user: str | None = None  # through sudo, which must not ask for a password
    secrets: Mapping[str, str] = NOTHING  # more of `env`, to be shown to nobody

    def __repr__(self) -> str:
        return f"Program({self.argv!r})"


def check_template(argv: Sequence[str], masked: Sequence[str]) -> None:
    """Refuse arguments of a type that no job could fill in, or that would show a secret."""
    if not 1 <= len(argv) <= ARGUMENTS_MAX:
        raise InvalidInput("argv", f"takes 1 to {ARGUMENTS_MAX} arguments")
    if not argv[0]:
        raise InvalidInput("argv[0]", "is empty: it is the program that is run")
    for place, argument in enumerate(argv):
        _refuse_nul(f"argv[{place}]", argument)
        for name in _names(f"argv[{place}]", argument):
            if name in masked:
                raise InvalidInput(
                    f"argv[{place}]",
                    f"{name} is masked, and everybody on the host can read arguments; "
                    f"the program finds it in its environment as {secret_name(name)}",
                )
    check_masked(masked)


def check_masked(masked: Sequence[str]) -> None:
    """Refuse names that could not stand in an environment, or not both of them."""
    for place, name in enumerate(masked):
        if not _is_param(name):
            raise InvalidInput(
                f"masked[{place}]", "takes letters, digits and _, and begins with no digit"
            )
        if secret_name(name) in map(secret_name, masked[:place]):
            raise InvalidInput(
                f"masked[{place}]",
                f"another one is {secret_name(name)} in the environment already",
            )


def secret_name(name: str) -> str:
    """The variable in which a program finds a masked parameter."""
    return f"ONWARD_{name.upper()}"


def secrets_of(params: Mapping[str, object], masked: Sequence[str]) -> dict[str, str]:
    """The values that nobody is to see, by the name of the parameter."""
    return {name: _text(f"params.{name}", params[name]) for name in masked if name in params}


def program_of(
    params: Mapping[str, object], *, argv: Sequence[str] | None, masked: Sequence[str]
) -> Program:
    """Make the program of a job; `InvalidInput` says what the job does not say."""
    hidden = secrets_of(params, masked)
    secrets = {secret_name(name): value for name, value in hidden.items()}
    if argv is not None:
        return Program(_filled(argv, params), secrets=secrets)
    said = {name: value for name, value in params.items() if name not in hidden}
    if unknown := sorted(said.keys() - _KNOWN):
        raise InvalidInput(
            f"params.{unknown[0]}",
            f"is none of {', '.join(sorted(_KNOWN))}, and the type has no argv",
        )
    return Program(
        _own_argv(said),
        env=_env(said.get("env")),
        cwd=_optional(said, "cwd"),
        stdin=_optional(said, "stdin"),
        user=_user(said),
        secrets=secrets,
    )


def program_for(delivery: Delivery) -> Program:
    """Make the program of an attempt; `HostRefused` if the job does not say what to run."""
    try:
        return program_of(delivery.params, argv=delivery.argv, masked=delivery.masked)
    except InvalidInput as error:
        raise HostRefused(str(error)) from None


def _own_argv(params: Mapping[str, object]) -> tuple[str, ...]:
    argv, shell = params.get("argv"), params.get("shell")
    if (argv is None) == (shell is None):
        raise InvalidInput(
            "params",
            'says not what to run: give it "argv", a list such as ["uptime", "-p"], '
            'or "shell", a script for sh, and not both',
        )
    if shell is not None:
        return ("sh", "-c", _words("params.shell", shell))
    if not isinstance(argv, list) or not 1 <= len(argv) <= ARGUMENTS_MAX:
        raise InvalidInput("params.argv", f"takes a list of 1 to {ARGUMENTS_MAX} arguments")
    words = tuple(_words(f"params.argv[{place}]", each) for place, each in enumerate(argv))
    if not words[0]:
        raise InvalidInput("params.argv[0]", "is empty: it is the program that is run")
    return words


def _env(value: object) -> Mapping[str, str]:
    if value is None:
        return NOTHING
    if not isinstance(value, dict):
        raise InvalidInput("params.env", 'takes an object such as {"LANG": "C"}')
    for name in value:
        if not _is_param(name):
            raise InvalidInput("params.env", f"{name!a:.80} cannot be the name of a variable")
    return {name: _words(f"params.env.{name}", each) for name, each in value.items()}


def _user(params: Mapping[str, object]) -> str | None:
    user = _optional(params, "user")
    if user is not None and not _is_user(user):
        raise InvalidInput("params.user", f"{user!a:.80} cannot be the name of a user")
    return user


def _optional(params: Mapping[str, object], name: str) -> str | None:
    value = params.get(name)
    return None if value is None else _words(f"params.{name}", value)


def _words(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, "takes text")
    return _refuse_nul(field, value)


def _refuse_nul(field: str, value: str) -> str:
    if "\0" in value:
        raise InvalidInput(field, "has a zero byte, which no argument can hold")
    return value


def _filled(argv: Sequence[str], params: Mapping[str, object]) -> tuple[str, ...]:
    filled: list[str] = []
    for argument in argv:
        alone = _PIECE.fullmatch(argument)
        value = params.get(alone[1]) if alone and alone[1] else None
        if alone and isinstance(value, list):
            filled += [_text(f"params.{alone[1]}[{n}]", each) for n, each in enumerate(value)]
        else:
            filled.append(_PIECE.sub(lambda piece: _piece(piece, params), argument))
    if len(filled) > ARGUMENTS_MAX:
        raise InvalidInput("params", f"would make more than {ARGUMENTS_MAX} arguments")
    if not filled or not filled[0]:
        raise InvalidInput("params", f"leave {argv[0]}, the program that is run, empty")
    return tuple(filled)


def _piece(piece: re.Match[str], params: Mapping[str, object]) -> str:
    name = piece[1]
    if name is None:
        return piece[0][0]
    if name not in params:
        raise InvalidInput(f"params.{name}", "is missing: the arguments of the type name it")
    return _text(f"params.{name}", params[name])


def _text(field: str, value: object) -> str:
    """A parameter as it stands in an argument or a variable."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return _refuse_nul(field, value)
        case _:
            raise InvalidInput(field, "takes text, a number, true or false")


def _names(field: str, argument: str) -> list[str]:
    names = []
    for piece in _PIECE.finditer(argument):
        if piece[1] is None and len(piece[0]) == 1:
            raise InvalidInput(field, "has a single brace: write {{ or }} for a brace")
        if piece[1] is not None:
            if not _is_param(piece[1]):
                raise InvalidInput(
                    field, f"{piece[0]!a:.80} names no parameter: use letters, digits and _"
                )
            names.append(piece[1])
    return names
