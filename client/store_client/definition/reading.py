"""An OpenAPI document, as operations. References are resolved; nothing is fetched here."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from store_client.definition.keywords import meaningful
from store_client.definition.operation import Operation, Parameter, Place, Service, TokenUse
from store_client.transport.origins import origin

VERBS = ("get", "head", "put", "post", "patch", "delete", "options")
DEEPEST = 24
LARGEST = 2_000
"""Schemas nested deeper, or of more parts, are taken as anything from there; recursive ones, too.
References to references multiply: a page of text could be more than there is memory."""
LARGEST_IN_ALL = 100_000
"""Parts and words of all schemas of a document: many operations may refer to one large schema."""
LONGEST_REFERENCE = 1_000
DISCOVERY = "/.well-known/openid-configuration"

Document = Mapping[str, Any]


@dataclass(slots=True)
class Source:
    """A document, and how much of its schemas may still be expanded."""

    document: Document
    left: int = LARGEST_IN_ALL

    def take(self, schema: Document) -> bool:
        """Whether there is room for a schema; without it there is none for any that follows."""
        if self.left > 0:
            self.left -= 1 + len(schema)
        if self.left > 0:
            self.left -= sum(len(one) for one in schema.values() if isinstance(one, list | dict))
        return self.left > 0


def operations(document: Document, base: str, service: Service) -> Iterator[Operation]:
    """All of a document; `base` is what paths are put behind."""
    source = Source(document)
    for path, item in document["paths"].items():
        for verb in VERBS:
            if isinstance(found := item.get(verb), dict) and found.get("operationId"):
                shared = item.get("parameters", [])
                described = {**found, "parameters": [*shared, *found.get("parameters", [])]}
                where = (verb.upper(), base + path, service)
                yield _operation(source, described, where)


def auth_url(document: Document) -> str | None:
    """The base URL of the authorization service."""
    schemes = document.get("components", {}).get("securitySchemes", {}).values()
    found = (one.get("openIdConnectUrl") for one in schemes if one.get("type") == "openIdConnect")
    url = next((str(one) for one in found if one), "")
    return url.removesuffix(DISCOVERY).rstrip("/") if _may_be_asked(url) else None


def _may_be_asked(url: str) -> bool:
    try:
        return bool(origin(url))
    except ValueError:
        return False


def _operation(
    source: Source, described: Mapping[str, Any], where: tuple[str, str, Service]
) -> Operation:
    method, url, service = where
    kinds = _resolved(source, described.get("requestBody", {})).get("content", {})
    about = str(described.get("description", ""))
    named = [_parameter(source, _resolved(source, one)) for one in described["parameters"]]
    known = {one.name for one in named}
    body = [one for one in _body(source, described) if one.name not in known]
    return Operation(
        name=_text(described["operationId"]),
        service=service,
        method=method,
        url=url,
        summary=str(described.get("summary", "")),
        about=about,
        parameters=(*(one for one in named if one.place in ("path", "query")), *body),
        paged=_paged(source, described),
        upload=_is_upload(kinds),
        form=FORM in kinds and JSON not in kinds,
        token=_token(described.get("security", source.document.get("security", []))),
        keyed=method == "PATCH" or "Idempotency-Key" in about,
    )


JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def _parameter(source: Source, found: Mapping[str, Any]) -> Parameter:
    return Parameter(
        name=_text(found["name"]),
        place=cast(Place, found["in"]),
        required=bool(found.get("required")),
        schema=_whole(source, found.get("schema", {})),
        about=str(found.get("description", "")),
    )


def _body(source: Source, described: Mapping[str, Any]) -> Iterator[Parameter]:
    """Members of an object are arguments of their own; anything else is one."""
    body = _resolved(source, described.get("requestBody", {}))
    kinds = body.get("content", {})
    if not kinds:
        return
    if _is_upload(kinds):
        yield Parameter("content", "body", False, {"type": "string", "format": "binary"}, "Bytes.")
        return
    kind = kinds.get(JSON) or kinds.get(FORM) or next(iter(kinds.values()))
    schema = _whole(source, kind.get("schema", {}))
    if not schema.get("properties"):
        yield Parameter("body", "body", bool(body.get("required")), schema)
        return
    for name, member in schema["properties"].items():
        wanted = name in schema.get("required", ())
        yield Parameter(name, "body", wanted, member, str(member.get("description", "")))


def _is_upload(kinds: Mapping[str, Any]) -> bool:
    return bool(kinds) and JSON not in kinds and FORM not in kinds


def _paged(source: Source, described: Mapping[str, Any]) -> str:
    """The one list in an answer, at its top or one object below."""
    answer = _resolved(source, described.get("responses", {}).get("206", {}))
    kinds = answer.get("content", {})
    if JSON not in kinds:
        return ""
    schema = _whole(source, kinds[JSON].get("schema", {}))
    return next(iter(_lists(schema)), "")


def _lists(schema: Mapping[str, Any]) -> list[str]:
    members = schema.get("properties", {})
    here = [name for name, one in members.items() if one.get("type") == "array"]
    return here or [
        f"{name}.{below}"
        for name, one in members.items()
        for below, inner in one.get("properties", {}).items()
        if inner.get("type") == "array"
    ]


def _token(security: list[Mapping[str, Any]]) -> TokenUse:
    if not security:
        return "no"
    return "may" if any(not one for one in security) else "must"


def _resolved(source: Source, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference into the document leads to; anything else as it is."""
    for _ in range(DEEPEST):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        found = _at(source, reference)
    return {}


def _at(source: Source, reference: str) -> Mapping[str, Any]:
    if len(reference) > LONGEST_REFERENCE:
        return {}
    where: Any = source.document
    for part in reference.removeprefix("#/").split("/"):
        name = re.sub("~1", "/", part).replace("~0", "~")
        where = where.get(name, {}) if isinstance(where, Mapping) else {}
    return where if isinstance(where, Mapping) else {}


def _whole(source: Source, schema: Any) -> dict[str, Any]:
    """A schema without references, and with nothing in it that has no meaning."""
    return _expanded(source, schema, iter(range(LARGEST)), ())


def _expanded(
    source: Source, schema: Any, room: Iterator[int], within: tuple[str, ...]
) -> dict[str, Any]:
    """The same; `within` holds what leads here, "" for a step without a reference."""
    if not isinstance(schema, Mapping) or len(within) > DEEPEST or next(room, None) is None:
        return {}
    if not source.take(schema):
        return {}
    if isinstance(reference := schema.get("$ref"), str):
        if reference in within:
            return {}
        return _expanded(source, _at(source, reference), room, (*within, reference))
    found, inside = meaningful(schema), (*within, "")
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), Mapping):
            found[name] = _expanded(source, found[name], room, inside)
    if "properties" in found:
        found["properties"] = {
            name: _expanded(source, member, room, inside)
            for name, member in found["properties"].items()
        }
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError(f"{found!r} is no name")
    return found
