"""The small commands of the client itself: versions, its cache, completion in shells."""

import importlib
from typing import Any

import click
from click.shell_completion import get_completion_class

from store_client.cli import registry
from store_client.cli.frame import Here, command
from store_client.versions import create_version as version_of

INSTALLING = """\b
Completion works in new shells after:
  bash:  store completion bash >> ~/.bashrc
  zsh:   store completion zsh >> ~/.zshrc
  fish:  store completion fish > ~/.config/fish/completions/store.fish
Names and options come from the definition that was last fetched; completing never asks the store.
"""


@command(
    "create-version",
    help="Print the version of this moment, for whatever is written next.",
    section=registry.CLIENT,
)
def create_version(here: Here) -> None:
    """The version alone on its line, whatever the form: it is for `$(...)`."""
    version = version_of()
    if here.json and here.chosen:
        here.show({"version": version})
    else:
        click.echo(version)


@command(
    "clear-cache",
    help="Clear the API definitions that were fetched; the next command fetches anew.",
    section=registry.CLIENT,
)
def clear_cache(here: Here) -> None:
    """Of all stores."""
    cleared: Any = importlib.import_module("store_client.definition").clear(here.config)
    here.note(f"{cleared} cached definition(s) cleared.")


@command(
    "completion",
    help="Print what makes a shell complete commands and options.",
    epilog=INSTALLING,
    section=registry.CLIENT,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(here: Here, shell: str) -> None:
    """The script of click's completion; the store is not asked."""
    program = click.get_current_context().find_root().command
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(program, {}, "store", registry.COMPLETES).source())
