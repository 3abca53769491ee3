"""Commands generated from the API definition, and how their answers are printed.

A raw file is verified while it is written: exit code 0 means that it is intact.
"""

import hashlib
import importlib
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import click

from store_client.cli import answers, registry
from store_client.cli.arguments import (
    HEADERS,
    build_header_option,
    build_option,
    collect_arguments,
    option_name,
)
from store_client.cli.context import (
    CommandContext,
    ProgramRun,
    build_command,
    format_example,
)
from store_client.cli.terminal import escape_line, escape_text, format_cell
from store_client.errors import Damaged, Misused, StoreError

if TYPE_CHECKING:
    import httpx

    from store_client.calls import OperationCall
    from store_client.client import Client
    from store_client.definition import ApiDefinition, ApiOperation, OperationParameter


def show_operation(
    here: "CommandContext", operation: "ApiOperation", given: dict[str, Any], *, all_pages: bool
) -> None:
    pages = bool(operation.paged) and all_pages
    if here.answer.fields and not (here.answer.query or here.answer.jq):
        _show_fields(here, operation, given, pages=pages)
    elif here.output == "raw" or operation.download:
        write_raw(here.client, operation, given, pages=pages)
    elif not pages:
        answer = here.client.call(operation.name, **given)
        _show_one(here, operation, answer)
    elif here.output == "lines":
        answers.write_lines(here.client.items(operation.name, **given))
    else:
        whole = merge_pages(here.client.pages(operation.name, **given), operation.paged)
        _show_one(here, operation, whole)


def _show_fields(
    here: "CommandContext", operation: "ApiOperation", given: dict[str, Any], *, pages: bool
) -> None:
    """Write the wanted fields of the answer, or of each item of a list that comes in pages."""
    if operation.download:
        raise Misused("--json: the answer is bytes, which have no fields")
    if operation.method != "GET":
        here.check_fields_of(operation.name)
    if pages:
        here.show(here.client.items(operation.name, **given))
        return
    answer = here.client.call(operation.name, **given)
    if answer is not None:
        here.show(list_items(answer, operation.paged) if operation.paged else answer)


def merge_pages(pages: Iterator[Any], key: str) -> Any:
    """Merge pages into one: the last page, with the items of all."""
    items: list[Any] = []
    page: Any = None
    for page in pages:
        items.extend(list_items(page, key))
    return None if page is None else _replace_items(page, key_parts(key), items)


def list_items(page: Any, key: str) -> list[Any]:
    """The items of a page; `bundle.files` is the list `files` in the object `bundle`."""
    for part in key_parts(key):
        page = page.get(part) if isinstance(page, dict) else None
    return page if isinstance(page, list) else []


def key_parts(key: str) -> list[str]:
    """The names in a key: `bundle.files` has two."""
    return [part for part in key.split(".") if part]


def _replace_items(page: Any, path: list[str], items: list[Any]) -> Any:
    if not path:
        return items
    known = page if isinstance(page, dict) else {}
    changed = {**known, path[0]: _replace_items(known.get(path[0]), path[1:], items)}
    if "page_count" in changed:
        changed["page_count"] = len(items)
    return changed


def _show_one(here: "CommandContext", operation: "ApiOperation", answer: Any) -> None:
    if answer is None:
        return
    if not operation.paged or here.output not in ("table", "lines", "csv", "tsv"):
        here.show(answer)
        return
    items = list_items(answer, operation.paged)
    answers.write_value(items, here.output)
    if here.output == "table":
        here.note(page_facts(answer, operation.paged, count=len(items)))


def page_facts(page: Any, key: str, *, count: int) -> str:
    """The scalars of a page besides its items, on one line."""
    said = []
    for part in key_parts(key):
        members = page.items() if isinstance(page, dict) else ()
        said += [
            f"{name}: {format_cell(value)}"
            for name, value in members
            if isinstance(value, str | int | float) and name not in PAGE_COUNTS
        ]
        page = page.get(part) if isinstance(page, dict) else None
    return ", ".join([f"{key_parts(key)[-1]}: {count}", *said])


PAGE_COUNTS = ("page_count", "per_page")
"""Of pages, which are one here."""


SHA256 = "X-STORE-SHA256"
BLOCK = 1024 * 1024
"""Bytes of a raw file that are written at once."""


