"""The operator's commands: `python -m ops --help`."""

import importlib
import os
from typing import Any

import click

from config import SettingsError, load
from storage.errors import StoreError
from storage.faults import explain

COMMANDS = {
    "run": "ops.run:run",
    "migrate": "ops.migrations:migrate",
    "prepare": "ops.migrations:prepare",
    "token": "ops.token_commands:token",
    "rotate-key": "ops.token_commands:rotate_key",
    "settings": "ops.manual:print_settings",
    "demo": "ops.demo.cli:demo",
    "clients": "ops.clients:clients",
    "status": "ops.inspect:status",
    "sweep": "ops.inspect:sweep",
    "parked": "ops.inspect:parked",
    "read-only": "ops.switches:read_only",
    "service-accounts": "ops.service_accounts:service_accounts",
    "purge": "ops.purging:purge",
    "reconcile": "ops.integrity:reconcile",
    "verify": "ops.integrity:verify",
    "fixity-report": "ops.fixity:fixity_report",
    "rebuild": "ops.rebuilding:rebuild",
    "fingerprint": "ops.rebuilding:print_fingerprint",
    "backup": "ops.backups:backup",
    "restore": "ops.backups:restore",
    "users": "ops.users:users",
}
"""Where each command is; it is imported when it is called, so that the supervisor stays small."""


class Plainly(click.Group):
    """Commands that say in a sentence what they could not do: operators need no traceback of it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command by its name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen one."""
        try:
            return super().invoke(ctx)
        except (StoreError, SettingsError, OSError) as error:
            raise click.ClickException(explain(error)) from error


@click.group(
    cls=Plainly,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Operate a store. Settings come from STORE_* variables.

    When something is wrong, `status` says what; docs/operations.md says what to do about it ("What
    can fail", "When something is lost"). Every command may be interrupted, and given again.
    """
    context.obj = load(os.environ)
