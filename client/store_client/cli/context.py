"""The context of a command: common options, the store in use, and its client.

`ProgramRun` is the context's object. It makes clients on first use, and closes them.

@command("whoami", help="Show the current user.")
@click.option("--verbose", is_flag=True)
def whoami(here: CommandContext, verbose: bool) -> None:
    here.show(here.client.call("get_oauth_userinfo"))
"""

import importlib
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from store_client.cli import answers
from store_client.cli.answers import FORMATS, AnswerOptions, check_expressions, parse_fields
from store_client.cli.terminal import LEVELS, configure_logging, escape_text, silence_warnings
from store_client.configuration import Configuration, load_configuration
from store_client.errors import INTERRUPTED, AnswerObject, Misused

if TYPE_CHECKING:
    from store_client.client import Client

_EARLY = {"--url": "url", "--profile": "profile", "--env": "profile", "--log-level": "log_level"}
HELP = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class EarlyOptions:
    """Options that are needed before the command is known."""

    url: str | None = None
    profile: str | None = None
    log_level: str | None = None
    help: bool = False
    """For --help the cached definition is enough."""


def parse_early(arguments: Sequence[str]) -> EarlyOptions:
    """Parse the early options anywhere on the line; click validates them later."""
    said: dict[str, str] = {}
    wants_help = False
    waiting = ""
    for argument in arguments:
        if argument == "--":
            break
        name, equals, value = argument.partition("=")
        wants_help = wants_help or argument in HELP
        if waiting:
            said[waiting] = argument
            waiting = ""
        elif name in _EARLY and equals:
            said[_EARLY[name]] = value
        else:
            waiting = _EARLY.get(argument, "")
    return EarlyOptions(**said, help=wants_help)


def make_client(config: Configuration) -> "Client":
    """Make a client; imported late, for not every command needs one."""
    module = importlib.import_module("store_client.client")
    policy = module.RetryPolicy(retries_refused=not sys.stderr.isatty())
    made: Client = module.Client(config=config, policy=policy)
    return made