def write_raw(
    client: "Client", operation: "ApiOperation", given: dict[str, Any], *, pages: bool
) -> None:
    """Write the raw response to standard output; pages as one line each."""
    calling: Any = importlib.import_module("store_client.calls")
    call: OperationCall = calling.build_call(operation, given)
    if pages:
        for page in client.session.pages(operation.method, call.url, **call.request_arguments()):
            answers.write_bytes(page.content.rstrip(b"\n") + b"\n")
    elif call.content is not None:
        answers.write_bytes(answers.dump_json(calling.execute_call(client.session, call)).encode())
    elif operation.download:
        with client.session.stream(
            operation.method, call.url, params=call.params, headers=call.headers, limit=None
        ) as content:
            for block in _read_blocks(content):
                answers.write_bytes(block)
    else:
        answer = client.session.request(operation.method, call.url, **call.request_arguments())
        if SHA256 in answer.headers and answer.is_redirect and operation.method == "GET":
            place = urljoin(str(answer.url), answer.headers["Location"])
            write_verified(client, place, answer.headers[SHA256])
        else:
            answers.write_bytes(answer.content)


def write_verified(client: "Client", place: str, sha256: str) -> None:
    """Write the file at a URL to standard output; Damaged at the end if its SHA-256 differs."""
    digest = hashlib.sha256()
    plain = {"Accept-Encoding": "identity"}
    with client.session.stream("GET", place, headers=plain, authorize=False, limit=None) as content:
        for block in _read_blocks(content):
            digest.update(block)
            answers.write_bytes(block)
    if digest.hexdigest() != sha256.lower():
        raise Damaged(
            "the output is not the file: its checksum is wrong",
            hint="delete it and try again, or use `store download`",
        )


def _read_blocks(content: "httpx.Response") -> Iterator[memoryview]:
    """Yield the body in blocks, each valid until the next."""
    reader = importlib.import_module("store_client.http.pool").BodyReader(content)
    buffer = memoryview(bytearray(BLOCK))
    while count := reader.read_some(buffer):
        yield buffer[:count]


SECTIONS = (
    ("Bundles", r"/v1/bundles\b"),
    ("Files", r"/v1/(files|tasks)\b"),
    ("Collections", r"/v1/collections\b"),
    ("Search and events", r"/v1/(search|events)\b"),
    ("Subscriptions", r"/v1/subscriptions\b"),
    ("Upload areas, operation by operation", r"/v1/area\b"),
    ("The store itself", r""),
)
SECTIONS_OF_AUTH = (
    ("Users, groups, roles", r"/v1/"),
    ("Logging in, operation by operation", r""),
)
"""Headings, and what is in the path of their operations; the first that fits is taken."""


TYPING_ERROR = 0.8
"""Similarity from which a name counts as a mistyped built-in command."""


def list_operations(place: ProgramRun) -> list[tuple[str, str, str]]:
    """Section, name and summary of each operation that is known without a request."""
    known = read_definition(place)
    if known is None:
        return []
    rows = [
        (
            operation_section(operation),
            escape_line(operation.command),
            escape_text(operation.summary),
        )
        for operation in known.operations.values()
    ]
    order = [heading for heading, _ in (*SECTIONS, *SECTIONS_OF_AUTH)]
    return sorted(rows, key=lambda row: order.index(row[0]))


def fetch_quickly(place: ProgramRun) -> None:
    """Fetch the definition of a store that is new, if it answers in a few seconds."""
    if read_definition(place) is not None:
        return
    transport: Any = importlib.import_module("store_client.http")
    policy = transport.RetryPolicy(waits_s=(), unknown_retries=0, connect_s=2.0, read_s=5.0)
    config = place.config()
    with transport.HttpSession(config.url, policy=policy) as session, suppress(StoreError):
        importlib.import_module("store_client.definition").load_definition(session, config)


def find_command(place: ProgramRun, name: str, *, asks: bool) -> click.Command | None:
    """The command of an operation; `asks` allows a request if it is unknown."""
    definition = read_definition(place)
    operation = _find_operation(definition, name)
    if asks and not (operation and place.early_options.help):
        operation = _find_fresh(place, name, definition)
    return None if operation is None else build_operation(operation)


def read_definition(place: ProgramRun) -> "ApiDefinition | None":
    """The cached definition of this store, however old."""
    module = importlib.import_module("store_client.definition")
    known: ApiDefinition | None = module.cached_definition(place.config())
    return known


