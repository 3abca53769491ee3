"""The commands `settings`, `settings check` and `settings example`."""

import os

import click

from config import Settings
from config.deployment import KINDS, find_conflicts, find_kind
from config.loading import LoadedSettings, read_all_settings
from config.reference import list_current_values, render_example
from config.settings import FILE_VARIABLE, SettingsError
from ops.output import CommandOutput, OutputTable, prints_state


@click.group(name="settings", invoke_without_command=True)
@click.pass_context
@prints_state
def settings_commands(context: click.Context) -> CommandOutput | None:
    """Print every setting with its value and where it came from."""
    if context.invoked_subcommand is not None:
        return None
    loaded = read_all_settings(os.environ)
    if loaded.problems:
        raise SettingsError("\n".join(loaded.problems))
    columns = ("variable", "value", "source", "meaning")
    return CommandOutput(OutputTable("Settings", columns, _list_rows(loaded)))


def _list_rows(loaded: LoadedSettings) -> list[tuple[str, str, str, str]]:
    names = vars(Settings())
    values = list_current_values(loaded.settings)
    return [
        (variable, value, loaded.sources.get(name, "default"), about)
        for name, (variable, value, about) in zip(names, values, strict=True)
    ]


@settings_commands.command()
@click.argument("file", required=False)
@prints_state
def check(file: str | None) -> CommandOutput:
    """Report everything that is wrong with the settings.

    FILE is read instead of the file that STORE_SETTINGS_FILE names. The exit code is 0 if nothing
    is wrong, otherwise 1. Nothing is started.
    """
    loaded = read_all_settings({**os.environ, **({FILE_VARIABLE: file} if file else {})})
    problems = loaded.problems + find_conflicts(loaded.settings)
    kind, count = find_kind(loaded.settings), len(loaded.sources)
    value = {"kind": kind, "set": count, "problems": problems}
    if problems:
        error = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        return CommandOutput(value, text="\n".join(problems), error=error)
    return CommandOutput(value, text=f"no problem: {KINDS[kind]}, {count} settings are set")


@settings_commands.command()
def example() -> None:
    """Print a settings file with every setting, its meaning and its default."""
    click.echo(render_example())
