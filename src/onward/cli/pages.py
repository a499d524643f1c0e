"""Generates the pages about settings and commands out of what they are about."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import typer.main
from pydantic.fields import FieldInfo
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from onward.settings import Settings

_GENERATED = "<!-- Written by `onward docs`; edit what it is about instead. -->"


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
    from onward.cli import EXIT_CODES, INTERRUPTED, app

    root = typer.main.get_command(app)
    lines = ["# Commands", "", _GENERATED, ""]
    for path, command in _commands("onward", root):
        lines += _about(path, command)
    failed = ", ".join(sorted({str(code) for code in EXIT_CODES.values()}))
    lines += [
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        "| 0 | It was done. |",
        f"| {failed} | It failed, and a line on standard error says why; or a check did. |",
        "| 2 | The command line was not understood. |",
        f"| {INTERRUPTED} | It was interrupted with Ctrl-C. |",
    ]
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
    if isinstance(command, TyperCommand | TyperGroup):
        yield path, command
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _commands(f"{path} {name}", inner)


def _about(path: str, command: TyperCommand | TyperGroup) -> list[str]:
    usage = [path]
    rows = []
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            usage.append(parameter.metavar or parameter.name.upper())
            rows.append(f"| `{usage[-1]}` | {parameter.help or ''}{_unless(parameter)} |")
        elif isinstance(parameter, TyperOption) and not parameter.hidden:
            rows.append(f"| `{_spelled(parameter)}` | {parameter.help or ''}{_unless(parameter)} |")
    usage.append("COMMAND" if isinstance(command, TyperGroup) else "[OPTIONS]")
    lines = [f"## {path}", "", "```", " ".join(usage), "```", ""]
    lines += [inspect.cleandoc(command.help or ""), ""]
    if rows:
        lines += ["| | |", "|---|---|", *rows, ""]
    return lines


def _spelled(option: TyperOption) -> str:
    names = ", ".join(option.opts)
    return names if option.is_flag else f"{names} {option.name.upper()}"


def _unless(parameter: TyperArgument | TyperOption) -> str:
    """Say what holds when the parameter is not given."""
    if isinstance(parameter.show_default, str):
        return f" Default: {parameter.show_default}."
    if parameter.default in {None, False}:
        return ""
    return f" Default: `{parameter.default}`."


def _page(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"
