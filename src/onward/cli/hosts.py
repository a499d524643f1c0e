"""`onward hosts`: the fleet, brought in from what people have, listed, and trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onward.cli.finding import Everything
from onward.cli.host_deeds import add_deeds
from onward.cli.shapes import HOST
from onward.cli.tree import Calling, Reading, given_of, noun
from onward.cli.trust import trust

if TYPE_CHECKING:
    from onward.cli.client import Answer
    from onward.cli.ssh_includes import Place
    from onward.cli.terminal import Terminal

app = noun("The fleet: bring in, label, disable, trust.")

Form = Literal["csv", "json", "ini", "yaml", "ssh_config"]
Channel = Literal["simulated", "ssh", "mqtt", "platform", "agent"]

# Whoever has an inventory of these reaches its hosts over SSH.
_OVER_SSH = frozenset({"ini", "yaml", "ssh_config"})
_FORMS: Mapping[str, Form] = {
    ".csv": "csv",
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".ini": "ini",
    ".cfg": "ini",
}
_NAMES: Mapping[str, Form] = {"config": "ssh_config", "ssh_config": "ssh_config", "hosts": "ini"}
_SHOWN = 20


@app.command(
    "import",
    cls=Calling,
    epilog="""
    onward hosts import ~/.ssh/config --dry-run
    onward hosts import inventory.ini
    """,
)
def import_hosts(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="A table (CSV), a list (JSON), an inventory of Ansible's, or a configuration of "
            "OpenSSH such as ~/.ssh/config."
        ),
    ],
    form: Annotated[
        Form | None,
        typer.Option("--format", help="What the file is.", show_default="by its name"),
    ] = None,
    channel: Annotated[
        Channel | None,
        typer.Option(
            help="How hosts are reached that do not say so.",
            show_default="ssh for inventories of Ansible's, else simulated",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
) -> None:
    """Import hosts: all of them, or none and every mistake with its line.

    Hosts are known by their names: who is not there is made, who differs is changed, and who is
    not named is left alone. What a configuration of OpenSSH includes is imported with it.
    """
    from onward.cli.client import service
    from onward.cli.terminal import reader

    path = file.expanduser()
    chosen = form or _form_of(path)
    content, places = _content(path, chosen)
    params = {
        "format": chosen,
        "channel": channel or ("ssh" if chosen in _OVER_SSH else "simulated"),
        "dry_run": "true" if dry_run else "false",
    }
    with service(context) as found:
        answer = found.send("POST", "/hosts/import", params=params, content=content)
    if not answer.good:
        _show_mistakes(answer, path, places)
        answer.refuse()
    _show_import(reader(given_of(context)), answer)


@app.command(
    "list",
    cls=Reading,
    epilog="""
    onward hosts --selector 'role=web and zone!=eu'
    onward hosts --search web --json name,state,labels
    """,
)
def list_hosts(
    context: typer.Context,
    selector: Annotated[
        str, typer.Option(help="Only these, such as `role=web and zone!=eu`.")
    ] = "all",
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those with this in their name.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="How many, at most.", show_default="all"),
    ] = None,
    everything: Everything = False,
) -> None:
    """List hosts: how each is reached, and what selectors find it by."""
    from onward.cli.finding import show_list

    most = None if everything else limit
    show_list(context, HOST, "/hosts", most=most, selector=selector, search=search)


add_deeds(app)
app.command("trust", cls=Calling)(trust)


def _form_of(path: Path) -> Form:
    from onward.errors import InvalidInput

    found = _FORMS.get(path.suffix.lower()) or _NAMES.get(path.name.lower())
    if found is None:
        raise InvalidInput(
            "--format", f"is needed: the name of {path.name} does not say what it is"
        )
    return found


def _content(path: Path, form: Form) -> tuple[bytes, Sequence[Place]]:
    """Read a file, and say where its lines come from if they come from several."""
    from onward.cli import ssh_includes
    from onward.errors import InvalidInput

    if form == "ssh_config":
        whole = ssh_includes.whole(path)
        return whole.content, whole.places
    try:
        return path.read_bytes(), ()
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}") from None


def _show_mistakes(answer: Answer, path: Path, places: Sequence[Place]) -> None:
    from onward.cli.terminal import plain

    for each in answer.errors:
        line = each.get("line")
        if isinstance(line, int):
            place = places[line - 1] if line <= len(places) else f"{path}:{line}"
            typer.echo(plain(f"{place}: {each.get('detail', '')}"), err=True)


def _show_import(to: Terminal, answer: Answer) -> None:
    from onward.cli.terminal import plain

    said = answer.body
    would = "would be " if said.get("dry_run") else ""
    counts = ", ".join(f"{said[name]:,} {would}{name}" for name in ("created", "changed"))
    to.print(f"{counts}, {said['unchanged']:,} unchanged.")
    for name in ("created", "changed"):
        names = said.get(f"{name}_names")
        if isinstance(names, list) and names:
            more = ", …" if len(names) > _SHOWN else ""
            to.print(plain(f"  {name}: {', '.join(names[:_SHOWN])}{more}"))
