"""Generates the pages about settings and commands out of what they are about."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import typer.main
from pydantic.fields import FieldInfo
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from onward.settings import Settings

_GENERATED = "<!-- Written by `onward docs`; edit what it is about instead. -->"

_SHARED = """\
Every command has `--help`.
Those that talk to a service take `--context`, `--url`, `--color` and `--no-input`.
Those that print data take `-o table|json|jsonl|yaml`, `--json [FIELD,...]` and `--quiet` as well.
A noun without a verb is its list: `onward jobs --open` is `onward jobs list --open`.
[The guide](cli-guide.md) shows how they go together.
"""


def settings() -> str:
    """Return the page of everything that can be configured."""
    lines = [
        "# Settings",
        "",
        _GENERATED,
        "",
        "Each is read once, from the environment.",
        "",
        "| variable | default | what it is for |",
        "|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        prefix = Settings.model_config["env_prefix"]
        lines.append(f"| `{prefix}{name.upper()}` | {_default(field)} | {_purpose(field)} |")
    return _page(lines)


def cli() -> str:
    """Return the page of every command."""
    from onward.cli import app
    from onward.cli.exits import Exit

    root = typer.main.get_command(app)
    lines = ["# Commands", "", _GENERATED, ""]
    lines += [_SHARED]
    for path, command in _commands("onward", root):
        lines += _about(path, command)
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {code.meaning} |" for code in Exit]
    return _page(lines)


def _default(field: FieldInfo) -> str:
    # A factory's value depends on the machine, and the page must not.
    if field.default_factory is not None:
        return "depends on the system"
    return "unset" if field.default is None else f"`{field.default}`"


def _purpose(field: FieldInfo) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    bounds = [
        f"{word} {getattr(rule, name):,}"
        for rule in field.metadata
        for name, word in words.items()
        if hasattr(rule, name)
    ]
    limits = f" ({', '.join(bounds)})" if bounds else ""
    return f"{field.description}{limits}"


def _commands(path: str, command: object) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    if isinstance(command, TyperCommand | TyperGroup) and not command.hidden:
        yield path, command
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _commands(f"{path} {name}", inner)


def _about(path: str, command: TyperCommand | TyperGroup) -> list[str]:
    usage = [path]
    rows = []
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            name = parameter.metavar or parameter.name.upper()
            usage.append(f"{name}..." if parameter.nargs == -1 else name)
            rows.append(f"| `{name}` | {parameter.help or ''}{_unless(parameter)} |")
        elif isinstance(parameter, TyperOption) and not _left_out(path, parameter):
            rows.append(f"| `{_spelled(parameter)}` | {parameter.help or ''}{_unless(parameter)} |")
    usage.append("COMMAND" if isinstance(command, TyperGroup) else "[OPTIONS]")
    lines = [f"## {path}", "", "```", " ".join(usage), "```", ""]
    lines += [inspect.cleandoc(command.help or ""), ""]
    if command.epilog:
        lines += ["```console", *_typed(command.epilog), "```", ""]
    if rows:
        lines += ["| | |", "|---|---|", *rows, ""]
    return lines


def _left_out(path: str, option: TyperOption) -> bool:
    # What many commands share is told once.
    return option.hidden or (not option.expose_value and path != "onward")


def _typed(examples: str) -> Iterator[str]:
    for line in inspect.cleandoc(examples).splitlines():
        yield f"$ {line}"


def _spelled(option: TyperOption) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _unless(parameter: TyperArgument | TyperOption) -> str:
    """Say what holds when the parameter is not given."""
    if isinstance(parameter.show_default, str):
        return f" Default: {parameter.show_default}."
    if parameter.default in {None, False}:
        return ""
    return f" Default: `{parameter.default}`."


def _page(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"
