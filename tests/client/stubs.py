"""Type stubs of the client's operations, written from the definitions by `make docs`."""

import json
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
from typing import Any, BinaryIO, Concatenate, Generic, Literal, ParamSpec
from uuid import UUID

P = ParamSpec("P")
AnyUuid = str | UUID
Headers = Mapping[str, str] | None
Replica = Literal["aws", "gcp"]

class TypedMethod(Generic[P]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Any]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Any]: ...

class AsyncTypedMethod(Generic[P]):
    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]: ...

def _operation(method: Callable[Concatenate[Any, P], Any]) -> TypedMethod[P]: ...
def _async_operation(method: Callable[Concatenate[Any, P], Any]) -> AsyncTypedMethod[P]: ...

class Operations:
'''
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
    methods = "\n".join(map(method, shown))
    return HEAD + methods + ASYNC_HEAD + methods.replace("@_operation", "@_async_operation")


def method(operation: ApiOperation) -> str:
    """One operation; required parameters first, all by keyword."""
    ordered = sorted(operation.parameters, key=lambda one: not one.required)
    named = [parameter(one) for one in ordered if one.name.isidentifier()]
    taken = ["self", "*", *named, "headers: Headers = None"]
    about = operation.summary.replace("\\", "").rstrip(".")
    head = f"    def {operation.method_name}({', '.join(taken)}) -> Any:"
    if len(head) > WIDTH:
        # Several parameters on a line, each of them whole; ruff would give each its own.
        whole = " ".join(f"{one},".replace(" ", "\0") for one in taken)
        lines = textwrap.wrap(whole, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
        filled = textwrap.indent("\n".join(lines), " " * 8).replace("\0", " ")
        head = f"    def {operation.method_name}(\n{filled}\n    ) -> Any:"
    return f'    @_operation\n{head}\n        """{about}."""\n'


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
