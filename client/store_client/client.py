"""A store as Python methods, one per operation, made from the definition that it serves."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from store_client.calling import Call, answered, call_of, items_of, pages_of
from store_client.configuration import Configuration, configuration
from store_client.definition import Definition, Operation, load
from store_client.definition.checking import near
from store_client.definition.keeping import known
from store_client.errors import Misused, Refused, StoreError
from store_client.login.tokens import tokens_of
from store_client.methods import Method
from store_client.transport.session import Session

NOT_ROUTED = frozenset({404, 405})
"""What a store answers to a route that it does not know any more."""


class Client:
    """One store, asked as one person; many threads share it.

    `Client("https://store.example").get_bundle(uuid=..., replica="aws")`
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        profile: str | None = None,
        token: str | None = None,
        config: Configuration | None = None,
        session: Session | None = None,
    ) -> None:
        self.config = config if config is not None else configuration(url, profile)
        self.session = (
            session
            if session is not None
            else Session(self.config.url, tokens=tokens_of(self.config, given=token))
        )
        if known(self.config):
            self.session.met(self.config.url)
        self._lock = threading.RLock()
        self._definition: Definition | None = None
        self._fresh = False
        self._began = time.time()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.config.url!r})"

    def __dir__(self) -> list[str]:
        known = self._definition.operations.values() if self._definition else ()
        return sorted({*super().__dir__(), *(one.method_name for one in known)})

    def __getattr__(self, name: str) -> Method:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return Method(self, self.operation(name))
        except Misused as error:
            raise AttributeError(str(error), name=name, obj=self) from error

    @property
    def definition(self) -> Definition:
        """What the store can be asked; loaded when it is wanted first."""
        with self._lock:
            if self._definition is None:
                self._definition = load(self.session, self.config)
            return self._definition

    @property
    def operations(self) -> Mapping[str, Operation]:
        """The store's operations by name."""
        return self.definition.operations

    def operation(self, name: str) -> Operation:
        """By its name, its name as a command, or in Python. Misused."""
        found = self.definition.find(name) or (self._refreshed() and self.definition.find(name))
        if found:
            return found
        raise Misused(
            f"the store has no operation {name!r}{near(name, self.definition.named)}",
            hint="`store --help` lists them",
        )

    def call(self, name: str, /, **arguments: Any) -> Any:
        """The answer to one request: its body, the headers of a HEAD, the place of a redirect.

        `headers` holds headers of the request, as `Prefer`. StoreError when it fails.
        """
        call = self._call(name, arguments)
        try:
            return answered(self.session, call)
        except Refused as error:
            again = error.status in NOT_ROUTED and self._refreshed() and self._call(name, arguments)
            if not again or again.operation == call.operation:
                raise
            return answered(self.session, again)

    def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]:
        """The bodies of all pages."""
        return (page for page, _ in pages_of(self.session, self._call(name, arguments)))

    def items(self, name: str, /, **arguments: Any) -> Iterator[Any]:
        """The items of all pages, one after another. Misused for what has no pages."""
        call = self._call(name, arguments)
        if not call.operation.paged:
            raise Misused(f"{name} has no pages", hint=f"use client.{call.operation.method_name}()")
        return (item for page in pages_of(self.session, call) for item in items_of(*page))

    def close(self) -> None:
        """End its connections."""
        self.session.close()

    def _call(self, name: str, arguments: Mapping[str, Any]) -> Call:
        """The request, checked; once more with the definition of now if that of then refuses."""
        try:
            return call_of(self.operation(name), arguments)
        except Misused:
            if not self._refreshed():
                raise
            return call_of(self.operation(name), arguments)

    def _refreshed(self) -> bool:
        """Whether there is a newer definition than the one that was gone by; asked for once."""
        with self._lock:
            before = self.definition
            if self._fresh or before.fetched >= self._began:
                return False
            self._fresh = True
            with contextlib.suppress(StoreError):
                self._definition = load(self.session, self.config, fresh=True)
            return self._definition != before
