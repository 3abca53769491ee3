"""OpenAPI definition, generated from the operations.

Client generators fail on parameter names that are Python keywords or no identifiers, on anything
but methods under a path item, on siblings of `$ref`, on `anyOf` properties and on recursive bodies.
A test verifies that the definition has none of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import orjson
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from flask import Flask, Response, g, request

from api.http.errors import DRS_PATHS, PROBLEM_MEDIA_TYPE
from api.http.examples import (
    OBJECT_ID,
    STORE_EXAMPLES,
    UUID,
    VERSION,
    Examples,
    add_examples,
)
from api.http.links import STORE_CALLBACKS, STORE_LINKS, Callback, Link, add_links
from api.http.operation import Operation, ResponseDoc, Services
from api.http.responses import apply_etag
from api.schemas.fields import (
    REPLICA_DESCRIPTION,
    VERSION_DESCRIPTION,
    DrsError,
    IntegerField,
    Problem,
    UuidField,
    VersionField,
)
from auth import authorization
from storage.model import REPLICAS

API_TITLE = "Data store"
API_DESCRIPTION = """\
A data store for a research consortium: versioned, immutable files and bundles in two replicas.

Errors are `application/problem+json` (RFC 9457) with a `code` and the `request_id` that every
response has as `X-Request-Id`. Lists are paged: while more items follow, the status is 206 and a
`Link` header with `rel="next"` holds the URL of the next page.

These headers are supported, but not listed as parameters:

- `Prefer: wait=<seconds>`, or `Prefer: respond-async` for no waiting, on operations that wait for
  work.
- `If-None-Match` with the `ETag` of an earlier response, on every read: 304 without a body if it
  has not changed.
- `Idempotency-Key`, 1 to 255 printable characters of the client's choice, on patches and replays: a
  repeated request gets the first response again; another request with that key is 409
  `already_exists`.
- `Last-Event-ID` on the live feed as a stream.
- `X-Request-Id` with the client's own id.
- `Accept-Encoding: gzip`, and `Range` on content.

Requests above the rate limit get 429; `RateLimit-Limit`, `RateLimit-Remaining` and
`RateLimit-Reset` say what is left. While a replica is down, the other one may serve its reads;
`X-STORE-SERVED-BY` then names it."""

TAG_DESCRIPTIONS = {
    "bundles": "Versioned manifests of files.",
    "collections": "Versioned, private sets of links to files, bundles, collections and metadata.",
    "files": "Versioned files, written by reference and read by redirect.",
    "search": "Search for bundles by their metadata.",
    "events": "Events of bundles, in order: journals of the past and a live feed.",
    "subscriptions": "Webhooks for bundles that match a query.",
    "checkout": "Copies of bundles for computing.",
    "replication": "The state of replication between the replicas.",
    "drs": "Files and bundles as objects of GA4GH DRS 1.2, also at `/ga4gh/drs/v1` without `/v1`.",
    "integrity": "The results of verifying stored objects.",
    "areas": "Upload areas: staging of files without a bucket of your own.",
}

VERSION_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}\.[0-9]{6}Z$"
_SCHEMA_REFERENCE = "#/components/schemas/"
_COMMON_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "Uuid": {"type": "string", "format": "uuid"},
    "Version": {"type": "string", "pattern": VERSION_PATTERN},
    "Replica": {"type": "string", "enum": list(REPLICAS)},
}
"""Schemas that many operations share: generated clients have one type for each."""
_COMMON_DETAILS: Mapping[str, Mapping[str, Any]] = {
    "Uuid": {"description": "A UUID (RFC 4122), in lower case.", "example": UUID},
    "Version": {"description": "A time of creation in UTC.", "example": VERSION},
    "Replica": {"description": "One of the two copies of the store's content.", "example": "aws"},
}

RequiredAccess = Callable[[str], str | None]


@dataclass(frozen=True, eq=False)
class ApiInfo:
    """The parts of one application's definition other than its operations."""

    title: str
    description: str
    tags: Mapping[str, str]
    wants: RequiredAccess
    """Describes what an operation requires of its caller; None if it is public."""
    examples: Examples
    optional_token: tuple[str, ...] = ()
    """Operations that accept requests with and without a token."""
    ids: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Schemas of path parameters that are no uuids."""
    links: Mapping[str, Sequence[Link]] = field(default_factory=dict)
    """Links from the answers of an operation to the next ones."""
    callbacks: Mapping[str, Mapping[str, Callback]] = field(default_factory=dict)
    """The requests that an operation makes the store send, by name."""


STORE_API = ApiInfo(
    title=API_TITLE,
    description=API_DESCRIPTION,
    tags=TAG_DESCRIPTIONS,
    wants=authorization.describe_requirement,
    examples=STORE_EXAMPLES,
    optional_token=("get_subscriptions",),
    ids={
        "filename": {"type": "string", "example": "sample.json"},
        "object_id": {"type": "string", "example": OBJECT_ID},
        "access_id": {"type": "string", "enum": list(REPLICAS), "example": "aws"},
    },
    links=STORE_LINKS,
    callbacks=STORE_CALLBACKS,
)


def build_definition(
    operations: Iterable[Operation],
    *,
    server: str,
    openid_url: str,
    info: ApiInfo = STORE_API,
    wants: RequiredAccess | None = None,
) -> dict[str, Any]:
    """Return the definition for a server's base URL; `wants` overrides that of `info`."""
    operations = tuple(operations)
    wants = wants or info.wants
    requirements = tuple(wants(operation.name) for operation in operations)
    document = _build_document(operations, info, requirements)
    components = document["components"] | {
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "openid": {"type": "openIdConnect", "openIdConnectUrl": openid_url},
        }
    }
    return document | {"servers": [{"url": server}], "components": components}


