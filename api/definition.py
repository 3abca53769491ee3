"""The API definition, OpenAPI 3.0.3, generated from the operations' own declarations.

Generated clients trip over parameter names that are Python keywords or no identifiers, over
anything but verbs under a path item, over siblings of `$ref`, over `anyOf` on a property and over
recursive bodies; a test holds that none of these appears.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

from api.examples import STORY, UUID, Examples, with_examples
from api.operation import Answer, Operation
from api.problems import MEDIA_TYPE
from api.schemas.common import Problem
from api.schemas.fields import Uuid, Version, Whole
from auth import access

TITLE = "Data store"
ABOUT = """\
A data store for a research consortium: versioned, immutable files and bundles in two replicas.

Errors are `application/problem+json` (RFC 9457) with a `code` and the `request_id` that every
answer has as `X-Request-Id`. Lists come in pages: while more follow, the status is 206 and a
`Link` header with `rel="next"` holds the URL of the next page.

Headers that are understood and not listed as parameters: `Prefer: wait=<seconds>`, or
`Prefer: respond-async` for no waiting at all, on operations that wait for work;
`If-None-Match` with the `ETag` of an earlier answer on every read: 304 without a body when it is
still the same; `Idempotency-Key`, 1 to 255 printable characters that the client makes up, on
patches and replays: the same request with the same key is answered like the first time and does
nothing more, another request with it is 409 `already_exists`; `Last-Event-ID` on the live feed as
a stream; `X-Request-Id` with an id of the client's own; `Accept-Encoding: gzip`; `Range` on
content.

Who asks too often is 429, and where
requests are counted `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` say what is
left. While a replica is down the other one may serve its reads; `X-STORE-SERVED-BY` says so."""

TAGS = {
    "bundles": "Versioned manifests of files.",
    "collections": "Versioned, private sets of links to files, bundles, collections and metadata.",
    "files": "Versioned files, written by reference and read by redirect.",
    "search": "Bundles by their metadata.",
    "events": "What happened to bundles, in order: journals of the past and a live feed.",
    "subscriptions": "Being told of bundles that match.",
    "checkout": "Copies of bundles for computing.",
    "replication": "How far the replicas are the same.",
    "integrity": "How much of what is stored was verified, and what is damaged.",
    "areas": "Staging of files for those without a bucket of their own.",
}


Wants = Callable[[str], str | None]


@dataclass(frozen=True, eq=False)
class About:
    """What the definition of one application says besides its operations."""

    title: str
    about: str
    tags: Mapping[str, str]
    wants: Wants
    """What an operation asks of its caller; None when it is open."""
    examples: Examples
    either: tuple[str, ...] = ()
    """Operations that know their caller by a token, and take none as well."""
    ids: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Schemas of parameters of the path that are no uuids."""


STORE = About(
    title=TITLE,
    about=ABOUT,
    tags=TAGS,
    wants=access.wants,
    examples=STORY,
    either=("get_subscriptions",),
    ids={"filename": {"type": "string", "example": "sample.json"}},
)

VERSION_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}\.[0-9]{6}Z$"


def definition(
    operations: Iterable[Operation],
    *,
    server: str,
    openid_url: str,
    about: About = STORE,
    wants: Wants | None = None,
) -> dict[str, Any]:
    """The whole document; `server` is the base that the operations' paths are put behind, `wants`
    goes before that of `about`."""
    known = tuple(operations)
    asked = wants or about.wants
    made = _without_urls(known, about, tuple(asked(operation.name) for operation in known))
    schemes = {"securitySchemes": _security_schemes(openid_url)}
    return made | {"servers": [{"url": server}], "components": made["components"] | schemes}


# It takes a tenth of a second, and whoever asks may know the store by another name.
@lru_cache(maxsize=8)
def _without_urls(
    operations: tuple[Operation, ...], about: About, wanted: tuple[str | None, ...]
) -> dict[str, Any]:
    """What is the same wherever the application is served; nobody changes it."""
    marshmallow = MarshmallowPlugin(schema_name_resolver=_name)
    spec = APISpec(
        title=about.title,
        version="1",
        openapi_version="3.0.3",
        info={"description": about.about},
        tags=[{"name": name, "description": said} for name, said in about.tags.items()],
        plugins=[marshmallow],
    )
    # Types are known to the plugin's converter, which exists once the document does.
    marshmallow.map_to_openapi_type(Uuid, "string", "uuid")  # type: ignore[no-untyped-call]
    marshmallow.map_to_openapi_type(Whole, "integer", "int64")  # type: ignore[no-untyped-call]
    marshmallow.converter.add_attribute_function(_spelled)  # type: ignore
    for operation, want in zip(operations, wanted, strict=True):
        described = {operation.method.lower(): _described(operation, about, want)}
        spec.path(path=operation.path, operations=described)
    document: dict[str, Any] = _tidied(spec.to_dict())
    shown = document | {"paths": _never_null(document["paths"])}
    return with_examples(shown, about.examples)


