"""Completion for shells: a script for each, and the answers that they ask for.

A shell is given words and takes them as they are: nothing that a service says is ever evaluated,
and a name with letters that a shell could read otherwise is not offered at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from onward.cli.tree import Given

if TYPE_CHECKING:
    from onward.cli.client import Client

_HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*").fullmatch
_MOST: Final = 50
_TIME_S: Final = 0.3

_BASH: Final = """\
_onward() {
    local IFS=$'\\n'
    COMPREPLY=( $(onward complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1) )
}
complete -o default -F _onward onward
"""
_ZSH: Final = """\
#compdef onward
_onward() {
    local -a values shown
    local line
    while IFS= read -r line; do
        values+=("${line%%$'\\t'*}")
        shown+=("${line//$'\\t'/  }")
    done < <(onward complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#values )); then compadd -l -d shown -a values; else _files; fi
}
compdef _onward onward
"""
_FISH: Final = """\
function __onward_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (onward complete -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c onward -f -a '(__onward_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="For which shell.")],
) -> None:
    """Print completion for a shell: commands, options, contexts, jobs and hosts.

    For bash, put `eval "$(onward completion bash)"` into ~/.bashrc; for zsh, the same with zsh into
    ~/.zshrc, after compinit; for fish, `onward completion fish | source` into its configuration.
    """
    typer.echo(SCRIPTS[shell], nl=False)


def complete(
    words: Annotated[list[str] | None, typer.Argument(help="What was typed so far.")] = None,
) -> None:
    """Answer a shell with what could stand in place of the last word."""
    import typer.main
    from typer._completion_classes import BashComplete

    from onward.cli import app

    *before, incomplete = words or [""]
    root = typer.main.get_command(app)
    found = BashComplete(root, {}, "onward", "").get_completions(before, incomplete)
    for item in found:
        if item.type != "plain":
            continue  # a shell that is told nothing offers files
        about = f"\t{item.help}" if item.help else ""
        typer.echo(f"{item.value}{about}")


def contexts(incomplete: str) -> list[str]:
    """The names of contexts that begin so."""
    return _quietly(lambda: _contexts(incomplete))


def jobs(incomplete: str, given: Given) -> list[str]:
    """The newest jobs whose numbers begin so."""
    return _asked(
        incomplete,
        given,
        lambda service: [str(row["job_id"]) for row in service.more("/jobs", most=_MOST)[0]],
    )


def hosts(incomplete: str, given: Given) -> list[str]:
    """The hosts whose names begin so."""
    if incomplete and not _HARMLESS(incomplete):
        return []
    selector = f"name={incomplete}*" if incomplete else "all"
    return _asked(
        incomplete,
        given,
        lambda service: [
            str(row["name"]) for row in service.more("/hosts", most=_MOST, selector=selector)[0]
        ],
    )


def types(incomplete: str, given: Given) -> list[str]:
    """The command types whose names begin so."""
    return _asked(
        incomplete,
        given,
        lambda service: [str(row["name"]) for row in service.pages("/command-types")],
    )


def _contexts(incomplete: str) -> list[str]:
    from onward.cli import contexts as file
    from onward.cli.environment import settings

    names = file.read(file.path_of(settings())).contexts
    return [name for name in names if name.startswith(incomplete)]


def _asked(incomplete: str, given: Given, ask: Callable[[Client], list[str]]) -> list[str]:
    """Ask the service, but not for long: somebody waits with a finger on a key."""

    def found() -> list[str]:
        from onward.cli.client import calling
        from onward.cli.environment import settings

        with calling(settings(), given) as service:
            names = ask(service.once(_TIME_S))
            return [name for name in names if name.startswith(incomplete) and _HARMLESS(name)]

    return _quietly(found)


def _quietly(found: Callable[[], list[str]]) -> list[str]:
    try:
        return found()
    except Exception:  # noqa: BLE001 - whatever it is, a shell shows nothing
        return []
