"""Commands that need no store: create-version, clear-cache and completion."""

import importlib
from typing import Any

import click
from click.shell_completion import get_completion_class

from store_client.cli import registry
from store_client.cli.context import CommandContext, command
from store_client.identifiers import create_version as version_of

INSTALLING = """\b
Completion works in new shells after:
  bash:  store completion bash >> ~/.bashrc
  zsh:   store completion zsh >> ~/.zshrc
  fish:  store completion fish > ~/.config/fish/completions/store.fish
Names and options come from the cached definition; completion never contacts the store.
"""


@command(
    "create-version",
    help="Print a version for the current time, for the next write.",
    example="VERSION=$(store create-version)",
)
def create_version(here: CommandContext) -> None:
    """Print a version alone on its line, for `$(...)`."""
    version = version_of()
    if here.json and here.format_chosen:
        here.show({"version": version})
    else:
        click.echo(version)


@command(
    "clear-cache",
    help="Clear the cached API definitions; the next command fetches them again.",
    example="store clear-cache",
)
def clear_cache(here: CommandContext) -> None:
    """Clear the definitions of all stores."""
    cleared: Any = importlib.import_module("store_client.definition").clear_cache(here.config)
    here.note(f"{cleared} cached definition(s) cleared.")


@command(
    "completion",
    help="Print the completion script of a shell.",
    epilog=INSTALLING,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(here: CommandContext, shell: str) -> None:
    """Print click's completion script; the store is not asked."""
    program = click.get_current_context().find_root().command
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(program, {}, "store", registry.COMPLETES).source())
