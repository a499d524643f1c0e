"""`onward hosts`: the fleet, brought in from what people have, listed, and trusted."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onward.cli.trust import trust

if TYPE_CHECKING:
    from onward.cli.client import Answer
    from onward.cli.ssh_includes import Place

app = typer.Typer(help="Bring hosts in, look at them, and trust their keys.", no_args_is_help=True)

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


@app.command("import")
def import_hosts(
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
    from onward.cli.client import calling
    from onward.cli.environment import settings

    path = file.expanduser()
    chosen = form or _form_of(path)
    content, places = _content(path, chosen)
    params = {
        "format": chosen,
        "channel": channel or ("ssh" if chosen in _OVER_SSH else "simulated"),
        "dry_run": "true" if dry_run else "false",
    }
    with calling(settings()) as service:
        answer = service.send("POST", "/hosts/import", params=params, content=content)
    if not answer.good:
        _show_mistakes(answer, path, places)
        answer.refuse()
    _show_import(answer)


@app.command("list")
def list_hosts(
    selector: Annotated[
        str, typer.Option(help="Only these, such as `role=web and zone!=eu`.")
    ] = "all",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a list, and nothing else.")
    ] = False,
) -> None:
    """List hosts: how each is reached, and what selectors find it by."""
    from onward.cli.client import calling
    from onward.cli.environment import settings

    with calling(settings()) as service:
        found = list(service.pages("/hosts", selector=selector))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    _show_hosts(found)


app.command("trust")(trust)


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
    for each in answer.errors:
        line = each.get("line")
        if isinstance(line, int):
            place = places[line - 1] if line <= len(places) else f"{path}:{line}"
            typer.echo(f"{place}: {each.get('detail', '')}", err=True)


def _show_import(answer: Answer) -> None:
    said = answer.body
    would = "would be " if said.get("dry_run") else ""
    counts = ", ".join(f"{said[name]:,} {would}{name}" for name in ("created", "changed"))
    typer.echo(f"{counts}, {said['unchanged']:,} unchanged.")
    for name in ("created", "changed"):
        names = said.get(f"{name}_names")
        if isinstance(names, list) and names:
            more = ", …" if len(names) > _SHOWN else ""
            typer.echo(f"  {name}: {', '.join(names[:_SHOWN])}{more}")


def _show_hosts(found: Sequence[Mapping[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "channel", "address", "state", "labels", box=None, pad_edge=False)
    for host in found:
        labels = host["labels"]
        assert isinstance(labels, dict)  # noqa: S101 - the service says so
        said = " ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        cells = (host["name"], host["channel"], host["address"], host["state"], said)
        table.add_row(*(Text(str(cell)) for cell in cells))
    # Whoever reads it through a pipe wants whole lines.
    console = Console() if sys.stdout.isatty() else Console(width=10_000)
    console.print(table if found else "There is no such host.")
