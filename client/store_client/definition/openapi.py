"""Parse an OpenAPI document into operations with parameters; nothing is fetched here.

Schema keywords of the wrong type are ignored: the server alone validates those arguments.
"""

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from store_client.http.urls import parse_origin

ParameterPlace = Literal["path", "query", "body"]
ServiceName = Literal["store", "auth"]
TokenUse = Literal["no", "may", "must"]


@dataclass(frozen=True, slots=True)
class OperationParameter:
    """A parameter; `schema` has no references."""

    name: str
    place: ParameterPlace
    required: bool
    schema: Mapping[str, Any]
    about: str = ""


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """An operation; `url` is absolute, with path parameters in braces."""

    name: str
    service: ServiceName
    method: str
    url: str
    summary: str = ""
    about: str = ""
    parameters: tuple[OperationParameter, ...] = ()
    paged: str = ""
    """Where in a page its items are: `bundle.files`; "" when there is only one page."""
    upload: bool = False
    """The body is bytes, and is called `content`."""
    download: bool = False
    """The answer is bytes of any size."""
    form: bool = False
    token: TokenUse = "no"
    fields: tuple[str, ...] = ()
    """Members of the answer, or of each item of its pages; () if the document leaves them open."""
    keyed: bool = False
    """An `Idempotency-Key` makes it one that may be sent twice."""

    @property
    def command(self) -> str:
        """The name as a command."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")

    @property
    def method_name(self) -> str:
        """The name in Python."""
        name = re.sub(r"\W", "_", self.name)
        return f"{name}_" if keyword.iskeyword(name) or name[:1].isdigit() else name


@dataclass(frozen=True, slots=True)
class ApiDefinition:
    """All operations of one store and its authorization service."""

    operations: Mapping[str, ApiOperation]
    title: str = ""
    about: str = ""
    auth_url: str | None = None
    fetched: float = field(default=0.0, compare=False)
    """Seconds since 1970, when it was last known to be the served one."""
    by_name: Mapping[str, ApiOperation] = field(default_factory=dict, repr=False, compare=False)
    """By names, command names and Python names."""


NUMBER = (int, float)
KEYWORD_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "type": str,
    "nullable": bool,
    "enum": list,
    "format": str,
    "pattern": str,
    "minimum": NUMBER,
    "maximum": NUMBER,
    "minLength": int,
    "maxLength": int,
    "minItems": int,
    "maxItems": int,
    "required": list,
    "items": Mapping,
    "properties": Mapping,
    "additionalProperties": (bool, Mapping),
    "description": str,
}


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Remove invalid keywords; a list of one type and null becomes nullable."""
    found = dict(schema)
    if isinstance(kinds := schema.get("type"), list):
        known = [one for one in kinds if one != "null"]
        # Several types are not checked.
        found["type"] = known[0] if len(known) == 1 else None
        found |= {"nullable": True} if len(known) < len(kinds) else {}
    for name, kind in KEYWORD_TYPES.items():
        if name in found and not isinstance(found[name], kind):
            del found[name]
    if "required" in found:
        found["required"] = [name for name in found["required"] if isinstance(name, str)]
    return found


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
class SchemaBudget:
    """A document, and how much of its schemas may still be expanded."""

    document: Document
    left: int = LARGEST_IN_ALL

    def spend(self, schema: Document) -> bool:
        """Spend the budget for a schema; whether there was enough."""
        if self.left > 0:
            self.left -= 1 + len(schema)
        if self.left > 0:
            self.left -= sum(len(one) for one in schema.values() if isinstance(one, list | dict))
        return self.left > 0


def parse_operations(document: Document, base: str, service: ServiceName) -> Iterator[ApiOperation]:
    """Parse all operations; `base` is prepended to their paths."""
    source = SchemaBudget(document)
    for path, item in document["paths"].items():
        for verb in VERBS:
            if isinstance(found := item.get(verb), dict) and found.get("operationId"):
                shared = item.get("parameters", [])
                described = {**found, "parameters": [*shared, *found.get("parameters", [])]}
                where = (verb.upper(), base + path, service)
                yield _parse_operation(source, described, where)


def find_auth_url(document: Document) -> str | None:
    """The base URL of the authorization service."""
    schemes = document.get("components", {}).get("securitySchemes", {}).values()
    found = (one.get("openIdConnectUrl") for one in schemes if one.get("type") == "openIdConnect")
    url = next((str(one) for one in found if one), "")
    try:
        parse_origin(url)
    except ValueError:
        return None
    return url.removesuffix(DISCOVERY).rstrip("/")


def _parse_operation(
    source: SchemaBudget, described: Mapping[str, Any], where: tuple[str, str, ServiceName]
) -> ApiOperation:
    method, url, service = where
    body = _resolve(source, described.get("requestBody", {}))
    kinds = body.get("content", {})
    about = str(described.get("description", ""))
    named = [_parse_parameter(source, _resolve(source, one)) for one in described["parameters"]]
    known = {one.name for one in named}
    members = [one for one in _parse_body(source, body) if one.name not in known]
    security = described.get("security", source.document.get("security", []))
    paged = _find_page_items(source, described)
    optional = "may" if any(not one for one in security) else "must"
    return ApiOperation(
        name=_require_text(described["operationId"]),
        service=service,
        method=method,
        url=url,
        summary=str(described.get("summary", "")),
        about=about,
        parameters=(*(one for one in named if one.place in ("path", "query")), *members),
        paged=paged,
        upload=_is_upload(kinds),
        download=_is_download(source, described),
        fields=_list_fields(source, described, paged),
        form=FORM in kinds and JSON not in kinds,
        token=cast(TokenUse, optional if security else "no"),
        keyed=method == "PATCH" or "Idempotency-Key" in about,
    )


JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def _parse_parameter(source: SchemaBudget, found: Mapping[str, Any]) -> OperationParameter:
    return OperationParameter(
        name=_require_text(found["name"]),
        place=cast(ParameterPlace, found["in"]),
        required=bool(found.get("required")),
        schema=_expand_schema(source, found.get("schema", {})),
        about=str(found.get("description", "")),
    )


def _parse_body(source: SchemaBudget, body: Mapping[str, Any]) -> Iterator[OperationParameter]:
    """The members of a body object as parameters; any other body is one parameter."""
    kinds = body.get("content", {})
    if not kinds:
        return
    if _is_upload(kinds):
        yield OperationParameter(
            "content", "body", False, {"type": "string", "format": "binary"}, "Bytes."
        )
        return
    kind = kinds.get(JSON) or kinds.get(FORM) or next(iter(kinds.values()))
    schema = _expand_schema(source, kind.get("schema", {}))
    if not schema.get("properties"):
        yield OperationParameter("body", "body", bool(body.get("required")), schema)
        return
    for name, member in schema["properties"].items():
        wanted = name in schema.get("required", ())
        yield OperationParameter(name, "body", wanted, member, str(member.get("description", "")))


def _is_upload(kinds: Mapping[str, Any]) -> bool:
    return bool(kinds) and JSON not in kinds and FORM not in kinds


def _is_download(source: SchemaBudget, described: Mapping[str, Any]) -> bool:
    answer = _resolve(source, described.get("responses", {}).get("200", {}))
    schemas = [
        _resolve(source, one.get("schema", {})) for one in answer.get("content", {}).values()
    ]
    return any(one.get("format") == "binary" for one in schemas)


def _find_page_items(source: SchemaBudget, described: Mapping[str, Any]) -> str:
    """The key of the only list in a page, at its top or one level below."""
    answer = _resolve(source, described.get("responses", {}).get("206", {}))
    kinds = answer.get("content", {})
    if JSON not in kinds:
        return ""
    schema = _expand_schema(source, kinds[JSON].get("schema", {}))
    members = schema.get("properties", {})
    here = [name for name, one in members.items() if one.get("type") == "array"]
    below = [
        f"{name}.{inner}"
        for name, one in members.items()
        for inner, found in one.get("properties", {}).items()
        if found.get("type") == "array"
    ]
    return next(iter([*here, *below]), "")


def _list_fields(source: SchemaBudget, described: Mapping[str, Any], paged: str) -> tuple[str, ...]:
    """The members of an answer, or of the items of its pages."""
    responses = described.get("responses", {})
    done = next((code for code in ("206", "200", "201", "202") if code in responses), "")
    schema: Any = _resolve(source, responses.get(done, {}))
    way = [name for part in paged.split(".") if part for name in ("properties", part)]
    for name in ("content", JSON, "schema", *way, *(["items"] if paged else [])):
        found = schema.get(name)
        schema = _resolve(source, found) if isinstance(found, Mapping) else {}
    members = schema.get("properties")
    closed = isinstance(members, Mapping) and not schema.get("additionalProperties")
    return tuple(members) if closed else ()


def _resolve(source: SchemaBudget, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference within the document."""
    for _ in range(DEEPEST):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        found = _lookup_reference(source, reference)
    return {}


def _lookup_reference(source: SchemaBudget, reference: str) -> Mapping[str, Any]:
    if len(reference) > LONGEST_REFERENCE:
        return {}
    where: Any = source.document
    for part in reference.removeprefix("#/").split("/"):
        name = re.sub("~1", "/", part).replace("~0", "~")
        where = where.get(name, {}) if isinstance(where, Mapping) else {}
    return where if isinstance(where, Mapping) else {}


def _expand_schema(source: SchemaBudget, schema: Any) -> dict[str, Any]:
    """A schema without references and invalid keywords."""
    return _expand(source, schema, iter(range(LARGEST)), ())


def _expand(
    source: SchemaBudget, schema: Any, room: Iterator[int], within: tuple[str, ...]
) -> dict[str, Any]:
    """Expand a schema; `within` lists the references that lead here."""
    if not isinstance(schema, Mapping) or len(within) > DEEPEST or next(room, None) is None:
        return {}
    if not source.spend(schema):
        return {}
    if isinstance(reference := schema.get("$ref"), str):
        if reference in within:
            return {}
        return _expand(source, _lookup_reference(source, reference), room, (*within, reference))
    found, inside = clean_schema(schema), (*within, "")
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), Mapping):
            found[name] = _expand(source, found[name], room, inside)
    if "properties" in found:
        found["properties"] = {
            name: _expand(source, member, room, inside)
            for name, member in found["properties"].items()
        }
    return found


def _require_text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError(f"{found!r} is not a name")
    return found