def operation_section(operation: "ApiOperation") -> str:
    """The section that an operation is listed in."""
    path = re.sub(r"^https?://[^/]*", "", operation.url)
    choices = SECTIONS_OF_AUTH if operation.service == "auth" else SECTIONS
    return next(heading for heading, pattern in choices if re.search(pattern, path))


def build_operation(operation: "ApiOperation") -> click.Command:
    """Build the command of an operation from the definition."""
    own: list[click.Parameter] = [
        build_option(parameter, paged=bool(operation.paged))
        for parameter in sorted(operation.parameters, key=lambda one: not one.required)
    ]
    if operation.paged:
        own.append(click.Option(["--no-paginate"], is_flag=True, help="Only the first page."))

    if not any("--header" in one.opts for one in own):
        own.append(build_header_option())

    if operation.method == "DELETE":
        own.append(click.Option(["--yes"], is_flag=True, help="Do it without being asked."))

    def run(
        here: CommandContext, no_paginate: bool = False, yes: bool = False, **given: Any
    ) -> None:
        wanted = collect_arguments(operation.parameters, given)
        # On a terminal also if the question cannot be shown: then --yes is needed.
        if operation.method == "DELETE" and not yes and sys.stdin and sys.stdin.isatty():
            named = ", ".join(f"{name} {value}" for name, value in wanted.items())
            here.confirm(f"{operation.summary} {operation.about} ({named})", sure=False)
        if headers := given.get(HEADERS):
            wanted["headers"] = dict(headers)
        show_operation(here, operation, wanted, all_pages=not no_paginate)

    about = "\n\n".join(part for part in (operation.summary, operation.about) if part)
    more = format_example(_example_line(operation))
    if operation.token == "must":
        more = f"{more}\n\nNeeds a token: store login."
    return build_command(
        escape_line(operation.command),
        run,
        own,
        help=escape_text(about),
        more=more,
    )


def _example_line(operation: "ApiOperation") -> str:
    """A command line with what is required."""
    words = [f"store {operation.command}"]
    for parameter in operation.parameters:
        if parameter.required:
            name = option_name(parameter.name)
            words.append(f"--{name} {_example_value(parameter)}")
    return escape_line(" ".join(words))


def _example_value(parameter: "OperationParameter") -> str:
    schema = parameter.schema
    values = [value for value in schema.get("enum") or () if value is not None]
    if values:
        return str(values[0])
    example = schema.get("example")
    if schema.get("type") in ("object", "array") or schema.get("format") == "binary":
        return f"@{option_name(parameter.name)}.json" if schema.get("type") else "FILE"
    if schema.get("format") == "uuid":
        return "UUID"
    return shlex.quote(str(example)) if example else option_name(parameter.name).upper()


def _resembles_command(name: str) -> bool:
    """Whether a name is a mistyped command or noun, or a verb without its noun."""
    # Operations have names of two words at least: get-collection is no mistyped collection.
    built_in = (*registry.COMMANDS, *(() if "-" in name else registry.NOUNS))
    return bool(get_close_matches(name, built_in, cutoff=TYPING_ERROR)) or any(
        one.endswith(f" {name}") for one in built_in
    )


def _find_fresh(
    place: ProgramRun, name: str, known: "ApiDefinition | None"
) -> "ApiOperation | None":
    """Find an operation in the current definition; the cached one may be too old."""
    if known is None and _resembles_command(name):
        return None  # nothing that a store would have to be waited for
    client = place.client(place.config())
    try:
        operation = _find_operation(client.definition, name)
        if operation is None:
            client.operation(name)  # asks for the definition anew before it is sure
            operation = _find_operation(client.definition, name)
    except StoreError as error:
        if known is None and not isinstance(error, Misused):
            raise
        return _find_operation(known, name)
    return operation


def _find_operation(definition: "ApiDefinition | None", name: str) -> "ApiOperation | None":
    if definition is None:
        return None
    by_command = {one.command: one for one in definition.operations.values()}
    if name in by_command:
        return by_command[name]
    near = similar_names(name, by_command)
    return by_command[near[0]] if len(near) == 1 else None


def similar_names(name: str, commands: Iterable[str]) -> list[str]:
    """Commands that differ from a name only in plural or in word separators."""
    return [command for command in commands if _word_stems(command) == _word_stems(name)]


def _word_stems(name: str) -> list[str]:
    return [word.rstrip("s") for word in re.split(r"[-_.]", name.lower())]
