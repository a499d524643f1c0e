"""The shape of the command line: groups that load what is called, and options that many share.

1. A branch of the root is a line in a table: where it is, and one sentence about it. Its module is
   loaded when it is called or its own help is shown, so that `onward --help` answers at once.
2. A noun without a verb is its list: `onward jobs --open` is `onward jobs list --open`.
3. Options that many commands share are said once, here, and may stand before the noun as well.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

import typer
import typer.main
from typer._click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from typer._click import HelpFormatter
    from typer._click.core import Command as AnyCommand
    from typer._click.core import Context, Parameter

Form = Literal["table", "json", "jsonl", "yaml"]
Colour = Literal["auto", "always", "never"]

_ALL_FIELDS: Final = "*"
_FIELDS: Final = re.compile(r"[A-Za-z_]\w*(,[A-Za-z_]\w*)*,?").fullmatch
_LIST: Final = "list"
_HELP: Final = ("-h", "--help")


@dataclass(slots=True)
class Given:
    """What was given to the command line as a whole, wherever it stood."""

    context: str | None = None
    url: str | None = None
    color: Colour = "auto"
    no_input: bool = False
    debug: bool = False
    output: Form | None = None
    json: str | None = None
    quiet: bool = False

    @property
    def form(self) -> Form:
        """How data is printed."""
        return "json" if self.json is not None and self.output is None else self.output or "table"

    @property
    def fields(self) -> tuple[str, ...]:
        """The only fields that are wanted; none for all of them."""
        if self.json is None or self.json == _ALL_FIELDS:
            return ()
        return tuple(name.strip() for name in self.json.split(",") if name.strip())


def given_of(context: Context) -> Given:
    """Return what was given to the command line as a whole."""
    return context.find_root().ensure_object(Given)


@dataclass(frozen=True, slots=True)
class Branch:
    """A command of the root: where it is, what it is about, and under which heading it stands."""

    place: str  # module:attribute below onward.cli
    about: str
    heading: str
    hidden: bool = False
    # A service writes logs, and a bug in it belongs there with its traceback.
    service: bool = False

    def load(self, name: str) -> AnyCommand:
        """Import it."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(f"onward.cli.{module}"), attribute)
        command = _made(found, name)
        command.name, command.short_help, command.hidden = name, self.about, self.hidden
        return command


def _made(found: typer.Typer | Callable[..., object], name: str) -> AnyCommand:
    if not isinstance(found, typer.Typer):
        alone = leaf()
        alone.command(name, cls=Command)(found)
        return typer.main.get_command(alone)
    found.rich_markup_mode = None
    group = isinstance(found.info.cls, type) and issubclass(found.info.cls, Group)
    return typer.main.get_group(found) if group else typer.main.get_command(found)


class Branches(MutableMapping[str, "AnyCommand"]):
    """The commands of the root by their names, each loaded once somebody takes it."""

    def __init__(self, table: Mapping[str, Branch]) -> None:
        self.table = table
        self._loaded: dict[str, AnyCommand] = {}

    def __getitem__(self, name: str) -> AnyCommand:
        if name not in self._loaded:
            self._loaded[name] = self.table[name].load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: AnyCommand) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> NoReturn:
        raise TypeError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, name: object) -> bool:
        return name in self.table


class _Helped:
    """Shows help as plain text: what it does, examples, then options."""

    epilog: str | None

    def get_help_option_names(self, ctx: Context) -> list[str]:  # noqa: ARG002 - as called
        return list(_HELP)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Nothing: the examples have been shown."""

    def format_help_text(self, ctx: Context, formatter: HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)  # type: ignore[misc]  # of the class beside it
        if self.epilog:
            with formatter.section("Examples"):
                for line in inspect.cleandoc(self.epilog).splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Command(_Helped, TyperCommand):
    """A command, with the options that all commands which talk to a service share.

    Those which talk to none, such as `onward up`, have none of them.
    """

    shared: tuple[str, ...] = ()

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as the class above
        super().__init__(*args, **named)
        known = _shared()
        self.params += [known[name] for name in self.shared]


class Calling(Command):
    """A command that talks to a service."""

    shared: tuple[str, ...] = ("context", "url", "color", "no_input")


class Reading(Calling):
    """A command that prints data."""

    shared: tuple[str, ...] = ("output", "json", "quiet", *Calling.shared)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read a bare `--json` as all fields."""
        return super().parse_args(ctx, [*_with_fields(args)])


class Group(_Helped, TyperGroup):
    """Commands below one name."""


class Noun(Group):
    """What can be done with one kind of thing; without a verb, they are listed."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Put the verb `list` where there is none."""
        verbless = not args or (args[0].startswith("-") and args[0] not in _HELP)
        # A shell that asks what could stand here may still be told a verb.
        if _LIST in self.commands and verbless and (args or not ctx.resilient_parsing):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Offer the options of the list as well: the verb may be left out."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-") and _LIST in self.commands:
            found += self.commands[_LIST].shell_complete(ctx, incomplete)
        return found


class Root(Group):
    """The whole command line."""

    table: Mapping[str, Branch] = {}

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as the class above
        super().__init__(**attributes)
        self.commands = Branches(self.table)
        known = _shared()
        self.params += [known[name] for name in Calling.shared]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Make the place where the shared options are kept."""
        ctx.ensure_object(Given)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002
        """Show what there is by headings, and load none of it."""
        headings: dict[str, list[tuple[str, str]]] = {}
        for name, branch in self.table.items():
            if not branch.hidden:
                headings.setdefault(branch.heading, []).append((name, branch.about))
        for heading, rows in headings.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Offer what there is, and load none of it."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=branch.about)
            for name, branch in self.table.items()
            if name.startswith(incomplete) and not branch.hidden
        ]


def noun(about: str) -> typer.Typer:
    """A noun to add verbs to."""
    return typer.Typer(
        cls=Noun,
        help=about,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def leaf() -> typer.Typer:
    """A place for a command of its own."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _with_fields(args: list[str]) -> Iterator[str]:
    for place, word in enumerate(args):
        if word == "--":
            yield from args[place:]
            return
        following = args[place + 1] if place + 1 < len(args) else ""
        bare = word == "--json" and not _FIELDS(following)
        yield f"--json={_ALL_FIELDS}" if bare else word


def _complete_contexts(incomplete: str) -> list[str]:
    from onward.cli.completion import contexts

    return contexts(incomplete)


def _spelled(  # the signature is all that is asked of it
    *,
    output: Annotated[
        Form | None,
        typer.Option("-o", "--output", help="How data is printed.", show_default="table"),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="[FIELD,...]",
            help="Print JSON, with these fields only if there are any.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print ids alone.")] = False,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The service of this context; see `onward context`.",
            autocompletion=_complete_contexts,
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The service at this address.")
    ] = None,
    color: Annotated[
        Colour | None, typer.Option(help="Whether to use colours.", show_default="auto")
    ] = None,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask nothing, as without a terminal.")
    ] = False,
) -> None:
    """Say what the shared options look like."""


def _shared() -> dict[str, TyperOption]:
    """The shared options by their names, made anew for each command."""
    alone = leaf()
    alone.command()(_spelled)
    found = {}
    for option in typer.main.get_command(alone).params:
        if isinstance(option, TyperOption):
            option.expose_value, option.callback = False, _remember
            found[option.name] = option
    return found


def _remember(ctx: Context, option: Parameter, value: object) -> None:
    # What was not given here may have been given before the noun.
    if value not in {None, False}:
        setattr(given_of(ctx), str(option.name), value)
