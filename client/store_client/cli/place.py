"""Which store a command line is about, known before its command is: commands come from the store.

`Place` is the context's object. It makes the client when somebody asks for it, and closes it.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from store_client.configuration import Configuration, configuration

if TYPE_CHECKING:
    from store_client.client import Client

_EARLY = {"--url": "url", "--profile": "profile", "--env": "profile", "--log-level": "log_level"}
HELP = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class Early:
    """Options that matter before the command is known, wherever they stand."""

    url: str | None = None
    profile: str | None = None
    log_level: str | None = None
    help: bool = False
    """Only told about a command, it is taken from what is known."""


def early(arguments: Sequence[str]) -> Early:
    """Found by name alone; click checks them once it knows the command."""
    said: dict[str, str] = {}
    wants_help = False
    waiting = ""
    for argument in arguments:
        if argument == "--":
            break
        name, equals, value = argument.partition("=")
        wants_help = wants_help or argument in HELP
        if waiting:
            said[waiting] = argument
            waiting = ""
        elif name in _EARLY and equals:
            said[_EARLY[name]] = value
        else:
            waiting = _EARLY.get(argument, "")
    return Early(**said, help=wants_help)


def usual_client(config: Configuration) -> "Client":
    """A client of that store; what it needs is imported now, for not every command wants one."""
    made: Client = importlib.import_module("store_client.client").Client(config=config)
    return made


@dataclass(slots=True)
class Place:
    """Of one run of the program; `make` makes a client."""

    make: Callable[[Configuration], "Client"] = usual_client
    said: Early = Early()
    _clients: dict[Configuration, "Client"] = field(default_factory=dict)

    def config(self, url: str | None = None, profile: str | None = None) -> Configuration:
        """Of the options of a command, else of those that stand before it."""
        if url or profile:
            return configuration(url, profile)
        return configuration(self.said.url, self.said.profile)

    def client(self, config: Configuration) -> "Client":
        """The one client of that store in this run."""
        if config not in self._clients:
            self._clients[config] = self.make(config)
        return self._clients[config]

    def close(self) -> None:
        """Close the clients, if any were made."""
        while self._clients:
            self._clients.popitem()[1].close()


def place_of(context: click.Context) -> Place:
    """The run's place, made on first use."""
    root = context.find_root()
    if not isinstance(root.obj, Place):
        root.obj = Place()
    found: Place = root.obj
    if not root.meta.get(_CLOSES):
        root.meta[_CLOSES] = True
        root.call_on_close(found.close)
    return found


_CLOSES = f"{__name__}.closes"
