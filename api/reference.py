"""The API definition as JSON, and as a page that people read: rendered here, without scripts."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from flask import Flask, Response, g, render_template, request

from api.conditional import conditional
from api.definition import definition
from api.examples import example, resolved
from api.operation import Operation
from api.services import Services
from api.urls import external_base

POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"


def register_reference(app: Flask, services: Services, operations: Sequence[Operation]) -> None:
    """`/swagger.json`, with and without `/v1`, and the page at `/`."""

    openid = f"{services.settings.auth_url}/.well-known/openid-configuration"

    def document() -> dict[str, Any]:
        server = f"{external_base(services.settings, request)}/v1"
        wants = services.access.wants
        return definition(operations, server=server, openid_url=openid, wants=wants)

    @app.get("/swagger.json")
    @app.get("/v1/swagger.json", endpoint="get_definition_v1")
    def get_definition() -> Response:
        g.operation = "get_definition"
        whole = Response(orjson.dumps(document()), mimetype="application/json")
        return conditional(request, whole, private=False)

    @app.get("/")
    def get_reference() -> Response:
        g.operation = "get_reference"
        shown = document()
        page = render_template("reference.html", document=shown, groups=grouped(shown), kind=kind)
        headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
        return Response(page, headers=headers, mimetype="text/html")

    @app.get("/reference.css")
    def get_style() -> Response:
        g.operation = "get_reference"
        return Response(render_template("reference.css"), mimetype="text/css")


def grouped(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operations of each tag, as the page shows them."""
    groups = {tag["name"]: {**tag, "operations": []} for tag in document["tags"]}
    for path, verbs in document["paths"].items():
        for verb, described in verbs.items():
            shown = {**described, "method": verb.upper(), "path": path}
            shown["curl"] = curl(document, shown)
            shown["members"] = members(document, described)
            groups[described["tags"][0]]["operations"].append(shown)
    return list(groups.values())


def members(document: Mapping[str, Any], operation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name, schema and whether required, of each member of a JSON body."""
    schema = resolved(document, _body_schema(operation) or {})
    required = schema.get("required", ())
    return [
        {"name": name, "required": name in required, "schema": part}
        for name, part in schema.get("properties", {}).items()
    ]


def curl(document: Mapping[str, Any], operation: Mapping[str, Any]) -> str:
    """A command line that calls the operation with what it requires."""
    path, query = operation["path"], []
    for parameter in operation["parameters"]:
        name, value = parameter["name"], str(example(document, parameter["schema"]))
        if parameter["in"] == "path":
            path = path.replace("{" + name + "}", value)
        elif parameter.get("required"):
            query.append(f"{name}={value}")
    url = document["servers"][0]["url"] + path + ("?" + "&".join(query) if query else "")
    return " \\\n  ".join(["curl " + shlex.quote(url), *_options(document, operation)])


def _options(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterable[str]:
    method, body = operation["method"], _body_schema(operation)
    if method == "HEAD":
        yield "--head"
    elif method != "GET":
        yield f"-X {method}"
    if operation.get("security"):
        yield '-H "Authorization: Bearer $TOKEN"'
    if body is not None:
        yield "--json " + shlex.quote(json.dumps(example(document, body)))
    elif "requestBody" in operation:
        yield "-H 'Content-Type: application/json'"
        yield "--data-binary @sample.json"


def _body_schema(operation: Mapping[str, Any]) -> Mapping[str, Any] | None:
    content = operation.get("requestBody", {}).get("content", {})
    schema: Mapping[str, Any] | None = content.get("application/json", {}).get("schema")
    return schema


def kind(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))
