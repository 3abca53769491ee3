"""An operation as a Python method: with a signature, a description, and iterators of its pages."""

import inspect
from collections.abc import Iterator
from typing import Any, Protocol

from store_client.definition.operation import Operation, Parameter

TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class Calls(Protocol):
    """What a method is of."""

    def call(self, name: str, /, **arguments: Any) -> Any: ...

    def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]: ...

    def items(self, name: str, /, **arguments: Any) -> Iterator[Any]: ...


class Method:
    """One operation of one client."""

    def __init__(self, client: Calls, operation: Operation) -> None:
        self._client = client
        self.operation = operation
        self.__name__ = self.__qualname__ = operation.method_name
        self.__doc__ = _described(operation)
        self.__signature__ = _signature(operation)

    def __call__(self, **arguments: Any) -> Any:
        """The answer to one request."""
        return self._client.call(self.operation.name, **arguments)

    def __repr__(self) -> str:
        return f"<{self.__name__}{self.__signature__}>"

    def iterate(self, **arguments: Any) -> Iterator[Any]:
        """The items of all pages, one after another."""
        return self._client.items(self.operation.name, **arguments)

    def pages(self, **arguments: Any) -> Iterator[Any]:
        """The bodies of all pages."""
        return self._client.pages(self.operation.name, **arguments)


def _signature(operation: Operation) -> inspect.Signature:
    ordered = sorted(operation.parameters, key=lambda one: not one.required)
    taken = [_taken(one) for one in ordered if one.name.isidentifier()]
    return inspect.Signature(taken, return_annotation=Any)


def _taken(parameter: Parameter) -> inspect.Parameter:
    kind = TYPES.get(str(parameter.schema.get("type")), Any)
    if parameter.schema.get("format") == "binary":
        kind = bytes
    default = inspect.Parameter.empty if parameter.required else None
    annotation = kind if parameter.required or kind is Any else kind | None
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _described(operation: Operation) -> str:
    head = "\n\n".join(filter(None, (operation.summary, operation.about)))
    taken = "\n".join(_line(one) for one in operation.parameters)
    pages = "\n\n`.iterate(...)` gives the items of all pages." if operation.paged else ""
    return f"{head}{pages}" + (f"\n\n{taken}" if taken else "")


def _line(parameter: Parameter) -> str:
    allowed = parameter.schema.get("enum")
    kind = " | ".join(map(str, allowed)) if allowed else str(parameter.schema.get("type", "any"))
    wanted = "" if parameter.required else ", optional"
    return f"{parameter.name} ({kind}{wanted}): {parameter.about}".rstrip(": ")
