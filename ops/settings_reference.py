"""The command `settings`."""

import click

from config import Settings
from config.reference import list_current_values
from ops.output import CommandOutput, OutputTable, prints_output


@click.command(name="settings")
@click.pass_obj
@prints_output
def print_settings(settings: Settings) -> CommandOutput:
    """Print every setting with its value."""
    columns = ("variable", "value", "meaning")
    return CommandOutput(OutputTable("Settings", columns, list_current_values(settings)))