# Building takes 0.1 s. The server URL is not part of it, because it depends on the request's Host.
@lru_cache(maxsize=8)
def _build_document(
    operations: tuple[Operation, ...], info: ApiInfo, requirements: tuple[str | None, ...]
) -> dict[str, Any]:
    """Build the part that is the same for all servers; callers must not change it."""
    marshmallow = MarshmallowPlugin(schema_name_resolver=_schema_name)
    spec = APISpec(
        title=info.title,
        version="1",
        openapi_version="3.0.3",
        info={"description": info.description},
        tags=[{"name": name, "description": text} for name, text in info.tags.items()],
        plugins=[marshmallow],
    )
    # The plugin's converter exists only once the document does.
    marshmallow.map_to_openapi_type(UuidField, "string", "uuid")  # type: ignore[no-untyped-call]
    marshmallow.map_to_openapi_type(IntegerField, "integer", "int64")  # type: ignore[no-untyped-call]
    marshmallow.converter.add_attribute_function(_version_pattern)  # type: ignore
    for operation, requirement in zip(operations, requirements, strict=True):
        description = _describe_operation(operation, info, requirement)
        spec.path(path=operation.path, operations={operation.method.lower(): description})
    document: dict[str, Any] = _drop_null_defaults(spec.to_dict())
    document |= {"paths": _drop_nullable(document["paths"])}
    return _name_common_schemas(add_examples(document, info.examples))


