"""The program `store`, and its groups of commands.

Built-in commands are in registry.py, grouped by noun; every other name is an operation of the API
(operations.py), which `store api` lists.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem, split_arg_string

from store_client.cli import registry
from store_client.cli.context import (
    HELP,
    ProgramRun,
    current_run,
    format_example,
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

WIDEST = 34
"""Characters of a name that the column of names makes room for."""
WITHOUT_STORE = (
    "The operations are not listed, because {url} does not answer. They are loaded from the "
    "store once it is reachable: store api --url URL, or store login --url URL."
)
Row = tuple[str, str, str]
"""Section, name and summary of a command."""


class CommandGroup(click.Group):
    """Commands that are imported when they run; alone, it shows its help."""

    def __init__(self, name: str, **more: Any) -> None:
        more.setdefault("callback", lambda **_: None)
        more.setdefault("params", store_options())
        super().__init__(
            name,
            context_settings={"help_option_names": HELP},
            subcommand_metavar="COMMAND [OPTIONS]",
            **more,
        )

    def list_rows(self, ctx: click.Context) -> list[Row]:
        """The commands that help shows."""
        raise NotImplementedError

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names that may be typed here, as far as they are known without a request."""
        return [name for _, name, _ in self.list_rows(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the line; without any word this is a request for help."""
        if not args and not ctx.resilient_parsing:
            args = ["--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; the error for an unknown name suggests others."""
        both = " ".join(args[:2])
        if len(args) > 1 and args[0] not in registry.NOUNS and both in registry.COMMANDS:
            # `search fields`; other words are searched for.
            return both, registry.load_command(both), args[2:]
        found = self.get_command(ctx, args[0])
        if found is not None:
            return self.shown_name(args[0], found), found, args[1:]
        if ctx.resilient_parsing or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        place = ctx.command_path
        near = suggest_commands(args[0], self.list_commands(ctx))
        hint = f"did you mean: {', '.join(near)}?" if near else f"see: {place} --help"
        raise Misused(f"there is no command {args[0]!r}", hint=hint)

    def shown_name(self, typed: str, found: click.Command) -> str | None:
        """The name of a command in its help."""
        return found.name

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = self.list_rows(ctx)
        for section in dict.fromkeys(row[0] for row in rows):
            with formatter.section(section):
                formatter.write_dl([row[1:] for row in rows if row[0] == section], col_max=WIDEST)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a name without importing its command; without any letter, those of help."""
        shown = {name: about for _, name, about in self.list_rows(ctx)}
        names = self.list_commands(ctx) if incomplete else list(shown)
        found = [
            CompletionItem(name, help=shown.get(name))
            for name in names
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "ls": ("bundle list", "area files"),
    "find": ("search",),
    "query": ("search",),
    "get": ("download", "file cp"),
    "fetch": ("download",),
    "pull": ("download",),
    "sync": ("download", "upload"),
    "cp": ("file cp", "upload"),
    "put": ("upload",),
    "push": ("upload",),
    "deposit": ("upload",),
    "submit": ("upload",),
    "rm": ("bundle delete", "collection delete"),
    "remove": ("bundle delete", "collection delete"),
    "cat": ("file cat",),
    "head": ("file show",),
    "stat": ("file show",),
    "info": ("bundle show", "file show"),
    "dataset": ("bundle",),
    "project": ("collection",),
    "webhook": ("subscription",),
    "subscribe": ("subscription create",),
    "watch": ("listen",),
    "tail": ("listen",),
    "auth": ("login", "whoami"),
    "config": ("profiles", "doctor"),
    "configure": ("login", "profiles"),
    "help": ("--help",),
}
"""Words of other clients (aws s3, gh, synapse, dss) for what commands here do."""


def suggest_commands(name: str, known: Sequence[str]) -> list[str]:
    """Commands that were perhaps meant: with that verb, or alike in spelling."""
    verbs = [one for one in registry.COMMANDS if one.endswith(f" {name}")]
    for one in SYNONYMS.get(name.lower(), ()):
        noun, _, verb = one.rpartition(" ")
        # Within a noun its verb is enough.
        verbs += [one] if (noun or one) in known or one in HELP else [verb] if verb in known else []
    verbs = list(dict.fromkeys(verbs))
    return (verbs + difflib.get_close_matches(name, known, n=3, cutoff=0.6))[:3]


class NounGroup(CommandGroup):
    """The commands of a noun: `store bundle show`."""

    def list_rows(self, ctx: click.Context) -> list[Row]:
        before = len(f"{self.name} ")
        return [
            ("Commands", entry.name[before:], entry.about)
            for entry in registry.list_verbs(str(self.name))
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return registry.load_command(f"{self.name} {cmd_name}")

    def shown_name(self, typed: str, found: click.Command) -> str | None:
        """The verb; the command may have a former name."""
        return typed


class ApiGroup(CommandGroup):
    """The operations of the API, by section."""

    def list_rows(self, ctx: click.Context) -> list[Row]:
        """The operations that are known without a request."""
        return list_operations(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The operation of that name, or of a name that can only mean it."""
        return find_operation(ctx, cmd_name.replace("_", "-"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List all operations, which are fetched from a store that is new."""
        place = current_run(ctx)
        _operations_module().fetch_quickly(place)
        super().format_commands(ctx, formatter)
        if not self.list_rows(ctx):
            formatter.write_paragraph()
            formatter.write_text(WITHOUT_STORE.format(url=place.config().url))


def load_group(name: str) -> click.Command | None:
    """The group of that name; None if there is none."""
    if name == registry.API:
        return ApiGroup(
            name,
            help=ABOUT_API,
            epilog=format_example("store api get-bundle --uuid UUID --replica aws"),
        )
    about = registry.NOUNS.get(name)
    if about is None:
        return None
    return NounGroup(name, help=about, epilog=format_example(NOUN_EXAMPLES[name]))


NOUN_EXAMPLES = {
    "bundle": "store bundle list --limit 10",
    "file": "store file cat UUID",
    "collection": "store collection show UUID",
    "subscription": "store subscription deliveries UUID",
    "area": "store area select --new",
}
ABOUT_API = """All operations of the store's API, one command each.

They come from the store's API definition, which is cached for an hour; `store clear-cache` drops
it. Each also works without the word api: `store get-bundle` is `store api get-bundle`.
"""


def find_operation(ctx: click.Context, name: str) -> click.Command | None:
    """The command of an operation; None if there is none."""
    if name in SYNONYMS:  # no operation is called so: the store is not asked
        return None
    found: click.Command | None = _operations_module().find_command(
        current_run(ctx), name, asks=not ctx.resilient_parsing
    )
    return found


def list_operations(ctx: click.Context) -> list[Row]:
    """The operations that are known without a request."""
    rows: list[Row] = _operations_module().list_operations(current_run(ctx))
    return rows


def _operations_module() -> Any:
    """Imported late: not every command needs the definition."""
    return importlib.import_module("store_client.cli.operations")


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
