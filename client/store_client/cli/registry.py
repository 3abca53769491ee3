"""The commands that are not operations of the API: where each is, found without importing it."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One built-in command; `target` is imported when it runs."""

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

_AT = "store_client.cli"

ENTRIES = (
    CommandEntry("upload", f"{_AT}.upload:upload", MOVING, "Upload a directory as a bundle."),
    CommandEntry("download", f"{_AT}.download:download", MOVING, "Download a bundle."),
    CommandEntry(
        "download-manifest",
        f"{_AT}.download:download_manifest",
        MOVING,
        "Download the files of a manifest.",
    ),
    CommandEntry(
        "download-collection",
        f"{_AT}.download:download_collection",
        MOVING,
        "Download all that a collection links to.",
    ),
    CommandEntry("select", f"{_AT}.areas:select", AREAS, "Set the current upload area."),
    CommandEntry("files", f"{_AT}.areas:files", AREAS, "Upload files to the selected area."),
    CommandEntry("list", f"{_AT}.areas:list_", AREAS, "List the files of the selected area."),
    CommandEntry("areas", f"{_AT}.areas:areas", AREAS, "List the areas that this client knows."),
    CommandEntry("forget", f"{_AT}.areas:forget", AREAS, "Forget an area; the store keeps it."),
    CommandEntry(
        "creds", f"{_AT}.areas:creds", AREAS, "Get credentials that are good in one area."
    ),
    CommandEntry("status", f"{_AT}.areas:status", AREAS, "Show the verification status of a file."),
    CommandEntry("report", f"{_AT}.areas:report", AREAS, "Write a report on the files of an area."),
    CommandEntry(
        "login", f"{_AT}.login:login", IDENTITY, "Log in to a store and keep the credentials."
    ),
    CommandEntry("logout", f"{_AT}.login:logout", IDENTITY, "Forget the credentials."),
    CommandEntry("whoami", f"{_AT}.login:whoami", IDENTITY, "Show the current user."),
    CommandEntry("profiles", f"{_AT}.login:profiles", IDENTITY, "List the profiles."),
    CommandEntry("doctor", f"{_AT}.doctor:doctor", CLIENT, "Check this client and its store."),
    CommandEntry("create-version", f"{_AT}.local:create_version", CLIENT, "Print a version: now."),
    CommandEntry(
        "clear-cache", f"{_AT}.local:clear_cache", CLIENT, "Clear cached API definitions."
    ),
    CommandEntry(
        "completion", f"{_AT}.local:completion", CLIENT, "Print the completion script of a shell."
    ),
)

COMMANDS: Mapping[str, str] = {entry.name: entry.target for entry in ENTRIES}
"""Name → "module:object", the object being made with frame.command."""


def load_command(name: str) -> click.Command | None:
    """Import the built-in command of that name; None if there is none."""
    target = COMMANDS.get(name)
    if target is None:
        return None
    module, _, attribute = target.partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command
