"""The commands of `python -m ops`; each is imported when it is called."""

import importlib
import os
from typing import Any

import click

from config import SettingsError, load_settings
from storage.errors import DomainError, explain_error

COMMANDS = {
    "run": "ops.supervisor:run",
    "migrate": "ops.maintenance:migrate",
    "partition": "ops.maintenance:partition",
    "prepare": "ops.maintenance:prepare",
    "token": "ops.accounts:token",
    "login-link": "ops.accounts:login_link",
    "rotate-key": "ops.accounts:rotate_key",
    "settings": "ops.settings_reference:settings_commands",
    "demo": "ops.demo:demo",
    "clients": "ops.accounts:clients",
    "status": "ops.status:status",
    "sweep": "ops.status:sweep",
    "dead": "ops.dead_jobs:dead_jobs",
    "read-only": "ops.maintenance:read_only",
    "secrets": "ops.secrets:secrets",
    "service-accounts": "ops.accounts:service_accounts",
    "purge": "ops.integrity:purge",
    "reconcile": "ops.recovery:reconcile",
    "verify": "ops.integrity:verify",
    "fixity-report": "ops.integrity:fixity_report",
    "rebuild": "ops.recovery:rebuild",
    "fingerprint": "ops.recovery:print_fingerprint",
    "backup": "ops.backups:backup",
    "restore": "ops.backups:restore",
    "quotas": "ops.quotas:quota_commands",
    "mirror": "ops.mirrors:mirror",
    "import": "ops.imports:import_bucket",
    "usage": "ops.quotas:print_usage",
    "users": "ops.accounts:users",
    "probe": "ops.probe:probe",
}
"""Where each command is; it is imported when it is called, so that the supervisor stays small."""
FORMER_NAMES = {"parked": "dead"}
"""Former names of commands, which work for one more release."""


class OperatorCommands(click.Group):
    """Commands that say in a sentence what they could not do: operators need no traceback of it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command by its name; None if there is none."""
        target = COMMANDS.get(FORMER_NAMES.get(cmd_name, cmd_name))
        if target is None:
            return None
        module, _, name = target.partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen one."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # The reader has enough (`… | head`): click ends silently.
        except (DomainError, SettingsError, OSError) as error:
            raise click.ClickException(explain_error(error)) from error


@click.group(
    cls=OperatorCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Operate a store. Settings come from STORE_* variables, and a file (STORE_SETTINGS_FILE).

    When something is wrong, `status` says what; docs/operations.md says what to do about it ("What
    can fail", "When something is lost"). Every command can be interrupted and repeated.
    """
    # `settings check` reports all problems, not the first.
    if context.invoked_subcommand != "settings":
        context.obj = load_settings(os.environ)


if __name__ == "__main__":
    cli(prog_name="python -m ops")
