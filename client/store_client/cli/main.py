"""The program `store`: finds a command among the built-in ones or in the API definition.

Built-in commands are in registry.py, groups of them in groups.py; every other name is an operation
(operations.py).
"""

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import split_arg_string

from store_client.cli import registry
from store_client.cli.context import ProgramRun, parse_early, store_options
from store_client.cli.groups import CommandGroup, Row, find_operation, list_operations, load_group
from store_client.cli.registry import COMPLETES
from store_client.cli.terminal import (
    DEFAULT_LEVEL,
    configure_logging,
    exit_immediately,
    exit_on_broken_pipe,
    reopen_closed_streams,
    reset_logging,
    run_with_exit_code,
)
from store_client.errors import INTERRUPTED, StoreError

EPILOG = """\b
Examples:
  store login --url https://store.example --profile work
  store search zebrafish liver
  store download UUID
  store upload sample/
Exit codes: 0 done, 1 failed, 2 invalid arguments, 3 refused, 4 not allowed,
 5 not found, 6 it exists or is not ready, 7 no answer, 8 damaged bytes,
 9 timed out, 130 interrupted, 141 the output was closed.
"""
ABOUT = "Find, download and deposit files, bundles and collections of a data store."


class StoreGroup(CommandGroup):
    """The program: built-in commands, nouns, and by their own names the API's operations."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        # On Windows click would take the patterns of filters for names of files here.
        more |= {"standalone_mode": False, "windows_expand_args": False}
        more.setdefault("prog_name", "store")
        # While completing, the shell passes the line in a variable.
        completing = COMPLETES in os.environ
        words = split_arg_string(os.environ.get("COMP_WORDS", "")) if completing else given
        more["obj"] = _prepare_run(more.get("obj"), words)
        if completing:  # a shell shows whatever is said there
            with suppress(StoreError):
                super().main(given, *others, **more)
            return
        try:
            sys.exit(
                run_with_exit_code(lambda: super(StoreGroup, self).main(given, *others, **more))
            )
        finally:
            reset_logging()

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        """Parse the line; a closed pipe ends the program quietly."""
        with exit_on_broken_pipe():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe ends the program quietly."""
        with exit_on_broken_pipe():
            return super().invoke(ctx)

    def list_rows(self, ctx: click.Context) -> list[Row]:
        """The everyday commands, the nouns, and what concerns the user and this program."""
        rows = [(one.section, one.name, one.about) for one in registry.ENTRIES if one.section]
        rows += [(registry.THINGS, name, about) for name, about in registry.NOUNS.items()]
        rows.append((registry.CLIENT, registry.API, registry.ABOUT_API))
        order = (registry.EVERYDAY, registry.THINGS, registry.IDENTITY, registry.CLIENT)
        return sorted(rows, key=lambda row: order.index(row[0]))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """What help lists, former names, and the operations that are known."""
        shown = super().list_commands(ctx)
        former = [name for name in registry.COMMANDS if " " not in name and name not in shown]
        return [*shown, *former, *(name for _, name, _ in list_operations(ctx))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or of a name that can only mean it."""
        name = cmd_name.replace("_", "-")
        return registry.load_command(name) or load_group(name) or find_operation(ctx, name)


def _prepare_run(given: Any, words: Sequence[str]) -> ProgramRun:
    place = given if isinstance(given, ProgramRun) else ProgramRun()
    said = parse_early(words)
    place.early_options, place.words = said, tuple(words)
    known = (said.log_level or "").upper()
    configure_logging(
        known if known in ("DEBUG", "ERROR", "WARNING", "CRITICAL") else DEFAULT_LEVEL
    )
    return place


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        metadata = importlib.import_module("importlib.metadata")
        click.echo(f"store {metadata.version('consortium-store-client')}")
        context.exit()


cli = StoreGroup(
    "store",
    help=ABOUT,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version of this client.",
        ),
        *store_options(),
    ],
    epilog=EPILOG,
)


def main() -> None:
    reopen_closed_streams()
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            exit_immediately(INTERRUPTED)
        raise
