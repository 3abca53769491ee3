"""The commands that the store's definition makes: one for every operation."""

import click

from store_client.cli.place import Place


def names(place: Place) -> list[str]:
    """Of all operations that are known without the network."""
    return []


def found(place: Place, name: str, *, asks: bool) -> click.Command | None:
    """The command of an operation."""
    return None


def listed(place: Place) -> list[tuple[str, str, str]]:
    """Heading, name, and one line about each."""
    return []
