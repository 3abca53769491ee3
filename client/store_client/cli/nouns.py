"""Arguments and options that the commands of the nouns share."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from store_client.errors import Misused
from store_client.identifiers import REPLICAS
from store_client.references import Reference, parse_reference, read_references

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

replica_option = click.option(
    "--replica",
    type=click.Choice(REPLICAS),
    help="Which copy of the store's content.  [default: the profile's, else aws]",
)
web_option = click.option("--web", is_flag=True, help="Open the page in a browser instead.")
yes_option = click.option("--yes", is_flag=True, help="Do it without being asked.")
limit_option = click.option(
    "--limit",
    type=click.IntRange(1),
    help="Rows at most.  [default: 100 on a terminal, else all]",
)


def combine_options(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


table_options = combine_options(
    click.option(
        "--table",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A table, separated by tabs (.csv: commas); each row becomes a bundle.",
    ),
    click.option(
        "--template",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="JSON that says which files the bundle of a row has.",
    ),
    click.option(
        "--data-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Where the files of a table are.  [default: beside the table]",
    ),
)
"""A table whose rows are bundles."""


def ids_argument(noun: str) -> Decorator:
    """The ids of one or more objects, or `-` for lines of standard input."""
    return click.argument(
        "ids",
        nargs=-1,
        required=True,
        metavar=f"{noun.upper()}...",
        callback=lambda ctx, param, value: tuple(parse_ids(value, noun)),
    )


def id_argument(noun: str, name: str = "named", *, required: bool = True) -> Decorator:
    """The id of one object."""
    return click.argument(
        name,
        required=required,
        metavar=noun.upper(),
        callback=lambda ctx, param, value: None if value is None else parse_reference(value, noun),
    )


def parse_ids(said: Sequence[str], noun: str) -> list[Reference]:
    """Parse ids; `-` stands for the lines of standard input, each read once."""
    found: list[Reference] = []
    for one in said:
        found += read_stdin(noun) if one == "-" else [parse_reference(one, noun)]
    if not found:
        raise Misused(f"there is no {noun} on standard input")
    return list(dict.fromkeys(found))


def read_stdin(noun: str) -> list[Reference]:
    """The objects that the lines of standard input name."""
    if sys.stdin is None:
        raise Misused("standard input is closed")
    return list(read_references(sys.stdin, noun))


def page_query(reference: Reference, replica: str) -> str:
    """The query of a page's address: version, and a replica other than aws."""
    pairs = [("version", reference.version)] if reference.version else []
    pairs += [("replica", replica)] if replica != "aws" else []
    return "?" + "&".join(f"{name}={value}" for name, value in pairs) if pairs else ""
