"""Operations on the service itself: health, OpenAPI definition, echo, and the front page."""

from flask import Flask, Response, g
from marshmallow import fields, validate

from api.authz.context import AuthRequestContext, AuthServices
from api.authz.login.account import ACCOUNT_PATH
from api.authz.oauth.device import DEVICE_PATH
from api.authz.oauth.endpoints import get_keys, get_openid_configuration
from api.authz.pages import render_page
from api.http.errors import RETRY_AFTER_S
from api.http.operation import ResponseDoc, json_response, operation
from api.schemas.fields import ResponseSchema
from auth.tokens.signing_keys import SigningKeyFile
from storage.errors import DomainError

TAG = "service"
MASKED_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
MASK = "***"


class AuthHealthPart(ResponseSchema):
    """One part of the service: its state and the reason for it."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    reason = fields.String(required=True)


class Health(ResponseSchema):
    """Whether every part of the service works, in the store's format."""

    status = fields.String(required=True, validate=validate.OneOf(["ok", "failed"]))
    parts = fields.Dict(keys=fields.String(), values=fields.Nested(AuthHealthPart), required=True)


class DefinitionAnswer(ResponseSchema):
    """An OpenAPI document."""


class Echo(ResponseSchema):
    """The request as received; secrets are `***`."""

    method = fields.String(required=True)
    path = fields.String(required=True)
    query = fields.Dict(keys=fields.String(), values=fields.List(fields.String()), required=True)
    headers = fields.Dict(keys=fields.String(), values=fields.String(), required=True)


@operation(
    "GET",
    "/health",
    tag=TAG,
    responses={
        200: ResponseDoc("All parts work.", Health),
        503: ResponseDoc("A part does not work.", Health),
    },
    identified=False,
    counted=False,
)
def get_health(context: AuthRequestContext[None, None]) -> Response:
    """Whether every part works."""
    parts = {
        "keys": _check_keys(context.services.keys),
        "catalog": _check_catalog(context.services),
    }
    failed = any(part["status"] != "ok" for part in parts.values())
    value = Health().dump({"status": "failed" if failed else "ok", "parts": parts})
    retry = {"Retry-After": str(RETRY_AFTER_S[503])}
    return json_response(value, 503 if failed else 200, retry if failed else {})


def _check_keys(keys: SigningKeyFile) -> dict[str, str]:
    try:
        count = len(keys.read().keys)
    except DomainError as error:
        return {"status": "failed", "reason": error.detail}
    return {"status": "ok", "reason": f"{count} can verify, the newest signs"}


def _check_catalog(services: AuthServices) -> dict[str, str]:
    failures = services.probes.failures()
    if failures:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(failures.items()))
        return {"status": "failed", "reason": reasons}
    try:
        return {"status": "ok", "reason": services.catalog.ping()}
    except DomainError as error:
        return {"status": "failed", "reason": error.detail}


@operation(
    "GET",
    "/swagger.json",
    tag=TAG,
    responses={200: ResponseDoc("OK", DefinitionAnswer)},
    identified=False,
    counted=False,
)
def get_definition(context: AuthRequestContext[None, None]) -> Response:
    """This definition."""
    return json_response(context.services.definition())


@operation("GET", "/echo", tag=TAG, responses={200: ResponseDoc("OK", Echo)}, identified=False)
def get_echo(context: AuthRequestContext[None, None]) -> Response:
    """Your request as it arrived, without the secrets in it."""
    request = context.request
    headers = {
        name: MASK if name.lower() in MASKED_HEADERS else value
        for name, value in request.headers.items()
    }
    query = {name: request.args.getlist(name) for name in request.args}
    echo = {"method": request.method, "path": request.path, "query": query, "headers": headers}
    return json_response(echo, headers={"Cache-Control": "no-store"})


def register_front_page(app: Flask, services: AuthServices) -> None:
    """Register the page at the service's root URL."""
    linked = (get_openid_configuration, get_keys, get_health, get_definition)

    @app.get("/")
    def front() -> Response:
        g.operation = "page"
        issuer = services.settings.auth_url
        return render_page(
            "front.html",
            "Authorization service",
            issuer=issuer,
            items=linked,
            account=issuer + ACCOUNT_PATH,
            device=issuer + DEVICE_PATH,
        )
