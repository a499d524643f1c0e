"""`onward agent`: the program on a host."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Annotated

import typer

from onward.errors import InvalidInput

_TOKEN = "ONWARD_AGENT_TOKEN"  # noqa: S105 - where one is, and not one
_MIB = 2**20


def agent(
    *,
    server: Annotated[
        str, typer.Option(metavar="URL", help="The server, such as https://onward.example.com.")
    ],
    state: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the agent keeps its key and its journal.")
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Holds the token that this host is enrolled with; else it is in {_TOKEN}.",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificates to trust, instead of the system's."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow http to a machine other than this one.")
    ] = False,
    user: Annotated[
        str | None,
        typer.Option(help="Whom an agent that is started by root runs programs as."),
    ] = None,
    allow_root: Annotated[
        bool, typer.Option("--allow-root", help="Run as root, and programs too.")
    ] = False,
    output_mb: Annotated[
        int, typer.Option(min=1, max=1024, help="Output of a program that is passed on.")
    ] = 16,
    memory_mb: Annotated[
        int, typer.Option(min=0, help="Address space of each process; 0 for no limit.")
    ] = 0,
    processes: Annotated[
        int, typer.Option(min=0, help="Processes that a program may add to its user's; 0 for any.")
    ] = 512,
    files: Annotated[
        int, typer.Option(min=16, help="Files that each process may have open.")
    ] = 1024,
    time_s: Annotated[
        float, typer.Option(min=1, help="The longest that a program may run.")
    ] = 86_400.0,
    grace_s: Annotated[
        float, typer.Option(min=0, help="Seconds between asking a program to end and killing it.")
    ] = 5.0,
    drain_s: Annotated[
        float, typer.Option(min=0, help="Seconds for what runs to end when told to leave.")
    ] = 30.0,
) -> None:
    """Run on a host what the server asks for: call it, carry commands out, remember them.

    The first start exchanges a token for the host's own key. A command runs at most once for each
    attempt that the server makes, whatever is killed in between; results wait on disk until the
    server has them on its own.

    SIGTERM or Ctrl-C lets what runs end and leaves; once more, it leaves without waiting.
    """
    from functools import partial

    from onward.agent.program import Options, run
    from onward.agent.running import Limits
    from onward.agent.server import server_at
    from onward.service import leaving, logs

    _check_user(user, allow_root=allow_root)
    options = Options(
        server=server_at(server, insecure=insecure, ca=ca),
        state=state.expanduser().resolve(),
        token=_token(token_file),
        limits=Limits(
            output_chars=output_mb * _MIB,
            memory_bytes=memory_mb * _MIB or None,
            processes=processes or None,
            files=files,
            time_s=time_s,
            grace_s=grace_s,
        ),
        run_as=user,
        drain_s=drain_s,
        environment=dict(os.environ),
    )
    logs.configure()
    leaving.run(partial(run, options))


def _check_user(user: str | None, *, allow_root: bool) -> None:
    root = os.geteuid() == 0
    if root and user is None and not allow_root:
        raise InvalidInput(
            "--user",
            "an agent of root's runs everything as root: name a user for programs, "
            "start it as another user, or say --allow-root",
        )
    if user is None:
        return
    try:
        number = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise InvalidInput("--user", f"there is no user {user!a:.80}") from None
    if not root and number != os.geteuid():
        raise InvalidInput("--user", f"only root can run programs as {user}")


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(_TOKEN, "").strip() or None
    try:
        return path.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None  # It may have been removed after the host was enrolled.
    except (OSError, ValueError):
        raise InvalidInput("--token-file", f"{path} cannot be read") from None
