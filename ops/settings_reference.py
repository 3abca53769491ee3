"""The command `settings`."""

import click
from rich.console import Console

from config import Settings
from config.reference import list_current_values
from ops.commands import print_table


@click.command(name="settings")
@click.pass_obj
def print_settings(settings: Settings) -> None:
    """Print every setting with its value."""
    print_table(
        Console(), "Settings", ("variable", "value", "meaning"), list_current_values(settings)
    )