def _name_common_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Refer to the common schemas wherever nothing but an example would be lost."""
    for parameter in _list_parameters(document):
        example = parameter["schema"].get("example")
        parameter["schema"] = _refer_to_common(parameter["schema"])
        if "$ref" in parameter["schema"] and example is not None:
            parameter["example"] = example
    schemas = document["components"]["schemas"]
    for members in (schema.get("properties", {}) for schema in schemas.values()):
        for name, member in members.items():
            members[name] = _refer_to_common(member)
            if "items" in member:
                member["items"] = _refer_to_common(member["items"])
    text = orjson.dumps(document).decode()
    used = [name for name in _COMMON_SCHEMAS if f'"{_SCHEMA_REFERENCE}{name}"' in text]
    schemas.update({name: {**_COMMON_SCHEMAS[name], **_COMMON_DETAILS[name]} for name in used})
    return document


def _list_parameters(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        for operation in methods.values():
            yield from operation["parameters"]


def _refer_to_common(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in schema.items() if key != "example"}
    if bare.get("description") in (VERSION_DESCRIPTION, REPLICA_DESCRIPTION):
        del bare["description"]
    for name, common in _COMMON_SCHEMAS.items():
        if bare == common:
            return {"$ref": f"{_SCHEMA_REFERENCE}{name}"}
    return schema


def _version_pattern(_converter: Any, field: Any, **_: Any) -> dict[str, str]:
    return {"pattern": VERSION_PATTERN} if isinstance(field, VersionField) else {}


def _schema_name(schema: Any) -> str:
    return str(getattr(schema, "__name__", type(schema).__name__))


def _describe_operation(
    operation: Operation, info: ApiInfo, requirement: str | None
) -> dict[str, Any]:
    parameters = _path_parameters(operation, info)
    if operation.query.fields:
        parameters.append({"in": "query", "schema": type(operation.query)})
    value: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation, requirement),
    }
    add_links(value["responses"], info.links.get(operation.name, ()))
    if sent := info.callbacks.get(operation.name):
        value["callbacks"] = {name: callback.describe() for name, callback in sent.items()}
    if operation.description:
        value["description"] = operation.description
    if body := _request_body(operation):
        value["requestBody"] = body
    if operation.name in info.optional_token:
        value["security"] = [{"bearer": []}, {}]
    elif requirement is not None:
        value["security"] = [{"bearer": []}]
    return value


def _path_parameters(operation: Operation, info: ApiInfo) -> list[dict[str, Any]]:
    uuid = {"type": "string", "format": "uuid", "example": UUID}
    return [
        {"name": name, "in": "path", "required": True, "schema": dict(info.ids.get(name, uuid))}
        for name in operation.path_parameters
    ]


def _request_body(operation: Operation) -> dict[str, Any] | None:
    if operation.upload:
        content: dict[str, Any] = {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
        }
        # An empty file has an empty body, which looks like no body.
        return {"required": False, "content": content}
    if operation.upload_files:
        files = {"type": "array", "items": {"type": "string", "format": "binary"}}
        form = {"type": "object", "properties": {"file": files}, "required": ["file"]}
        return {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    if operation.form is not None:
        # JSON is taken, too. Clients that openapi-python-client generates from both kinds of one
        # schema do not compile.
        form_content = {"application/x-www-form-urlencoded": {"schema": operation.form}}
        return {"required": True, "content": form_content}
    if operation.body is None:
        return None
    content = {"application/json": {"schema": type(operation.body)}}
    return {"required": not operation.body_optional, "content": content}


def _responses(operation: Operation, requirement: str | None) -> dict[str, Any]:
    responses = {str(status): _response(doc) for status, doc in operation.responses.items()}
    if operation.paged:
        link = _header_schemas({"Link": 'The next page, rel="next".'})
        responses["206"]["headers"] = {**responses["206"].get("headers", {}), **link}
    is_drs = operation.path.startswith(DRS_PATHS)
    describe_error = _drs_error_response if is_drs else _problem_response
    errors = {400, *operation.errors}
    # An invalid token is refused even where no token is required.
    errors |= {401} if operation.identified else set()
    errors |= set() if requirement is None else {403}
    errors |= set() if operation.body is None else {413, 415}
    for status in sorted(errors):
        responses.setdefault(str(status), describe_error(HTTPStatus(status).phrase))
    return {**responses, "default": describe_error("Any other error.")}


def _response(doc: ResponseDoc) -> dict[str, Any]:
    value: dict[str, Any] = {"description": doc.description}
    if doc.schema is not None:
        value["content"] = {"application/json": {"schema": doc.schema}}
    if doc.page:
        value["content"] = {"text/html": {"schema": {"type": "string"}}}
    for media_type in doc.media_types:
        binary = {"schema": {"type": "string", "format": "binary"}}
        value.setdefault("content", {})[media_type] = binary
    if doc.headers:
        value["headers"] = _header_schemas(doc.headers)
    return value


def _header_schemas(headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()
    }


def _problem_response(description: str) -> dict[str, Any]:
    return {"description": description, "content": {PROBLEM_MEDIA_TYPE: {"schema": Problem}}}


def _drs_error_response(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": DrsError}}}


def _drop_null_defaults(value: Any) -> Any:
    """Remove `default: null`, which means the same as no default."""
    if isinstance(value, list):
        return [_drop_null_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _drop_null_defaults(item)
        for key, item in value.items()
        if not (key == "default" and item is None)
    }


def _drop_nullable(value: Any) -> Any:
    """Remove `nullable` and null enum values, which mean nothing for path and query parameters."""
    if isinstance(value, list):
        return [_drop_nullable(item) for item in value if item is not None]
    if not isinstance(value, dict):
        return value
    return {key: _drop_nullable(item) for key, item in value.items() if key != "nullable"}


def register_definition(app: Flask, services: Services, operations: Sequence[Operation]) -> None:
    """Serve the definition at `/openapi.json`, `/swagger.json` and `/v1/swagger.json`."""
    openid = f"{services.settings.auth_url}/.well-known/openid-configuration"

    @app.get("/openapi.json", endpoint="get_definition_openapi")
    @app.get("/swagger.json")
    @app.get("/v1/swagger.json", endpoint="get_definition_v1")
    def get_definition() -> Response:
        g.operation = "get_definition"
        server = f"{services.base(request)}/v1"
        wants = services.access.wants
        document = build_definition(operations, server=server, openid_url=openid, wants=wants)
        response = Response(orjson.dumps(document), mimetype="application/json")
        return apply_etag(request, response, private=False)