def _spelled(_converter: Any, field: Any, **_: Any) -> dict[str, str]:
    """How versions look."""
    return {"pattern": VERSION_PATTERN} if isinstance(field, Version) else {}


def _name(schema: Any) -> str:
    kind = schema if isinstance(schema, type) else type(schema)
    return str(kind.__name__)


def _security_schemes(openid_url: str) -> dict[str, dict[str, str]]:
    return {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "openid": {"type": "openIdConnect", "openIdConnectUrl": openid_url},
    }


def _described(operation: Operation, about: About, wanted: str | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation, about), *_query_parameters(operation)],
        "responses": _responses(operation, wanted=wanted),
    }
    if operation.about:
        shown["description"] = operation.about
    if body := _body(operation):
        shown["requestBody"] = body
    if security := _security(operation, about, wanted):
        shown["security"] = security
    return shown


def _security(operation: Operation, about: About, wanted: str | None) -> list[dict[str, list[str]]]:
    """Nothing for open operations; a list that knows its caller takes a token or none."""
    if operation.name in about.either:
        return [{"bearer": []}, {}]
    return [] if wanted is None else [{"bearer": []}]


def _path_parameters(operation: Operation, about: About) -> list[dict[str, Any]]:
    uuid = {"type": "string", "format": "uuid", "example": UUID}
    return [
        {"name": name, "in": "path", "required": True, "schema": dict(about.ids.get(name, uuid))}
        for name in operation.path_parameters
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [{"in": "query", "schema": type(operation.query)}] if operation.query.fields else []


def _body(operation: Operation) -> dict[str, Any] | None:
    if operation.upload:
        content: dict[str, Any] = {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
        }
        # A file without bytes is a file, and has a body that nobody can tell from none.
        return {"required": False, "content": content}
    if operation.form is not None:
        kinds = ("application/x-www-form-urlencoded", "application/json")
        return {"required": True, "content": {kind: {"schema": operation.form} for kind in kinds}}
    if operation.body is None:
        return None
    content = {"application/json": {"schema": type(operation.body)}}
    return {"required": not operation.body_optional, "content": content}


def _responses(operation: Operation, *, wanted: str | None) -> dict[str, Any]:
    found = {str(status): _response(answer) for status, answer in operation.answers.items()}
    if operation.paged:
        link = _headers({"Link": 'The next page, rel="next".'})
        found["206"]["headers"] = {**found["206"].get("headers", {}), **link}
    for status in sorted({400, *_refusals(operation, wanted=wanted), *operation.errors}):
        found.setdefault(str(status), _problem(HTTPStatus(status).phrase))
    return {**found, "default": _problem("Any other error.")}


def _refusals(operation: Operation, *, wanted: str | None) -> tuple[int, ...]:
    """What is refused before the view is asked; a bad token also where none is wanted."""
    token = (401,) if operation.identified else ()
    return (
        *token,
        *(() if wanted is None else (403,)),
        *(() if operation.body is None else (413, 415)),
    )


def _response(answer: Answer) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": answer.about}
    if answer.schema is not None:
        shown["content"] = {"application/json": {"schema": answer.schema}}
    if answer.page:
        shown["content"] = {"text/html": {"schema": {"type": "string"}}}
    if answer.headers:
        shown["headers"] = _headers(answer.headers)
    return shown


def _headers(headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {"description": about, "schema": {"type": "string"}}
        for name, about in headers.items()
    }


def _problem(about: str) -> dict[str, Any]:
    return {"description": about, "content": {MEDIA_TYPE: {"schema": Problem}}}


def _tidied(value: Any) -> Any:
    """Without `default: null`: absent says the same."""
    if isinstance(value, list):
        return [_tidied(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _tidied(item) for key, item in value.items() if not (key == "default" and item is None)
    }


def _never_null(value: Any) -> Any:
    """Without `nullable`, and null among the values: neither says anything of the parameters of a
    path or a query."""
    if isinstance(value, list):
        return [_never_null(item) for item in value if item is not None]
    if not isinstance(value, dict):
        return value
    return {key: _never_null(item) for key, item in value.items() if key != "nullable"}
