"""A store as a Python object: one method per API operation, built from the served definition."""

import contextlib
import inspect
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from store_client.auth.tokens import open_tokens
from store_client.calls import OperationCall, build_call, execute_call, iterate_pages, page_items
from store_client.configuration import Configuration, load_configuration
from store_client.definition import ApiDefinition, load_definition
from store_client.definition.arguments import suggest_names
from store_client.definition.documents import is_cached
from store_client.definition.openapi import ApiOperation, OperationParameter
from store_client.errors import Misused, Refused, StoreError
from store_client.http.retries import RetryPolicy
from store_client.http.session import HttpSession

if TYPE_CHECKING:
    import httpx

    from store_client.definition.operations import Operations
else:
    Operations = object

PYTHON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class OperationMethod:
    """An operation as a method of one client."""

    def __init__(self, client: "Client", operation: ApiOperation) -> None:
        self._client = client
        self.operation = operation
        self.__name__ = self.__qualname__ = operation.method_name
        self.__doc__ = _build_docstring(operation)
        ordered = sorted(operation.parameters, key=lambda one: not one.required)
        named = [_build_parameter(one) for one in ordered if one.name.isidentifier()]
        self.__signature__ = inspect.Signature(named, return_annotation=Any)

    def __call__(self, **arguments: Any) -> Any:
        return self._client.call(self.operation.name, **arguments)

    def __repr__(self) -> str:
        return f"<{self.__name__}{self.__signature__}>"

    def iterate(self, **arguments: Any) -> Iterator[Any]:
        """Iterate over the items of all pages."""
        return self._client.items(self.operation.name, **arguments)

    def pages(self, **arguments: Any) -> Iterator[Any]:
        """Iterate over the bodies of all pages."""
        return self._client.pages(self.operation.name, **arguments)


def _build_parameter(parameter: OperationParameter) -> inspect.Parameter:
    kind = PYTHON_TYPES.get(str(parameter.schema.get("type")), Any)
    if parameter.schema.get("format") == "binary":
        kind = bytes
    default = inspect.Parameter.empty if parameter.required else None
    annotation = kind if parameter.required or kind is Any else kind | None
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _build_docstring(operation: ApiOperation) -> str:
    head = "\n\n".join(filter(None, (operation.summary, operation.about)))
    taken = "\n".join(_describe_parameter(one) for one in operation.parameters)
    pages = "\n\n`.iterate(...)` gives the items of all pages." if operation.paged else ""
    return f"{head}{pages}" + (f"\n\n{taken}" if taken else "")


def _describe_parameter(parameter: OperationParameter) -> str:
    allowed = parameter.schema.get("enum")
    kind = " | ".join(map(str, allowed)) if allowed else str(parameter.schema.get("type", "any"))
    wanted = "" if parameter.required else ", optional"
    return f"{parameter.name} ({kind}{wanted}): {parameter.about}".rstrip(": ")


NOT_ROUTED = frozenset({404, 405})
"""What a store answers to a route that it does not know any more."""


class Client(Operations):
    """A client of one store, for one user; threads share it.

    `Client("https://store.example").get_bundle(uuid=..., replica="aws")`
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        profile: str | None = None,
        token: str | None = None,
        config: Configuration | None = None,
        session: HttpSession | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.config = config if config is not None else load_configuration(url, profile)
        self.session = (
            session
            if session is not None
            else HttpSession(
                self.config.url,
                tokens=open_tokens(self.config, given=token),
                policy=policy or RetryPolicy(),
            )
        )
        if is_cached(self.config):
            self.session.mark_reachable(self.config.url)
        self._lock = threading.RLock()
        self._definition: ApiDefinition | None = None
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

    def __getattr__(self, name: str) -> OperationMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return OperationMethod(self, self.operation(name))
        except Misused as error:
            raise AttributeError(str(error), name=name, obj=self) from error

    @property
    def definition(self) -> ApiDefinition:
        """The API definition of the store, loaded on first use."""
        with self._lock:
            if self._definition is None:
                self._definition = load_definition(self.session, self.config)
            return self._definition

    @property
    def operations(self) -> Mapping[str, ApiOperation]:
        """The store's operations by name."""
        return self.definition.operations

    def operation(self, name: str) -> ApiOperation:
        """Find an operation by its name, command name or Python name; Misused."""
        found = self.definition.by_name.get(name) or (
            self._refresh_definition() and self.definition.by_name.get(name)
        )
        if found:
            return found
        raise Misused(
            f"the store has no operation {name!r}{suggest_names(name, self.definition.by_name)}",
            hint="`store --help` lists them",
        )

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Call an operation: its body, the headers of a HEAD, the location of a redirect.

        `headers` holds request headers, as `Prefer`. StoreError if it fails.
        """
        call = self._build_call(name, arguments)
        try:
            return execute_call(self.session, call)
        except Refused as error:
            again = (
                error.status in NOT_ROUTED
                and self._refresh_definition()
                and self._build_call(name, arguments)
            )
            if not again or again.operation == call.operation:
                raise
            return execute_call(self.session, again)

    def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]:
        """Iterate over the bodies of all pages."""
        return (page for page, _ in iterate_pages(self.session, self._build_call(name, arguments)))

    def items(self, name: str, /, **arguments: Any) -> Iterator[Any]:
        """Iterate over the items of all pages; Misused for an operation without pages."""
        return chain.from_iterable(self.item_pages(name, **arguments))

    def item_pages(self, name: str, /, **arguments: Any) -> Iterator[list[Any]]:
        """Iterate over the lists of items of all pages; as `items`."""
        call = self._build_call(name, arguments)
        if not call.operation.paged:
            raise Misused(f"{name} has no pages", hint=f"use client.{call.operation.method_name}()")
        return (page_items(*page) for page in iterate_pages(self.session, call))

    def stream(
        self, name: str, /, **arguments: Any
    ) -> "contextlib.AbstractContextManager[httpx.Response]":
        """Call an operation without retries, and read the body as it comes. StoreError."""
        call = self._build_call(name, arguments)
        return self.session.stream(
            call.operation.method,
            call.url,
            params=call.params,
            headers={"Accept-Encoding": "identity", **call.headers},
            limit=None,
            retry=False,
        )

    def sends(self, url: str) -> bool:
        """Whether the store itself answers a URL, and not its object storage."""
        return self.session.is_own(url)

    def close(self) -> None:
        """Close all connections."""
        self.session.close()

    def _build_call(self, name: str, arguments: Mapping[str, Any]) -> OperationCall:
        """Build the request; if the definition rejects it, once more with a fresh one."""
        try:
            return build_call(self.operation(name), arguments)
        except Misused:
            if not self._refresh_definition():
                raise
            return build_call(self.operation(name), arguments)

    def _refresh_definition(self) -> bool:
        """Fetch the definition again, once; whether it changed."""
        with self._lock:
            before = self.definition
            if self._fresh or before.fetched >= self._began:
                return False
            self._fresh = True
            with contextlib.suppress(StoreError):
                self._definition = load_definition(self.session, self.config, fresh=True)
            return self._definition != before
