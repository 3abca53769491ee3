"""The commands that the store's definition makes: one for every operation."""

import importlib
import re
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from store_client.cli import answers, registry
from store_client.cli.arguments import HEADERS, arguments, header_option, option
from store_client.cli.frame import Here, build
from store_client.cli.place import Place
from store_client.cli.plain import line, plain
from store_client.errors import Misused, StoreError

if TYPE_CHECKING:
    from store_client.definition import Definition, Operation

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
"""So like one of our own commands is a name that is mistyped."""


def names(place: Place) -> list[str]:
    """Of all operations that are known without the network."""
    return [name for _, name, _ in listed(place)]


def listed(place: Place) -> list[tuple[str, str, str]]:
    """Heading, name, and one line about each that is known without the network."""
    known = cached(place)
    if known is None:
        return []
    rows = [
        (section(operation), line(operation.command), plain(operation.summary))
        for operation in known.operations.values()
    ]
    order = [heading for heading, _ in (*SECTIONS, *SECTIONS_OF_AUTH)]
    return sorted(rows, key=lambda row: order.index(row[0]))


def asked_quickly(place: Place) -> None:
    """Have a store that was never asked tell what it can do, if it does so in a few seconds."""
    if cached(place) is not None:
        return
    transport: Any = importlib.import_module("store_client.transport")
    policy = transport.Policy(waits_s=(), unknown_retries=0, connect_s=2.0, read_s=5.0)
    config = place.config()
    with transport.Session(config.url, policy=policy) as session, suppress(StoreError):
        importlib.import_module("store_client.definition").load(session, config)


def found(place: Place, name: str, *, asks: bool) -> click.Command | None:
    """The command of an operation; if nothing is known of it and `asks`, the store is asked."""
    definition = cached(place)
    operation = _named(definition, name)
    if asks and not (operation and place.said.help):
        operation = _asked(place, name, definition)
    return None if operation is None else made(operation)


def cached(place: Place) -> "Definition | None":
    """What was fetched of this store's definition, however long ago."""
    module = importlib.import_module("store_client.definition")
    known: Definition | None = module.cached(place.config())
    return known


def section(operation: "Operation") -> str:
    """The heading that an operation is listed under."""
    path = re.sub(r"^https?://[^/]*", "", operation.url)
    choices = SECTIONS_OF_AUTH if operation.service == "auth" else SECTIONS
    return next(heading for heading, pattern in choices if re.search(pattern, path))


def made(operation: "Operation") -> click.Command:
    """The command of one operation, its help and options as the definition has them."""
    own: list[click.Parameter] = [
        option(parameter, paged=bool(operation.paged))
        for parameter in sorted(operation.parameters, key=lambda one: not one.required)
    ]
    if operation.paged:
        own.append(click.Option(["--no-paginate"], is_flag=True, help="Only the first page."))

    if not any("--header" in one.opts for one in own):
        own.append(header_option())

    def run(here: Here, no_paginate: bool = False, **given: Any) -> None:
        wanted = arguments(operation.parameters, given)
        if told := given.get(HEADERS):
            wanted["headers"] = dict(told)
        answers.show(here, operation, wanted, all_pages=not no_paginate)

    about = "\n\n".join(part for part in (operation.summary, operation.about) if part)
    more = "Needs a token: store login." if operation.token == "must" else ""
    return build(
        line(operation.command),
        run,
        own,
        help=plain(about),
        section=section(operation),
        more=more,
    )


def _asked(place: Place, name: str, known: "Definition | None") -> "Operation | None":
    """Of the definition as it is now; one that was fetched lately may be too old."""
    if known is None and get_close_matches(name, registry.COMMANDS, cutoff=TYPING_ERROR):
        return None  # nothing that a store would have to be waited for
    client = place.client(place.config())
    try:
        operation = _named(client.definition, name)
        if operation is None:
            client.operation(name)  # asks for the definition anew before it is sure
            operation = _named(client.definition, name)
    except StoreError as error:
        if known is None and not isinstance(error, Misused):
            raise
        return _named(known, name)
    return operation


def _named(definition: "Definition | None", name: str) -> "Operation | None":
    if definition is None:
        return None
    by_command = {one.command: one for one in definition.operations.values()}
    if name in by_command:
        return by_command[name]
    near = like(name, by_command)
    return by_command[near[0]] if len(near) == 1 else None


def like(name: str, commands: Iterable[str]) -> list[str]:
    """Commands that differ from a name by singular and plural or by signs between words."""
    return [command for command in commands if _stem(command) == _stem(name)]


def _stem(name: str) -> list[str]:
    return [word.rstrip("s") for word in re.split(r"[-_.]", name.lower())]
