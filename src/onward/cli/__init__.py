"""The command `onward`: one module a noun, each loaded when it is needed.

What a command has to say goes to standard output, how it gets on to standard error. A failure is
one line there; what the exit codes mean is a table in `exits`, and chosen nowhere else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from onward import __version__, errors
from onward.cli.exits import EXIT_CODES as EXIT_CODES
from onward.cli.exits import Exit, of_error
from onward.cli.tree import Branch, Given, Root, given_of

if TYPE_CHECKING:
    from typer._click.core import Context

_RUN, _LOOK, _SET, _SERVE, _TRY = (
    "Run",
    "Look and decide",
    "Set up",
    "Serve",
    "Try and measure",
)

TREE: Final[Mapping[str, Branch]] = MappingProxyType(
    {
        "run": Branch("run:app", "Run something on hosts: plan, confirm, watch, compare.", _RUN),
        "jobs": Branch("jobs:app", "What was asked for: list, watch, decide, stop, retry.", _RUN),
        "executions": Branch(
            "executions:app", "One command on one host: where it is, why, what it printed.", _RUN
        ),
        "approvals": Branch("approvals:app", "What waits for somebody to decide.", _RUN),
        "overview": Branch("overview:app", "How things stand, on one screen.", _LOOK),
        "hosts": Branch("hosts:app", "The fleet: bring in, label, disable, trust.", _LOOK),
        "blocks": Branch("blocks:app", "What is forbidden on which host, and by whom.", _LOOK),
        "commands": Branch("commands:app", "Commands that travel by themselves.", _LOOK),
        "workers": Branch("workers:app", "Who runs executions, and whether they breathe.", _LOOK),
        "agents": Branch("agents:app", "The agents of hosts, and who is connected.", _LOOK),
        "events": Branch("events:app", "What changes, as it changes.", _LOOK),
        "lifecycles": Branch("lifecycles:app", "Which event leads from where to where.", _LOOK),
        "audit": Branch("audit:app", "Who did what.", _LOOK),
        "context": Branch("context:app", "The services that you talk to, and your keys.", _SET),
        "types": Branch("types:app", "What can be asked of hosts, and how carefully.", _SET),
        "keys": Branch("keys:app", "Keys of the API: make, list, revoke.", _SET),
        "whoami": Branch("whoami:app", "Say whom the service takes you for.", _SET),
        "completion": Branch("completion:completion", "Print completion for a shell.", _SET),
        "help": Branch("topics:topics", "Explain exit codes, output or the environment.", _SET),
        "up": Branch("up:up", "Run the service, everything in one process.", _SERVE, service=True),
        "api": Branch(
            "scale:api", "Run the API alone; `onward worker` does the work.", _SERVE, service=True
        ),
        "worker": Branch("scale:worker", "Run a Celery worker.", _SERVE, service=True),
        "beat": Branch("scale:beat", "Run Celery's Beat.", _SERVE, service=True),
        "agent": Branch("agent:agent", "Run the agent of a host.", _SERVE, service=True),
        "db": Branch("db:app", "Look after the database.", _SERVE),
        "doctor": Branch(
            "doctor:doctor", "Check the installation and every invariant of the database.", _SERVE
        ),
        "demo": Branch("demo:demo", "A thousand hosts over a bad network, judged.", _TRY),
        "storm": Branch("storm:storm", "Late, doubled and reordered events, judged.", _TRY),
        "trade": Branch("trade:app", "Trade, and see that no cent is missing.", _TRY),
        "bench": Branch("bench:bench", "Measure Onward, and its peers beside it.", _TRY),
        "docs": Branch("docs:docs", "Write the generated pages anew.", _TRY),
        "complete": Branch("completion:complete", "Answer a shell.", _SET, hidden=True),
    }
)


class _Onward(Root):
    table = TREE

    def invoke(self, ctx: Context) -> object:
        """Run the command; typer has another code for a reader who has gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _leave_unread()


app = typer.Typer(
    name="onward",
    cls=_Onward,
    help="Commands on fleets: forward only, ended exactly once, always able to say why.",
    epilog="""
    onward up                                   # a service, with everything it needs
    onward run --on 'role=web' -- uptime        # plan, confirm, watch, compare
    onward jobs                                 # what was asked for, the newest first
    onward help exit-codes                      # what a script can tell apart
    """,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onward {__version__}")
        raise typer.Exit


@app.callback()
def _onward(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of a failure.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - it is shown before anything else is read
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    given_of(context).debug = debug


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    given, words = Given(), list(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    try:
        app(args=words, prog_name="onward", obj=given)
    except errors.OnwardError as error:
        if given.debug:
            raise
        _say(f"onward: {_one_line(error)}")
        sys.exit(of_error(error))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except SystemExit:
        # What is written last is written now, so that a reader who has gone is noticed here.
        _flush()
        raise
    except Exception as error:
        if given.debug or _is_service(words):
            raise
        # A file that cannot be opened has a name; what has none is the stream that is printed to.
        if isinstance(error, OSError) and error.filename is None:
            _leave_unwritten(error)
        if isinstance(error, UnicodeEncodeError) and not all(map(_is_text, words)):
            _say("onward: what was given is not UTF-8, and cannot be looked for.")
            sys.exit(Exit.USAGE)
        _say(
            f"onward: this is a bug ({type(error).__name__}: {_one_line(error)}). "
            "With --debug before the command it is shown whole; please report it."
        )
        sys.exit(Exit.FAILED)


def _is_service(words: Sequence[str]) -> bool:
    first = next((word for word in words if not word.startswith("-")), "")
    return first in TREE and TREE[first].service


def _say(line: str) -> None:
    with suppress(BrokenPipeError):
        typer.echo(line, err=True)


def _is_text(word: str) -> bool:
    # What is not UTF-8 comes from the shell as halves of letters.
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _open_what_is_closed() -> None:
    """Let those who closed a stream that is not for data be asked and told nothing."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - to the end
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as above


def _flush() -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_unread()
    except OSError as error:
        _leave_unwritten(error)


def _leave_unread() -> NoReturn:
    _forget_output()
    sys.exit(Exit.NOBODY_READS)


def _leave_unwritten(error: OSError) -> NoReturn:
    _say(f"onward: cannot write: {error.strerror}.")
    _forget_output()
    sys.exit(Exit.FAILED)


def _forget_output() -> None:
    # The interpreter flushes once more when it ends, and would complain.
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: Exception) -> str:
    """What went wrong, on one line; it may be what somebody else has said."""
    from onward.cli.terminal import plain

    return plain(" ".join(str(error).split())) or type(error).__name__
