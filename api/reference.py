"""The API definition as JSON, and as a page that people read: rendered here, without scripts."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from flask import Flask, Response, g, render_template, request

from api.definition import definition
from api.operation import Operation
from api.services import Services
from api.urls import external_base

POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"


def register_reference(app: Flask, services: Services, operations: Sequence[Operation]) -> None:
    """`/swagger.json`, with and without `/v1`, and the page at `/`."""

    def document() -> dict[str, Any]:
        base = external_base(services.settings, request)
        openid = f"{services.settings.auth_url}/.well-known/openid-configuration"
        return definition(operations, server=f"{base}/v1", openid_url=openid)

    @app.get("/swagger.json")
    @app.get("/v1/swagger.json", endpoint="get_definition_v1")
    def get_definition() -> Response:
        g.operation = "get_definition"
        return Response(orjson.dumps(document()), mimetype="application/json")

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
    server = document["servers"][0]["url"]
    for path, verbs in document["paths"].items():
        for verb, described in verbs.items():
            shown = {**described, "method": verb.upper(), "path": path}
            shown["curl"] = curl(server, shown)
            shown["body"] = _body_members(document, described)
            groups[described["tags"][0]]["operations"].append(shown)
    return list(groups.values())


def curl(server: str, operation: Mapping[str, Any]) -> str:
    """A command line that calls the operation with its required parameters."""
    path, query = operation["path"], []
    for parameter in operation["parameters"]:
        example = _example(parameter["schema"], parameter["name"])
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", example)
        elif parameter.get("required"):
            query.append(f"{parameter['name']}={example}")
    url = server + path + ("?" + "&".join(query) if query else "")
    return " \\\n  ".join(["curl " + shlex.quote(url), *_options(operation)])


def _options(operation: Mapping[str, Any]) -> Iterable[str]:
    method, body = operation["method"], operation.get("requestBody")
    if method == "HEAD":
        yield "--head"
    elif method not in ("GET", "POST") or (method == "POST" and not body):
        yield f"-X {method}"
    if operation.get("security"):
        yield '-H "Authorization: Bearer $TOKEN"'
    if body and "application/octet-stream" in body["content"]:
        yield "--data-binary @sample_1.fastq.gz"
    elif body:
        yield "--json @body.json"


def _example(schema: Mapping[str, Any], name: str) -> str:
    return str(schema.get("example", schema.get("default", f"<{name}>")))


def _body_members(document: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Any]:
    """Name, kind, whether required, and meaning of each member of a JSON body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = _resolved(document, content.get("application/json", {}).get("schema", {}))
    required = schema.get("required", ())
    return [
        {"name": name, "required": name in required, "schema": part, "kind": kind(part)}
        for name, part in schema.get("properties", {}).items()
    ]


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = document["components"]["schemas"][name] if name else schema
    return found


def kind(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))
