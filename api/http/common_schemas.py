"""Schemas that many operations share, named so that generated clients have one type for each."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from api.http.examples import UUID, VERSION
from storage.model import REPLICAS

VERSION_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}\.[0-9]{6}Z$"
_REFERENCE = "#/components/schemas/"
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "Uuid": {"type": "string", "format": "uuid"},
    "Version": {"type": "string", "pattern": VERSION_PATTERN},
    "Replica": {"type": "string", "enum": list(REPLICAS)},
}
_ABOUT: Mapping[str, Mapping[str, Any]] = {
    "Uuid": {"description": "A UUID (RFC 4122), in lower case.", "example": UUID},
    "Version": {"description": "A time of creation in UTC.", "example": VERSION},
    "Replica": {"description": "One of the two copies of the store's content.", "example": "aws"},
}


def name_common_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Refer to the common schemas wherever nothing but an example would be lost."""
    for parameter in _parameters(document):
        example = parameter["schema"].get("example")
        parameter["schema"] = _refer(parameter["schema"])
        if "$ref" in parameter["schema"] and example is not None:
            parameter["example"] = example
    schemas = document["components"]["schemas"]
    for members in (schema.get("properties", {}) for schema in schemas.values()):
        for name, member in members.items():
            members[name] = _refer(member)
            if "items" in member:
                member["items"] = _refer(member["items"])
    text = orjson.dumps(document).decode()
    used = [name for name in _TYPES if f'"{_REFERENCE}{name}"' in text]
    schemas.update({name: {**_TYPES[name], **_ABOUT[name]} for name in used})
    return document


def _parameters(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        for operation in methods.values():
            yield from operation["parameters"]


def _refer(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in schema.items() if key != "example"}
    for name, common in _TYPES.items():
        if bare == common:
            return {"$ref": f"{_REFERENCE}{name}"}
    return schema
