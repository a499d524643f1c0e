"""What is done with one host: made, shown, labelled, disabled, deleted, given a token or a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onward.cli.exits import Usage
from onward.cli.finding import Host, Yes
from onward.cli.shapes import HOST, labels_of
from onward.cli.tree import Calling, Reading, given_of

if TYPE_CHECKING:
    from onward.cli.client import Answer, Client

Channel = Literal["simulated", "ssh", "mqtt", "platform", "agent"]
State = Literal["ACTIVE", "DISABLED"]


def add_deeds(app: typer.Typer) -> None:
    """Give the noun its verbs."""
    app.command("show", cls=Reading)(show)
    app.command("add", cls=Reading, epilog=_ADD)(add)
    app.command("label", cls=Calling, epilog=_LABEL)(label)
    app.command("change", cls=Reading, epilog=_CHANGE)(change)
    app.command("disable", cls=Calling)(disable)
    app.command("enable", cls=Calling)(enable)
    app.command("delete", cls=Calling)(delete)
    app.command("enrol", cls=Reading)(enrol)
    app.command("key", cls=Reading)(key)
    app.command("take-key", cls=Calling)(take_key)


_ADD = "onward hosts add web-7 --channel ssh --address deploy@10.0.0.7 --label role=web"
_CHANGE = "onward hosts change web-7 --channel ssh --address deploy@10.0.0.8"
_LABEL = """
onward hosts label web-1 zone=eu canary=yes
onward hosts label web-1 canary-          # takes the label away
"""


def show(context: typer.Context, host: Host) -> None:
    """Show a host, whole."""
    from onward.cli.client import service
    from onward.cli.finding import host_named
    from onward.cli.output import show_one

    with service(context) as found:
        row = host_named(found, host)
    show_one(given_of(context), HOST, row)


def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")],
    channel: Annotated[Channel, typer.Option(help="How it is reached.")] = "simulated",
    address: Annotated[str, typer.Option(help="Where its channel finds it.")] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="What selectors find it by."),
    ] = None,
) -> None:
    """Make a host; `onward hosts import` makes many."""
    from onward.cli.client import service
    from onward.cli.output import show_one

    body = {
        "name": name,
        "channel": channel,
        "address": address,
        "labels": _changed({}, labels or ()),
    }
    with service(context) as found:
        row = found.do("POST", "/hosts", body=body).body
    show_one(given_of(context), HOST, row)


def label(
    context: typer.Context,
    host: Host,
    labels: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE|KEY-...", help="What to set or take away.")
    ],
) -> None:
    """Set labels of a host, or take them away; the others stay."""
    from onward.cli.client import service
    from onward.cli.terminal import plain, reader

    with service(context) as found:
        seen = _seen(found, host)
        before = seen.body.get("labels")
        after = _changed(before if isinstance(before, dict) else {}, labels)
        row = _patched(found, seen, {"labels": after})
    reader(given_of(context)).print(f"{plain(host)}  {plain(labels_of(row.body))}")


def change(
    context: typer.Context,
    host: Host,
    channel: Annotated[Channel | None, typer.Option(help="How it is reached.")] = None,
    address: Annotated[str | None, typer.Option(help="Where its channel finds it.")] = None,
) -> None:
    """Change how a host is reached; what is not named stays."""
    from onward.cli.client import service
    from onward.cli.output import show_one

    named = {"channel": channel, "address": address}
    body: dict[str, object] = {name: said for name, said in named.items() if said is not None}
    if not body:
        raise Usage("Say what to change: --channel CHANNEL, or --address ADDRESS.")
    with service(context) as found:
        row = _patched(found, _seen(found, host), body).body
    show_one(given_of(context), HOST, row)


def disable(context: typer.Context, host: Host) -> None:
    """Keep a host out of new jobs; what runs there goes on."""
    _set_state(context, host, "DISABLED", "is in no new job any more")


def enable(context: typer.Context, host: Host) -> None:
    """Let a host be in jobs again."""
    _set_state(context, host, "ACTIVE", "is in new jobs again")


def delete(context: typer.Context, host: Host, yes: Yes = False) -> None:
    """Delete a host that nothing has ever been run on, and the blocks on it."""
    from onward.cli.client import service
    from onward.cli.terminal import asked, plain, reader

    given = given_of(context)
    with service(context) as found:
        seen = _seen(found, host)
        if not yes:
            asked(given, f"Delete {plain(host)} ({plain(labels_of(seen.body))})?", flag="--yes")
        found.do("DELETE", f"/hosts/{seen.body['host_id']}", seen=seen.etag)
    reader(given).print(f"{plain(host)} is deleted.")


def enrol(
    context: typer.Context,
    host: Host,
    ttl: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="For how long it is good.")
    ] = None,
) -> None:
    """Make a token for the agent of a host, in place of any former one; it is shown only here."""
    body = None if ttl is None else {"ttl_s": ttl}
    _secret(context, host, "enrolment", "token", body)


def key(context: typer.Context, host: Host) -> None:
    """Make a key for the node of a host, in place of any former one; it is shown only here."""
    _secret(context, host, "key", "key", None)


def take_key(context: typer.Context, host: Host, yes: Yes = False) -> None:
    """Make the key of a host worthless, and its token too; whoever is connected with it goes."""
    from onward.cli.client import service
    from onward.cli.finding import host_named
    from onward.cli.terminal import asked, plain, reader

    given = given_of(context)
    with service(context) as found:
        host_id = host_named(found, host)["host_id"]
        if not yes:
            asked(given, f"Take the key of {plain(host)}?", flag="--yes")
        found.do("DELETE", f"/hosts/{host_id}/key")
    reader(given).print(f"The key of {plain(host)} is good for nothing any more.")


def _secret(
    context: typer.Context, host: str, route: str, field: str, body: dict[str, float] | None
) -> None:
    from onward.cli.client import service
    from onward.cli.finding import host_named
    from onward.cli.output import Shape, show_one
    from onward.cli.terminal import plain, reader, watcher

    given = given_of(context)
    with service(context) as found:
        host_id = host_named(found, host)["host_id"]
        made = found.do("POST", f"/hosts/{host_id}/{route}", body=body).body
    until = f", good until {made['expires_at']}" if "expires_at" in made else ""
    watcher(given).print(f"The {field} of {plain(host)}{until}; it is shown only here:")
    if given.form == "table":
        reader(given).print(plain(made[field]))
    else:
        show_one(given, Shape(key=field, columns=(), fields=tuple(made)), made)


def _set_state(context: typer.Context, host: str, state: State, told: str) -> None:
    from onward.cli.client import service
    from onward.cli.terminal import plain, reader

    with service(context) as found:
        _patched(found, _seen(found, host), {"state": state})
    reader(given_of(context)).print(f"{plain(host)} {told}.")


def _seen(service: Client, host: str) -> Answer:
    from onward.cli.finding import host_named

    return service.look(f"/hosts/{host_named(service, host)['host_id']}")


def _patched(service: Client, seen: Answer, body: dict[str, object]) -> Answer:
    return service.do("PATCH", f"/hosts/{seen.body['host_id']}", body=body, seen=seen.etag)


def _changed(labels: dict[str, str], words: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Set and take away what the words say."""
    after = dict(labels)
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name:
            after[name] = value
        elif not equals and word.endswith("-") and len(word) > 1:
            after.pop(word[:-1], None)
        else:
            raise Usage(f"{word!a:.80}: write KEY=VALUE to set a label, KEY- to take it away.")
    return after
