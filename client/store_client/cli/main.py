"""The program `store`: finds a command among the built-in ones or in the API definition.

Built-in commands are in registry.py; every other name is an operation (operations.py).
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
from store_client.cli.context import (
    HELP,
    EarlyOptions,
    ProgramRun,
    current_run,
    parse_early,
    store_options,
)
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
from store_client.errors import INTERRUPTED, Misused, StoreError

EXIT_CODES = """\b
Exit codes:
  0 done                  5 not found
  1 failed                6 it exists already, or is not ready yet
  2 invalid arguments     7 no answer from the store
  3 refused               8 bytes are damaged
  4 not allowed           9 timed out
130 interrupted         141 the output was closed
"""
WIDEST = 34
"""Characters of a name that the column of names makes room for."""
ABOUT = "Find, download and deposit files, bundles and collections of a data store."
WITHOUT_STORE = (
    "The store's own commands are not listed, because {url} does not answer. They are loaded "
    "from the store once it is reachable: store --url URL --help, or store login --url URL."
)


class StoreGroup(click.Group):
    """Built-in commands, and those of the API definition."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Any:
        """Run the program, and exit with its exit code."""
        given = list(sys.argv[1:] if args is None else args)
        # On Windows click would take the patterns of filters for names of files here.
        more |= {"standalone_mode": False, "windows_expand_args": False}
        more.setdefault("prog_name", "store")
        # While completing, the shell passes the line in a variable.
        completing = COMPLETES in os.environ
        words = split_arg_string(os.environ.get("COMP_WORDS", "")) if completing else given
        more["obj"] = _prepare_run(more.get("obj"), parse_early(words))
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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names that are known without a request."""
        return [*registry.COMMANDS, *_operations_module().operation_names(current_run(ctx))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or of a name that can only mean it."""
        name = cmd_name.replace("_", "-")
        own = registry.load_command(name)
        return own or _operations_module().find_command(
            current_run(ctx), name, asks=not ctx.resilient_parsing
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; the error for an unknown name suggests others."""
        found = self.get_command(ctx, args[0])
        if found is None and (ctx.resilient_parsing or args[0].startswith("-")):
            return super().resolve_command(ctx, args)
        if found is None:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=3, cutoff=0.6)
            hint = f"did you mean: {', '.join(near)}?" if near else "see: store --help"
            raise Misused(f"there is no command {args[0]!r}", hint=hint)
        return found.name, found, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List all commands by section."""
        place = current_run(ctx)
        rows = [(entry.section, entry.name, entry.about) for entry in registry.ENTRIES]
        _operations_module().fetch_quickly(place)
        generated = _operations_module().list_operations(place)
        for section in dict.fromkeys(row[0] for row in (*rows, *generated)):
            with formatter.section(section):
                formatter.write_dl(
                    [row[1:] for row in (*rows, *generated) if row[0] == section], col_max=WIDEST
                )
        if not generated:
            formatter.write_paragraph()
            formatter.write_text(WITHOUT_STORE.format(url=place.config().url))


def _prepare_run(given: Any, said: EarlyOptions) -> ProgramRun:
    place = given if isinstance(given, ProgramRun) else ProgramRun()
    place.early_options = said
    known = (said.log_level or "").upper()
    configure_logging(
        known if known in ("DEBUG", "ERROR", "WARNING", "CRITICAL") else DEFAULT_LEVEL
    )
    return place


def _operations_module() -> Any:
    """Imported late: not every command needs the definition."""
    return importlib.import_module("store_client.cli.operations")


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
    callback=lambda **_: None,
    no_args_is_help=True,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": HELP},
    subcommand_metavar="COMMAND [OPTIONS]",
)


def main() -> None:
    """The entry point of `store`."""
    reopen_closed_streams()
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            exit_immediately(INTERRUPTED)
        raise
