"""`onward help`: what belongs to no command alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

import typer

from onward.cli.exits import Exit

Topic = Literal["exit-codes", "output", "environment", "selectors"]


def topics(
    topic: Annotated[
        Topic | None, typer.Argument(metavar="[TOPIC]", help="What to explain.")
    ] = None,
) -> None:
    """Explain exit codes, output, the environment or selectors; `COMMAND --help` has the rest."""
    if topic is None:
        typer.echo("onward help TOPIC explains one of:\n")
        for name, (about, _) in _TOPICS.items():
            typer.echo(f"  {name:<13}{about}")
        typer.echo("\n`onward --help` lists the commands, and each of them has --help.")
        return
    typer.echo(_TOPICS[topic][1]().rstrip())


def exit_codes() -> str:
    """What a script can tell apart."""
    return "\n".join(f"{code:>4}  {code.meaning}" for code in Exit)


def _output() -> str:
    return inspect.cleandoc(
        """
        Data is on standard output; questions, progress and notes are on standard error.

          -o table      for people, as wide as the terminal (the default)
          -o json       one document, a list for lists
          -o jsonl      one line each, as they come
          -o yaml       one document
          --json        as -o json
          --json a,b    only these fields, as JSON; a wrong one is answered with all there are
          -q, --quiet   ids alone, one a line

        Colours are used on a terminal, unless NO_COLOR is set or TERM is dumb; CLICOLOR_FORCE and
        --color always or never decide otherwise. Where nothing but ASCII can be shown, nothing
        else is. Whatever a host says that could move a cursor or change a colour is written out.

        Without a terminal nothing is asked: the command says which flag it wants instead.
        """
    )


def _environment() -> str:
    return inspect.cleandoc(
        """
        A command talks to the service that is named first here:

          --url URL, then --context NAME
          ONWARD_URL, then ONWARD_CONTEXT
          the current context (`onward context use`)
          the service of this machine

        and shows the key of

          the context, if --context names one
          ONWARD_KEY
          the context, but only to its own address
          the first start of the service of this machine, if that is where it is

          ONWARD_CONFIG    the file of contexts
          NO_COLOR, CLICOLOR_FORCE, TERM, COLUMNS

        `onward context show` says what it comes to, and why.
        """
    )


def _selectors() -> str:
    return inspect.cleandoc(
        """
        all                             every host that is not disabled
        role=web and not zone=eu        an expression over labels
        role in (web, db), has canary   one of several; whether there is such a label
        name=web-*                      by name
        @hosts.txt, @-                  names, one a line, from a file or standard input

        Nobody is selected by accident: who matches nobody, or names a host that there is not, is
        told so, and nothing is run.
        """
    )


_TOPICS: Final[Mapping[str, tuple[str, Callable[[], str]]]] = MappingProxyType(
    {
        "exit-codes": ("what a script can tell apart", exit_codes),
        "output": ("tables, JSON, colours, questions", _output),
        "environment": ("which service, which key, and who decides", _environment),
        "selectors": ("whom a job is for", _selectors),
    }
)
