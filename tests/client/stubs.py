"""Type stubs of the client's operations, written from the definitions by `make docs`."""

import json
import keyword
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.app import OPERATIONS
from api.authz.app import API_INFO
from api.authz.app import OPERATIONS as OF_AUTH
from api.http.openapi import build_definition
from store_client import definition
from store_client.definition.documents import CachedDefinition, CachedDocument
from store_client.definition.openapi import ApiOperation, OperationParameter

PATH = Path(definition.__file__).with_name("operations.pyi")
HEAD = '''"""The operations of a store as typed methods; written by `make docs`, never at run time.

Operations of a store that is newer than this file are found at run time, without types.
"""

# ruff: noqa: A002
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import (
    Any,
    BinaryIO,
    Concatenate,
    Generic,
    Literal,
    NotRequired,
    ParamSpec,
    TypedDict,
    TypeVar,
)
from uuid import UUID

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")
AnyUuid = str | UUID
Headers = Mapping[str, str] | None
Replica = Literal["aws", "gcp"]

class Answer(Generic[R, I]):
    """What an operation answers, and the items of its pages."""

class TypedMethod(Generic[P, R, I]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[I]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]: ...

class AsyncTypedMethod(Generic[P, R, I]):
    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[I]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]: ...

def _operation(
    method: Callable[Concatenate[Any, P], Answer[R, I]],
) -> TypedMethod[P, R, I]: ...
def _async_operation(
    method: Callable[Concatenate[Any, P], Answer[R, I]],
) -> AsyncTypedMethod[P, R, I]: ...

'''
SYNC_HEAD = "\nclass Operations:\n"
ASYNC_HEAD = "\nclass AsyncOperations:\n"
WIDTH = 100
TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "object": "Mapping[str, Any]",
}
REPLICA = 'Literal["aws", "gcp"]'
CONTENT = "bytes | Path | BinaryIO | Callable[[], Iterable[bytes]]"


def write() -> None:
    """Write the file."""
    PATH.write_text(written(), encoding="utf-8")


def written() -> str:
    """The stubs of all operations of a store and its authorization service."""
    store = build_definition(OPERATIONS, server="http://x/v1", openid_url="http://x")
    auth = build_definition(OF_AUTH, server="http://x", openid_url="http://x", info=API_INFO)
    documents = (CachedDocument("http://x/v1", store), CachedDocument("http://x", auth))
    found = CachedDefinition(*documents, fetched=0.0).parse().operations.values()
    shown = sorted(found, key=lambda one: one.method_name)
    answers = {"store": AnswerTypes(store, "http://x/v1"), "auth": AnswerTypes(auth, "http://x")}
    methods = "\n".join(method(one, answers[one.service].of_operation(one)) for one in shown)
    classes = answers["auth"].definitions() | answers["store"].definitions()
    named = "\n".join(classes[name] for name in sorted(classes))
    synchronous = HEAD + named + SYNC_HEAD + methods
    return synchronous + ASYNC_HEAD + methods.replace("@_operation", "@_async_operation")


