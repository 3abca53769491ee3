"""The program `store`: finds the command that is meant, here or in the store's definition.

Commands of our own are in registry.py; every other name is an operation (generated.py).
"""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import split_arg_string

from store_client.cli import registry
from store_client.cli.faults import ending, quiet_when_unread
from store_client.cli.frame import store_options
from store_client.cli.place import HELP, Early, Place, early, place_of
from store_client.cli.registry import COMPLETES
from store_client.cli.said import USUAL, hush, listen, open_closed
from store_client.errors import INTERRUPTED, Misused, StoreError
from store_client.leaving import exit_at_once

EXIT_CODES = """\b
Exit codes:
  0 done                  5 not found
  1 failed                6 something else is there, or it is not ready yet
  2 cannot be understood  7 no answer from the store
  3 refused               8 bytes are not what they should be
  4 not allowed           9 waited as long as was allowed
130 interrupted         141 whoever read the output stopped
"""
WIDEST = 34
"""Characters of a name that the column of names makes room for."""
ABOUT = "Files, bundles and collections of a data store: find them, bring them here, deposit them."
WITHOUT_STORE = (
    "The commands of the store itself are not known yet, for {url} does not answer. They come "
    "from the store, once, when it is reached: store --url URL --help, or store login --url URL."
)


class Commands(click.Group):
    """Commands of our own, and those of the store."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Any:
        """Run the program and leave with its exit code; the text of every error is ours."""
        given = list(sys.argv[1:] if args is None else args)
        # On Windows click would take the patterns of filters for names of files here.
        more |= {"standalone_mode": False, "windows_expand_args": False}
        more.setdefault("prog_name", "store")
        # In a shell that completes, the line is told in a variable.
        completing = COMPLETES in os.environ
        words = split_arg_string(os.environ.get("COMP_WORDS", "")) if completing else given
        more["obj"] = _place(more.get("obj"), early(words))
        if completing:  # a shell shows whatever is said there
            with suppress(StoreError):
                super().main(given, *others, **more)
            return
        try:
            sys.exit(ending(lambda: super(Commands, self).main(given, *others, **more)))
        finally:
            hush()

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        """As click does it, which shows help meanwhile."""
        with quiet_when_unread():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it."""
        with quiet_when_unread():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names that are known without the network."""
        return [*registry.COMMANDS, *_generated().names(place_of(ctx))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or of a name that can only mean it."""
        name = cmd_name.replace("_", "-")
        own = registry.found(name)
        return own or _generated().found(place_of(ctx), name, asks=not ctx.resilient_parsing)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but an unknown name is told with those that are near."""
        found = self.get_command(ctx, args[0])
        if found is None and (ctx.resilient_parsing or args[0].startswith("-")):
            return super().resolve_command(ctx, args)
        if found is None:
            raise _unknown(args[0], self.list_commands(ctx))
        return found.name, found, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of all commands, under their headings."""
        place = place_of(ctx)
        rows = [(entry.section, entry.name, entry.about) for entry in registry.ENTRIES]
        _generated().asked_quickly(place)
        generated = _generated().listed(place)
        for section in dict.fromkeys(row[0] for row in (*rows, *generated)):
            with formatter.section(section):
                formatter.write_dl(
                    [row[1:] for row in (*rows, *generated) if row[0] == section], col_max=WIDEST
                )
        if not generated:
            formatter.write_paragraph()
            formatter.write_text(WITHOUT_STORE.format(url=place.config().url))


def _place(given: Any, said: Early) -> Place:
    place = given if isinstance(given, Place) else Place()
    place.said = said
    known = (said.log_level or "").upper()
    listen(known if known in ("DEBUG", "ERROR", "WARNING", "CRITICAL") else USUAL)
    return place


def _generated() -> Any:
    """Imported when it is needed: not every command needs the definition."""
    return importlib.import_module("store_client.cli.generated")


def _unknown(name: str, names: Sequence[str]) -> Misused:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean: {', '.join(near)}?" if near else "see: store --help"
    return Misused(f"there is no command {name!r}", hint=hint)


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        metadata = importlib.import_module("importlib.metadata")
        click.echo(f"store {metadata.version('consortium-store-client')}")
        context.exit()


cli = Commands(
    "store",
    help=ABOUT,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version of this client.",
        ),
        *store_options(),
    ],
    callback=lambda **_: None,
    no_args_is_help=True,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": HELP},
    subcommand_metavar="COMMAND [OPTIONS]",
)


def main() -> None:
    """The entry point."""
    open_closed()
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            exit_at_once(INTERRUPTED)
        raise
