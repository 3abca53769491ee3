"""Options that allow an engine to be absent."""

from collections.abc import Sequence

import click

from tests.engines.startup import ENGINES, TOOLS


def names(_context: click.Context, _parameter: click.Parameter, said: Sequence[str]) -> set[str]:
    """The names in what was said, between commas or blanks; BadParameter for one nobody has."""
    found = {name for one in said for name in one.replace(",", " ").split()}
    if unknown := found - {*ENGINES, *TOOLS}:
        known = ", ".join([*ENGINES, *TOOLS])
        raise click.BadParameter(f"nothing is called {', '.join(sorted(unknown))}, but {known}")
    return found


option = click.option(
    "--excuse",
    multiple=True,
    envvar="STORE_TEST_EXCUSED",
    callback=names,
    metavar="NAMES",
    help="Do without these engines, knowingly; repeatable, or with commas between.",
)
