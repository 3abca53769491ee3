"""What every command has: the common options, and `Here`, which its function gets first.

@command("whoami", help="Tell who the store takes you for.", section=registry.IDENTITY)
@click.option("--verbose", is_flag=True)
def whoami(here: Here, verbose: bool) -> None:
    here.show(here.client.call("get_oauth_userinfo"))
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from store_client.cli import output
from store_client.cli.place import HELP, Place, place_of
from store_client.cli.plain import plain
from store_client.cli.said import LEVELS, listen
from store_client.configuration import Configuration

if TYPE_CHECKING:
    from store_client.client import Client

Output = Literal["json", "lines", "table", "raw"]
OUTPUTS = ("json", "lines", "table", "raw")


@dataclass(slots=True)
class Here:
    """Where a command runs: its store, and where its words go. Made once per command."""

    config: Configuration
    json: bool
    """One JSON document was asked for, or the output is no terminal."""
    output: Output
    quiet: bool
    place: Place
    chosen: bool = False
    """The form of the output was asked for by an option."""

    @property
    def client(self) -> "Client":
        """A client of the store, made on first use and closed at the end."""
        return self.place.client(self.config)

    def show(self, value: Any, *, title: str = "") -> None:
        """Write the result to standard output in the form that was asked for."""
        output.show(value, output.Form(self.output, chosen=self.chosen), title=title)

    def show_items(self, items: list[Any]) -> None:
        """The same of what is a list at any rate: of an operation that has pages."""
        output.show(items, output.Form(self.output, chosen=True))

    def note(self, text: str) -> None:
        """Write a line for a person to standard error, unless --quiet."""
        if not self.quiet:
            click.echo(plain(text), err=True)


class _Level(click.Choice[str]):
    """Levels in small letters are understood, too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(str(value).upper(), param, ctx)


class StoreCommand(click.Command):
    """A command that knows its heading in the list and the other names it goes by."""

    section: str = ""
    aliases: tuple[str, ...] = ()
    common: tuple[click.Parameter, ...] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its arguments and options, then the options of every command."""
        parameters = self.get_params(ctx)
        arguments = [one for one in parameters if isinstance(one, click.Argument)]
        named = [one for one in arguments if getattr(one, "help", None)]
        own = [one for one in parameters if one not in (*arguments, *self.common)]
        for heading, shown in (
            ("Arguments", named),
            ("Options", own),
            ("Options of every command", self.common),
        ):
            records = [one.get_help_record(ctx) for one in shown]
            if told := [record for record in records if record]:
                with formatter.section(heading):
                    formatter.write_dl(told)


def command(
    name: str,
    *,
    help: str = "",  # noqa: A002
    section: str = "",
    aliases: Iterable[str] = (),
    epilog: str = "",
) -> Callable[[Callable[..., Any]], StoreCommand]:
    """Make a click function `def f(here, ...)` a command with the common options."""

    def made(function: Callable[..., Any]) -> StoreCommand:
        own: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
        text = help or (function.__doc__ or "")
        return build(name, function, own, help=text, section=section, aliases=aliases, more=epilog)

    return made


def build(
    name: str,
    function: Callable[..., Any],
    own: list[click.Parameter],
    *,
    help: str,  # noqa: A002
    section: str = "",
    aliases: Iterable[str] = (),
    more: str = "",
) -> StoreCommand:
    """The same with parameters that are made rather than written."""

    def run(**given: Any) -> None:
        here = _here({key: given.pop(key, None) for key in _COMMON_NAMES if key in common})
        function(here, **given)

    taken = {opt for parameter in own for opt in (*parameter.opts, *parameter.secondary_opts)}
    options = [option for option in _common() if not taken.intersection(option.opts)]
    common = {option.name for option in options}
    made = StoreCommand(
        name,
        callback=run,
        params=[*own, *options],
        help=help,
        epilog=more or None,
        context_settings={"token_normalize_func": _dashed, "help_option_names": HELP},
    )
    made.section, made.aliases, made.common = section, tuple(aliases), tuple(options)
    return made


def _dashed(name: str) -> str:
    return name.replace("_", "-")


_COMMON_NAMES = ("log_level", "url", "profile", "as_json", "output_form", "quiet")


def _common() -> list[click.Option]:
    """A command's own option of the same name goes before one of these."""
    return [
        *store_options(),
        click.Option(["--json", "as_json"], is_flag=True, help="Same as --output json."),
        click.Option(
            ["--output", "output_form"],
            type=click.Choice(OUTPUTS),
            help="json: one document; lines: one item a line; table; raw: the answer's bytes. "
            "Default: json, but on a terminal lists are tables.",
        ),
        click.Option(
            ["-q", "--quiet"], is_flag=True, help="Say nothing but the result and errors."
        ),
    ]


def store_options() -> list[click.Option]:
    """Which store, and how much is told: wherever on the line they stand."""
    return [
        click.Option(
            ["--log-level"],
            type=_Level(LEVELS),
            help="How much is told on standard error; DEBUG shows tracebacks.  [default: INFO]",
        ),
        click.Option(["--url"], help="Base URL of the store, or set STORE_CLIENT_URL."),
        click.Option(
            ["--profile", "--env", "profile"],
            help="Name of a store (see profiles), or set STORE_CLIENT_PROFILE.",
        ),
    ]


def _here(common: dict[str, Any]) -> Here:
    place = place_of(click.get_current_context())
    quiet = bool(common.get("quiet"))
    level = common.get("log_level") or place.said.log_level
    listen(level or ("WARNING" if quiet else "INFO"))
    asked: Output | None = "json" if common.get("as_json") else common.get("output_form")
    form: Output = asked or ("table" if sys.stdout.isatty() else "json")
    return Here(
        config=place.config(common.get("url"), common.get("profile")),
        json=form == "json",
        output=form,
        quiet=quiet,
        place=place,
        chosen=bool(asked),
    )
