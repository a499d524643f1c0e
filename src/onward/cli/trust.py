"""`onward hosts trust`: the keys of a host, looked at by somebody and written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from onward.cli.tree import Given, given_of

if TYPE_CHECKING:
    from asyncssh import SSHKey

    from onward.channels.ssh.address import Address
    from onward.channels.ssh.dial import SshWay
    from onward.cli.known_hosts import Judged
    from onward.settings import Settings


def trust(
    context: typer.Context,
    host: Annotated[
        str, typer.Argument(help="The name of a host, or an address such as me@10.0.0.7:22.")
    ],
    fingerprint: Annotated[
        str | None,
        typer.Option(
            metavar="SHA256:...", help="Trust the key that has it, and ask nobody.", show_default=""
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also if another key of its kind was known.")
    ] = False,
) -> None:
    """Trust the keys of a host: look at them, then write them to `known_hosts` in ONWARD_SSH_DIR.

    Run it where the worker runs, as the worker's user. Without `--fingerprint` it shows what the
    host shows and asks; compare it with what the host itself says.
    """
    import asyncio

    from onward.cli import known_hosts
    from onward.cli.environment import settings

    found = settings()
    address = _address_of(host, found, given_of(context))
    way = _way(found)
    shown = asyncio.run(known_hosts.shown_keys(way, address))
    judged = known_hosts.judge(way.directory, address.target, shown)
    _refuse_changed(address, judged, replace=replace)
    chosen = _chosen(judged, address, fingerprint, given_of(context))
    if chosen:
        known_hosts.write(way.directory, address.target, chosen, instead=judged.others)
        typer.echo(f"Trusted: {address.target}, in {way.directory / known_hosts.FILE}.")
    else:
        typer.echo(f"{address.target} is trusted already.")


def _way(settings: Settings) -> SshWay:
    from onward.channels.ssh.dial import SshWay

    return SshWay(
        directory=settings.ssh_dir or settings.data_dir / "ssh",
        agent=settings.ssh_agent,
        user=settings.ssh_user,
    )


def _address_of(host: str, settings: Settings, given: Given) -> Address:
    """Return the address of a host of that name, or what was given if it is an address."""
    from onward.channels.ssh.address import parse
    from onward.cli.client import calling
    from onward.cli.finding import find_host
    from onward.errors import InvalidInput, ServerUnreachable

    try:
        with calling(settings, given) as service:
            found = find_host(service, host)
    except (ServerUnreachable, InvalidInput) as error:
        typer.echo(f"onward: {host} is taken for an address, since {_within(error)}", err=True)
        found = None
    if found is None:
        return parse(host)
    if found["channel"] != "ssh":
        raise InvalidInput(host, f"is reached over {found['channel']}, which knows no such keys")
    return parse(str(found["address"] or host))


def _within(error: Exception) -> str:
    return " ".join(str(error).split())


def _refuse_changed(address: Address, judged: Judged, *, replace: bool) -> None:
    from onward.errors import HostRefused

    if judged.others and not replace:
        now = ", ".join(key.get_fingerprint() for key in judged.shown)
        known = ", ".join(key.get_fingerprint() for key in judged.others)
        raise HostRefused(
            f"{address.target} shows {now}, and not the known {known}: somebody may be in between. "
            "Be sure that the host has a new key, then say --replace."
        )


def _chosen(
    judged: Judged, address: Address, fingerprint: str | None, given: Given
) -> Sequence[SSHKey]:
    """The keys that are to be written down: none if all are known."""
    from onward.errors import HostRefused

    if fingerprint is not None:
        found = [key for key in judged.shown if key.get_fingerprint() == fingerprint]
        if not found:
            shown = ", ".join(key.get_fingerprint() for key in judged.shown)
            raise HostRefused(f"{address.target} shows {shown}, and not {fingerprint}.")
        return found
    if len(judged.known) == len(judged.shown):
        return ()
    _ask(judged, address, given)
    return judged.shown


def _ask(judged: Judged, address: Address, given: Given) -> None:
    from onward.cli.terminal import asked

    typer.echo(f"{address.target} shows:")
    for key in judged.shown:
        known = "  (known)" if key in judged.known else ""
        typer.echo(f"  {key.get_fingerprint()}  {key.algorithm.decode()}{known}")
    typer.echo("On the host: for key in /etc/ssh/ssh_host_*.pub; do ssh-keygen -lf $key; done")
    asked(given, "Are they the same? Trust them?", flag="--fingerprint with one of them")
