"""The commands that are not operations of the API: where each is, found without importing it."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A built-in command; `target`, as "module:object" of this package, is imported to run it."""

    name: str
    """As it is typed: `upload`, or with its noun `bundle show`."""
    target: str
    about: str
    section: str = ""
    """Its heading in the list of commands; without one it is not listed."""


EVERYDAY, THINGS, IDENTITY, CLIENT = (
    "Everyday",
    "Things in the store",
    "Who you are",
    "This client",
)
"""Headings of the list of commands, in its order."""

COMPLETES = "_STORE_COMPLETE"
"""The variable by which a shell asks this program to complete a line."""

NOUNS: Mapping[str, str] = {
    "bundle": "List, show, compare, download, upload and delete bundles.",
    "file": "Show, print and copy single files.",
    "collection": "List, show, create, download and delete collections.",
    "subscription": "Manage your webhooks, and see their deliveries.",
    "area": "Fill upload areas, from which the store takes files.",
}
"""Groups of commands, in the order of the list."""
API = "api"
ABOUT_API = "All operations of the store's API, one command each."

ENTRIES = (
    CommandEntry("search", "search:search", "Find bundles by words, fields or a query.", EVERYDAY),
    CommandEntry("search fields", "search:fields", "List the fields that bundles have."),
    CommandEntry("download", "download:download", "Download bundles.", EVERYDAY),
    CommandEntry("upload", "upload:upload", "Upload a directory as a bundle.", EVERYDAY),
    CommandEntry("validate", "validate:validate", "Validate a folder or a table.", EVERYDAY),
    CommandEntry(
        "listen",
        "listen:listen",
        "Follow bundles as they appear, and forward test webhooks.",
        EVERYDAY,
    ),
    CommandEntry("bundle list", "bundles:list_", "List bundles."),
    CommandEntry("bundle show", "bundles:show", "Show a bundle."),
    CommandEntry("bundle files", "bundles:files", "List the files of a bundle."),
    CommandEntry("bundle versions", "bundles:versions", "List the versions of a bundle."),
    CommandEntry("bundle diff", "bundles:diff", "Compare two versions or two bundles."),
    CommandEntry("bundle download", "download:download", "Download bundles."),
    CommandEntry("bundle upload", "upload:upload", "Upload a directory as a bundle."),
    CommandEntry("bundle delete", "bundles:delete", "Delete a bundle, or one version of it."),
    CommandEntry("file show", "files:show", "Show size, type and checksums of a file."),
    CommandEntry("file cat", "files:cat", "Print files to standard output."),
    CommandEntry("file cp", "files:cp", "Copy a file to this machine."),
    CommandEntry("collection list", "collections:list_", "List your collections."),
    CommandEntry("collection show", "collections:show", "Show a collection."),
    CommandEntry("collection create", "collections:create", "Create a collection of bundles."),
    CommandEntry(
        "collection download", "download:download_collection", "Download all that it links to."
    ),
    CommandEntry("collection delete", "collections:delete", "Delete one of your collections."),
    CommandEntry("subscription list", "subscriptions:list_", "List your subscriptions."),
    CommandEntry("subscription show", "subscriptions:show", "Show a subscription."),
    CommandEntry("subscription create", "subscriptions:create", "Subscribe a webhook."),
    CommandEntry("subscription deliveries", "subscriptions:deliveries", "List its deliveries."),
    CommandEntry("subscription test", "subscriptions:send_test", "Send a test delivery."),
    CommandEntry("subscription pause", "subscriptions:pause", "Stop its deliveries for now."),
    CommandEntry("subscription resume", "subscriptions:resume", "Send its deliveries again."),
    CommandEntry("subscription delete", "subscriptions:delete", "Delete a subscription."),
    CommandEntry("area list", "areas:areas", "List the areas that this client knows."),
    CommandEntry("area select", "areas:select", "Select an area, or open a new one (--new)."),
    CommandEntry("area upload", "areas:files", "Upload files to the selected area."),
    CommandEntry("area files", "areas:list_", "List the files of the selected area."),
    CommandEntry("area status", "areas:status", "Show the verification status of a file."),
    CommandEntry("area report", "areas:report", "Write a report on the files of an area."),
    CommandEntry("area creds", "areas:creds", "Get temporary credentials for one area."),
    CommandEntry("area forget", "areas:forget", "Forget an area; the store keeps it."),
    CommandEntry("area delete", "areas:delete", "Delete an area and its files."),
    CommandEntry("login", "login:login", "Log in to a store and save the credentials.", IDENTITY),
    CommandEntry("logout", "login:logout", "Log out and delete the credentials.", IDENTITY),
    CommandEntry("whoami", "login:whoami", "Show who you are and what you may do.", IDENTITY),
    CommandEntry("profiles", "login:profiles", "List the stores that you have named.", IDENTITY),
    CommandEntry("doctor", "doctor:doctor", "Check this client and its store.", CLIENT),
    CommandEntry(
        "completion", "local:completion", "Print the completion script of a shell.", CLIENT
    ),
    CommandEntry("clear-cache", "local:clear_cache", "Clear cached API definitions."),
    CommandEntry("create-version", "local:create_version", "Print a version: now."),
    CommandEntry(
        "download-manifest", "download:download_manifest", "Download the files of a manifest."
    ),
)

FORMER_NAMES: Mapping[str, str] = {
    "download-collection": "collection download",
    "select": "area select",
    "files": "area upload",
    "list": "area files",
    "areas": "area list",
    "forget": "area forget",
    "creds": "area creds",
    "status": "area status",
    "report": "area report",
}
"""Names that scripts used before commands were grouped by noun; they are not listed."""
TARGETS: Mapping[str, str] = {entry.name: entry.target for entry in ENTRIES}
COMMANDS = {**TARGETS, **{former: TARGETS[name] for former, name in FORMER_NAMES.items()}}


def list_verbs(noun: str) -> list[CommandEntry]:
    return [entry for entry in ENTRIES if entry.name.startswith(f"{noun} ")]


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
