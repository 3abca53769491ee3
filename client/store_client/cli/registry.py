"""The commands that are not operations of the API: where each is, found without importing it."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A built-in command; `target`, as "module:object" of this package, is imported to run it."""

    name: str
    target: str
    section: str
    about: str


MOVING, AREAS, IDENTITY, CLIENT = (
    "Up and down",
    "Upload areas",
    "Who you are",
    "This client",
)
"""Headings of the list of commands, in its order; those of operations follow."""

COMPLETES = "_STORE_COMPLETE"
"""The variable by which a shell asks this program to complete a line."""

ENTRIES = (
    CommandEntry("upload", "upload:upload", MOVING, "Upload a directory as a bundle."),
    CommandEntry("download", "download:download", MOVING, "Download a bundle."),
    CommandEntry(
        "download-manifest",
        "download:download_manifest",
        MOVING,
        "Download the files of a manifest.",
    ),
    CommandEntry(
        "download-collection",
        "download:download_collection",
        MOVING,
        "Download all that a collection links to.",
    ),
    CommandEntry("select", "areas:select", AREAS, "Set the current upload area."),
    CommandEntry("files", "areas:files", AREAS, "Upload files to the selected area."),
    CommandEntry("list", "areas:list_", AREAS, "List the files of the selected area."),
    CommandEntry("areas", "areas:areas", AREAS, "List the areas that this client knows."),
    CommandEntry("forget", "areas:forget", AREAS, "Forget an area; the store keeps it."),
    CommandEntry("creds", "areas:creds", AREAS, "Get temporary credentials for one area."),
    CommandEntry("status", "areas:status", AREAS, "Show the verification status of a file."),
    CommandEntry("report", "areas:report", AREAS, "Write a report on the files of an area."),
    CommandEntry("login", "login:login", IDENTITY, "Log in to a store and save the credentials."),
    CommandEntry("logout", "login:logout", IDENTITY, "Log out and delete the credentials."),
    CommandEntry("whoami", "login:whoami", IDENTITY, "Show the current user."),
    CommandEntry("profiles", "login:profiles", IDENTITY, "List the profiles."),
    CommandEntry("doctor", "doctor:doctor", CLIENT, "Check this client and its store."),
    CommandEntry("create-version", "local:create_version", CLIENT, "Print a version: now."),
    CommandEntry("clear-cache", "local:clear_cache", CLIENT, "Clear cached API definitions."),
    CommandEntry(
        "completion", "local:completion", CLIENT, "Print the completion script of a shell."
    ),
)

COMMANDS: Mapping[str, str] = {entry.name: entry.target for entry in ENTRIES}


def load_command(name: str) -> click.Command | None:
    """Import the built-in command of that name; None if there is none."""
    target = COMMANDS.get(name)
    if target is None:
        return None
    module, _, attribute = target.partition(":")
    command: click.Command = getattr(
        importlib.import_module(f"store_client.cli.{module}"), attribute
    )
    return command
