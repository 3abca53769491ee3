"""Small API definitions, and a server that serves two of them."""

import json
from typing import Any

from tests.client.scripted_server import Answer


def operation(name: str, **more: Any) -> dict[str, Any]:
    """One that is open and takes nothing."""
    return {
        "operationId": name,
        "summary": f"Does {name}.",
        "parameters": [],
        "responses": {"200": {"description": "Done."}},
        **more,
    }


def query(name: str, *, required: bool = False, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def body(schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"requestBody": {"content": {kind: {"schema": schema}}, "required": True}}


def document(paths: dict[str, Any], *, auth: str = "", **schemas: Any) -> dict[str, Any]:
    """A definition of these paths; `auth` is the base URL of an authorization service."""
    schemes = {"openid": {"type": "openIdConnect", "openIdConnectUrl": f"{auth}{DISCOVERY}"}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "A store", "description": "About it.", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": schemes if auth else {}},
    }


DISCOVERY = "/.well-known/openid-configuration"


def served(found: dict[str, Any], etag: str = "") -> Answer:
    headers = {"ETag": etag} if etag else {}
    return Answer(200, json.dumps(found).encode(), headers)
