"""The commands that are not operations of the API: where each is, found without importing it."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """One command as the list of all shows it; `target` is imported when it is run."""

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
    Entry("upload", f"{_AT}.uploading:upload", MOVING, "Bring a directory in as a bundle."),
    Entry("download", f"{_AT}.downloading:download", MOVING, "Bring a bundle here."),
    Entry(
        "download-manifest",
        f"{_AT}.downloading:download_manifest",
        MOVING,
        "Bring the files here that a manifest lists.",
    ),
    Entry(
        "download-collection",
        f"{_AT}.downloading:download_collection",
        MOVING,
        "Bring all that a collection links to here.",
    ),
    Entry("select", f"{_AT}.areas:select", AREAS, "Say which area is meant from now on."),
    Entry("files", f"{_AT}.area_files:files", AREAS, "Bring files into the selected area."),
    Entry("list", f"{_AT}.area_files:list_", AREAS, "List the files of the selected area."),
    Entry("areas", f"{_AT}.areas:areas", AREAS, "List the areas that this client knows."),
    Entry("forget", f"{_AT}.areas:forget", AREAS, "Forget an area; the store keeps it."),
    Entry("creds", f"{_AT}.areas:creds", AREAS, "Get credentials that are good in one area."),
    Entry("status", f"{_AT}.area_files:status", AREAS, "Tell how far the check of a file is."),
    Entry("report", f"{_AT}.area_files:report", AREAS, "Write what is known of an area to a file."),
    Entry("login", f"{_AT}.logins:login", IDENTITY, "Log in to a store and keep the credentials."),
    Entry("logout", f"{_AT}.logins:logout", IDENTITY, "Forget the credentials."),
    Entry("whoami", f"{_AT}.logins:whoami", IDENTITY, "Tell who the store takes you for."),
    Entry("profiles", f"{_AT}.logins:profiles", IDENTITY, "List the stores that have a name."),
    Entry("doctor", f"{_AT}.doctor:doctor", CLIENT, "Find out what is wrong here."),
    Entry("create-version", f"{_AT}.small:create_version", CLIENT, "Print a version: now."),
    Entry("clear-cache", f"{_AT}.small:clear_cache", CLIENT, "Clear cached API definitions."),
    Entry("completion", f"{_AT}.small:completion", CLIENT, "Print what completes in a shell."),
)

COMMANDS: Mapping[str, str] = {entry.name: entry.target for entry in ENTRIES}
"""Name → "module:object", the object being made with frame.command."""


def found(name: str) -> click.Command | None:
    """The command of that name, imported now; None when it is none of these."""
    target = COMMANDS.get(name)
    if target is None:
        return None
    module, _, attribute = target.partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command
