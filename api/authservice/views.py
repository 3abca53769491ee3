"""The views of the authorization service; every address in them comes from the settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import Flask, Response, g, jsonify, render_template_string, request

from api.authservice.definition import Operation
from api.authservice.schemas import Discovery, Health, KeySet
from api.conditional import conditional
from api.errors import RETRY_AFTER_S
from auth.keys import KeyFile
from storage.errors import Unavailable

DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/.well-known/jwks.json"
KEYS_AGE_S = 300
"""How long others may keep our keys; a key they do not know makes them ask again anyway."""

OPERATIONS = (
    Operation("get_openid_configuration", DISCOVERY, "What this service is and does", Discovery),
    Operation("get_jwks.json", KEYS, "The public keys that verify its tokens", KeySet),
    Operation(
        "get_health", "/health", "Whether every part works", Health, {503: "A part does not work"}
    ),
    Operation("get_definition", "/swagger.json", "This definition"),
)

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Authorization service</title>
<h1>Authorization service</h1>
<p>Signs the bearer tokens of the data store. Issuer: <code>{{ issuer }}</code></p>
<ul>
{% for operation in operations %}
<li><a href="{{ operation.path }}">{{ operation.path }}</a>: {{ operation.summary }}</li>
{% endfor %}
</ul>
</html>
"""


@dataclass(frozen=True)
class Service:
    """What the views answer from."""

    issuer: str
    keys: KeyFile
    definition: Mapping[str, Any]


def register_views(app: Flask, service: Service) -> None:
    """Give every operation its view, and `/` its page."""
    views: dict[str, Callable[[Service], Response]] = {
        "get_openid_configuration": discovery,
        "get_jwks.json": public_keys,
        "get_health": health,
        "get_definition": api_definition,
    }
    for operation in OPERATIONS:
        # Flask takes no dot in the name of an end point.
        name = operation.operation_id.replace(".", "_")
        view = _conditional(operation.operation_id, partial(views[operation.operation_id], service))
        app.add_url_rule(operation.path, name, view, methods=["GET"])
    app.add_url_rule("/", "page", partial(page, service), methods=["GET"])


def _conditional(name: str, view: Callable[[], Response]) -> Callable[[], Response]:
    """The view, for those who have its answer already."""

    def answered() -> Response:
        g.operation = name
        return conditional(request, view(), private=False)

    return answered


def discovery(service: Service) -> Response:
    """OpenID Connect Discovery: where the keys are, and nothing that does not work."""
    base = service.issuer.rstrip("/")
    document = {
        "issuer": service.issuer,
        "jwks_uri": base + KEYS,
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(service.keys.read().algorithms),
        "claims_supported": ["iss", "sub", "aud", "exp", "iat", "email", "groups", "scope"],
    }
    return _cached(jsonify(Discovery().dump(document)))


def public_keys(service: Service) -> Response:
    """The public halves of the signing keys."""
    return _cached(jsonify(KeySet().dump(service.keys.read().jwks())))


def health(service: Service) -> Response:
    """200 when every part works, else 503, each part with its reason."""
    part = _keys_part(service)
    response = jsonify(Health().dump({"status": part["status"], "parts": {"keys": part}}))
    if part["status"] != "ok":
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER_S[503])
    return response


def _keys_part(service: Service) -> dict[str, str]:
    try:
        count = len(service.keys.read().keys)
    except Unavailable as error:
        return {"status": "failed", "reason": error.detail}
    return {"status": "ok", "reason": f"{count} can verify, the newest signs"}


def api_definition(service: Service) -> Response:
    """The service's own OpenAPI document."""
    return jsonify(service.definition)


def page(service: Service) -> Response:
    """A page for the person who opens the service's address."""
    text = render_template_string(PAGE, issuer=service.issuer, operations=OPERATIONS)
    response = Response(text, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
    return response


def _cached(response: Response) -> Response:
    response.headers["Cache-Control"] = f"public, max-age={KEYS_AGE_S}"
    return response