@dataclass(slots=True)
class ProgramRun:
    """One run of the program, with its clients."""

    make: Callable[[Configuration], "Client"] = make_client
    early_options: EarlyOptions = EarlyOptions()
    words: tuple[str, ...] = ()
    """The command line, without the program's name."""
    _clients: dict[Configuration, "Client"] = field(default_factory=dict)

    def config(self, url: str | None = None, profile: str | None = None) -> Configuration:
        """The configuration by the command's options, else by the program's."""
        if url or profile:
            return load_configuration(url, profile)
        return load_configuration(self.early_options.url, self.early_options.profile)

    def client(self, config: Configuration) -> "Client":
        """The client of that store in this run."""
        if config not in self._clients:
            made = self._clients[config] = self.make(config)
            made.session.object_type = AnswerObject
        return self._clients[config]

    def close(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()


def current_run(context: click.Context) -> ProgramRun:
    """The current run, created on first use."""
    root = context.find_root()
    if not isinstance(root.obj, ProgramRun):
        root.obj = ProgramRun()
    found: ProgramRun = root.obj
    if not root.meta.get(_CLOSES):
        root.meta[_CLOSES] = True
        root.call_on_close(found.close)
    return found


_CLOSES = f"{__name__}.closes"


Output = Literal["json", "lines", "table", "csv", "tsv", "raw"]


@dataclass(slots=True)
class CommandContext:
    """What a command gets first: its store, and its output."""

    config: Configuration
    json: bool
    """A document was asked for, or the output is no terminal."""
    output: Output
    quiet: bool
    run: ProgramRun
    format_chosen: bool = False
    """The form of the output was asked for by an option."""
    answer: AnswerOptions = field(default_factory=AnswerOptions)
    """How the answer was asked for."""

    @property
    def client(self) -> "Client":
        """A client of the store, created on first use and closed at the end."""
        return self.run.client(self.config)

    def show(self, value: Any, *, title: str = "") -> None:
        """Write the result, or what an expression selects of it, in the chosen format."""
        if self.answer.query or self.answer.jq:
            answers.write_selected(value, self.answer)
        elif self.answer.fields:
            answers.write_picked(value, self.answer)
        else:
            answers.write_value(value, self.output, chosen=self.format_chosen, title=title)

    def check_fields(self, known: Sequence[str]) -> None:
        """Misused for a field that the answer will not have; before anything is changed."""
        for name in self.answer.fields or ():
            if name not in known:
                raise answers.unknown_field(name, known)

    def check_fields_of(self, operation: str, *more: str) -> None:
        """Misused for a field that neither the operation's answer has nor is one of `more`."""
        if self.answer.fields and (known := self.client.operation(operation).fields):
            self.check_fields((*known, *more))

    def show_rows(
        self,
        rows: Iterable[Mapping[str, Any]],
        columns: Sequence[str],
        *,
        title: str = "",
        empty: str = "",
        limit: int | None = None,
    ) -> None:
        """Write a list; the columns are those of tables, and `empty` is noted if it has no rows."""
        limited = answers.limit_rows(rows, limit, self.answer)
        count = answers.write_rows(limited, columns, self.answer, title=title)
        if not count and empty:
            self.note(empty)
        if limited.more and limit is None:
            self.note(f"There are more than {count}: --limit shows more.")

    def show_record(self, record: Mapping[str, Any], *, hidden: Sequence[str] = ()) -> None:
        """Write one object; its `hidden` members only as JSON."""
        answers.write_record(record, self.answer, hidden=hidden)

    def replica(self, given: str | None = "") -> str:
        """The replica that was given, or the profile's, or aws."""
        return self.config.choose_replica(given)

    def page_url(self, path: str) -> str:
        return f"{self.config.url}{path}"

    def open_page(self, path: str) -> None:
        """Open a page of the store in the browser, or say where it is."""
        url = self.page_url(path)
        if not importlib.import_module("webbrowser").open(url):
            self.note("There is no browser here; open this page in one:")
        click.echo(url)

    def confirm(self, what: str, *, sure: bool) -> None:
        """Ask before something that cannot be undone; without a terminal it needs --yes."""
        if sure:
            return
        if not is_interactive():
            raise Misused(f"{what} Give --yes to do it without being asked.")
        width = shutil.get_terminal_size().columns
        # A uuid is no word of several, at whose hyphens a line may end.
        self.note(textwrap.fill(what, width, break_on_hyphens=False, break_long_words=False))
        if not click.confirm("Do it?", err=True):
            self.note("Nothing was changed.")
            raise click.exceptions.Exit(INTERRUPTED)

    def note_how_to_resume(self, kept: str) -> None:
        """Tell what an interrupted command keeps, and the command that resumes."""
        silence_warnings()
        self.note(f"\n{kept}")
        self.note(
            f"To resume, run the same command again:\n  {shlex.join(['store', *self.run.words])}"
        )

    def note(self, text: str) -> None:
        """Write a line to standard error, unless --quiet."""
        if not self.quiet:
            click.echo(escape_text(text), err=True)


def is_interactive() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class _LogLevel(click.Choice[str]):
    """A log level in upper or lower case."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(str(value).upper(), param, ctx)


class FieldsOption(click.Option):
    """The option `--json[=FIELDS]` of commands with arguments, which a space would make fields."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The name with its optional value, and the help."""
        found = super().get_help_record(ctx)
        return found and (found[0].replace(" [", "["), found[1])


class StoreCommand(click.Command):
    """A command whose help lists the common options last."""

    common: tuple[click.Parameter, ...] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the line; `--json` alone is complete where only `=` gives it fields."""
        if any(isinstance(one, FieldsOption) for one in self.params):
            end = args.index("--") if "--" in args else len(args)
            args = ["--json=" if one == "--json" else one for one in args[:end]] + args[end:]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List its own arguments and options, then the common ones."""
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
            if filled := [record for record in records if record]:
                with formatter.section(heading):
                    formatter.write_dl(filled)


def command(
    name: str,
    *,
    help: str = "",  # noqa: A002
    epilog: str = "",
    example: str = "",
    as_answer: bool = False,
) -> Callable[[Callable[..., Any]], StoreCommand]:
    """Make a function `def f(here, ...)` a command with the common options.

    With `as_answer` they are those of answers.py, for `show_rows` and `show_record`.
    """

    def decorate(function: Callable[..., Any]) -> StoreCommand:
        own: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
        more = format_example(example) if example else epilog
        return build_command(name, function, own, help=help, more=more, as_answer=as_answer)

    return decorate


def format_example(line: str) -> str:
    """One example as the end of a command's help."""
    return f"\b\nExample:\n  {line}"


def build_command(
    name: str,
    function: Callable[..., Any],
    own: list[click.Parameter],
    *,
    help: str,  # noqa: A002
    more: str = "",
    as_answer: bool = False,
) -> StoreCommand:
    """Build a command with given parameters and the common options."""

    def run(**given: Any) -> None:
        here = _make_context({key: given.pop(key, None) for key in _COMMON_NAMES if key in common})
        function(here, **given)

    taken = {opt for parameter in own for opt in (*parameter.opts, *parameter.secondary_opts)}
    if as_answer:
        usual = _answer_options()
    else:
        usual = _common_options(taken, any(isinstance(one, click.Argument) for one in own))
    options = [option for option in usual if not taken.intersection(option.opts)]
    common = {option.name for option in options}
    made = StoreCommand(
        name,
        callback=run,
        params=[*own, *options],
        help=help,
        epilog=more or None,
        context_settings={
            "token_normalize_func": lambda given: given.replace("_", "-"),
            "help_option_names": HELP,
        },
    )
    made.common = tuple(options)
    return made


_COMMON_NAMES = (
    "log_level",
    "url",
    "profile",
    "output_form",
    "quiet",
    "json_fields",
    "answer_form",
    "query",
    "jq",
)


def _common_options(taken: Set[str], with_arguments: bool) -> list[click.Option]:
    """The options of every command; its own options, whose names are `taken`, win."""
    forms = [name for name in ("--output", "--format") if name not in taken]
    return [
        *store_options(),
        _equals_json_option() if with_arguments else _json_option(),
        click.Option(
            [*forms, "output_form"],
            type=click.Choice(get_args(Output)),
            help="json: one document; lines: one item a line; table, csv, tsv; raw: the answer's "
            "bytes. Default: json, but on a terminal lists are tables.",
        ),
        *_expression_options(),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print only the result and errors."),
    ]


def _expression_options() -> list[click.Option]:
    return [
        click.Option(["--query"], default="", metavar="JMESPATH", help="Select from the answer."),
        click.Option(["--jq"], default="", metavar="EXPRESSION", help="Select with jq's language."),
    ]


def _json_option() -> click.Option:
    return click.Option(
        ["--json", "json_fields"],
        is_flag=False,
        flag_value="",
        metavar="[FIELDS]",
        help="One JSON document, of these fields: --json uuid,version.",
    )


def _equals_json_option() -> click.Option:
    return FieldsOption(
        ["--json", "json_fields"],
        metavar="[=FIELDS]",
        help="One JSON document, of these fields: --json=uuid,version.",
    )


def _answer_options() -> list[click.Option]:
    """The options of commands that show lists or objects."""
    return [
        _json_option(),
        click.Option(
            ["--format", "--output", "answer_form"],
            type=click.Choice(FORMATS),
            help="Default: table on a terminal, else lines: one JSON value a line.",
        ),
        *_expression_options(),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print only the result and errors."),
        *store_options(),
    ]


def store_options() -> list[click.Option]:
    """The options for store and log level, before or after the command."""
    return [
        click.Option(
            ["--log-level"],
            type=_LogLevel(LEVELS),
            help="Log level on standard error; DEBUG shows tracebacks.  [default: INFO]",
        ),
        click.Option(["--url"], help="Base URL of the store, or set STORE_CLIENT_URL."),
        click.Option(
            ["--profile", "--env", "profile"],
            help="Name of a store (see profiles), or set STORE_CLIENT_PROFILE.",
        ),
    ]


def _make_context(common: dict[str, Any]) -> CommandContext:
    place = current_run(click.get_current_context())
    quiet = bool(common.get("quiet"))
    level = common.get("log_level") or place.early_options.log_level
    configure_logging(level or ("WARNING" if quiet else "INFO"))
    fields = parse_fields(common.get("json_fields"))
    given_form = common.get("output_form")
    # `--json` alone wins over --format; fields can be had in each form.
    is_json = fields == () or common.get("query") or common.get("jq")
    asked: Output | None = "json" if is_json else given_form or ("json" if fields else None)
    if fields and asked == "raw":
        raise Misused("--json: the raw answer has no fields", hint="leave --format raw away")
    answer = AnswerOptions(
        common.get("answer_form") or (given_form if fields and given_form else ""),
        fields,
        common.get("query") or "",
        common.get("jq") or "",
    )
    check_expressions(answer)
    form: Output = asked or ("table" if sys.stdout.isatty() else "json")
    return CommandContext(
        config=place.config(common.get("url"), common.get("profile")),
        json=form == "json" or bool(fields),
        output=form,
        quiet=quiet,
        run=place,
        format_chosen=bool(asked),
        answer=answer,
    )