def method(operation: ApiOperation, answer: str) -> str:
    """One operation; required parameters first, all by keyword."""
    ordered = sorted(operation.parameters, key=lambda one: not one.required)
    named = [parameter(one) for one in ordered if one.name.isidentifier()]
    taken = ["self", "*", *named, "headers: Headers = None"]
    about = operation.summary.replace("\\", "").rstrip(".")
    head = f"    def {operation.method_name}({', '.join(taken)}) -> {answer}:"
    if len(head) > WIDTH:
        # Several parameters on a line, each of them whole; ruff would give each its own.
        whole = " ".join(f"{one},".replace(" ", "\0") for one in taken)
        lines = textwrap.wrap(whole, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
        filled = textwrap.indent("\n".join(lines), " " * 8).replace("\0", " ")
        head = f"    def {operation.method_name}(\n{filled}\n    ) -> {answer}:"
    return f'    @_operation\n{head}\n        """{about}."""\n'


class AnswerTypes:
    """The types of the answers of one service, by its schemas."""

    def __init__(self, document: Mapping[str, Any], base: str) -> None:
        self._document, self._base = document, base
        self._schemas = document["components"]["schemas"]
        self._used: dict[str, str] = {}

    def of_operation(self, operation: ApiOperation) -> str:
        """The annotation of one operation: its answer, and its items."""
        schema = self._find_schema(operation)
        if schema is None:
            return "Answer[Any, Any]"
        item = self._find_item(schema, operation.paged) if operation.paged else None
        return f"Answer[{self._annotate(schema)}, {self._annotate(item) if item else 'Any'}]"

    def definitions(self) -> Mapping[str, str]:
        """The classes that annotations name."""
        return self._used

    def _find_schema(self, operation: ApiOperation) -> Mapping[str, Any] | None:
        """The one schema of all answers of success; None if there are several or none."""
        if operation.method == "HEAD":
            return None
        path = operation.url.removeprefix(self._base)
        responses = self._document["paths"][path][operation.method.lower()]["responses"]
        found = [
            answer.get("content", {}).get("application/json", {}).get("schema")
            for status, answer in responses.items()
            if status.startswith("2")
        ]
        return found[0] if found and all(one == found[0] for one in found) else None

    def _find_item(self, schema: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
        for name in key.split("."):
            schema = self._resolve(schema).get("properties", {}).get(name, {})
        items: Mapping[str, Any] | None = self._resolve(schema).get("items")
        return items

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        found: Mapping[str, Any] = self._schemas[name] if name else schema
        return found

    def _annotate(self, schema: Mapping[str, Any]) -> str:
        nullable = " | None" if schema.get("nullable") else ""
        if name := schema.get("$ref", "").rpartition("/")[2]:
            return self._define(name)
        for one in schema.get("allOf", ()):
            return f"{self._annotate(one)}{nullable}"
        kind = schema.get("type")
        if kind == "array":
            return f"list[{self._annotate(schema.get('items') or {})}]{nullable}"
        if kind == "object":
            more = schema.get("additionalProperties")
            value = self._annotate(more) if isinstance(more, dict) and more else "Any"
            return f"dict[str, {value}]{nullable}"
        found = TYPES.get(str(kind), "Any")
        return found if found == "Any" else f"{found}{nullable}"

    def _define(self, name: str) -> str:
        schema = self._schemas[name]
        if not schema.get("properties"):
            return self._annotate(schema)
        if name not in self._used:
            self._used[name] = ""  # it may hold others of its kind
            required = schema.get("required", ())
            members = {
                member: self._annotate(one)
                if member in required
                else f"NotRequired[{self._annotate(one)}]"
                for member, one in schema["properties"].items()
            }
            self._used[name] = _typed_dict(name, members)
        return f'"{name}"' if not self._used[name] else name


def _typed_dict(name: str, members: Mapping[str, str]) -> str:
    if all(one.isidentifier() and not keyword.iskeyword(one) for one in members):
        lines = "".join(f"    {one}: {kind}\n" for one, kind in members.items())
        return f"class {name}(TypedDict):\n{lines}"
    lines = "".join(f'        "{one}": {kind},\n' for one, kind in members.items())
    return f'{name} = TypedDict(\n    "{name}",\n    {{\n{lines}    }},\n)\n'


def parameter(one: OperationParameter) -> str:
    kind = annotation(one.schema)
    if one.required:
        return f"{one.name}: {kind}"
    return f"{one.name}: {kind.removesuffix(' | None')} | None = None"


def annotation(schema: Mapping[str, Any]) -> str:
    """The Python type of what a schema allows."""
    kind, allowed = schema.get("type"), schema.get("enum")
    if schema.get("format") == "binary":
        return CONTENT
    if allowed and all(isinstance(one, str) for one in allowed):
        found = f"Literal{json.dumps(allowed)}"
        return "Replica" if found == REPLICA else found
    if kind == "array":
        found = f"Iterable[{annotation(schema.get('items') or {})}]"
    elif schema.get("format") == "uuid":
        found = "AnyUuid"
    else:
        found = TYPES.get(str(kind), "Any")
    return f"{found} | None" if schema.get("nullable") and found != "Any" else found


if __name__ == "__main__":
    write()
