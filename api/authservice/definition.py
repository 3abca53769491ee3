"""The authorization service's own definition, OpenAPI 3.0, made from its table of operations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow import Schema

from api.authservice.schemas import Problem
from api.problems import MEDIA_TYPE

ABOUT = "Discovery and public keys of the service that signs the store's bearer tokens."


@dataclass(frozen=True)
class Operation:
    """One operation: its name in the specification, its path, what it answers with."""

    operation_id: str
    path: str
    summary: str
    answer: type[Schema] | None = None
    others: Mapping[int, str] = field(default_factory=dict)


def definition(base_url: str, operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document; the same operations make the same document."""
    spec = APISpec(
        title="Authorization service of the data store",
        version="1",
        openapi_version="3.0.3",
        info={"description": ABOUT},
        servers=[{"url": base_url.rstrip("/")}],
        plugins=[MarshmallowPlugin()],
    )
    for operation in operations:
        spec.path(path=operation.path, operations={"get": _described(operation)})
    document: dict[str, Any] = spec.to_dict()
    return document


def _described(operation: Operation) -> dict[str, Any]:
    schema = operation.answer or {"type": "object"}
    responses: dict[str, Any] = {
        "200": {"description": "OK", "content": {"application/json": {"schema": schema}}},
        "default": {"description": "Error", "content": {MEDIA_TYPE: {"schema": Problem}}},
    }
    for status, description in operation.others.items():
        content = {"application/json": {"schema": schema}}
        responses[str(status)] = {"description": description, "content": content}
    return {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "responses": responses,
    }
