"""What the authorization service says of itself; every address in it comes from the settings."""

from flask import Flask, Response, g

from api.authservice.login.account import ACCOUNT
from api.authservice.openid.device import PATH as DEVICE
from api.authservice.openid.endpoints import get_keys, get_openid_configuration
from api.authservice.pages import page
from api.authservice.schemas.service import Definition, Echo, Health
from api.authservice.services import AuthServices, Call
from api.errors import RETRY_AFTER_S
from api.operation import Answer, operation, reply
from auth.tokens.key_file import KeyFile
from storage.errors import StoreError

TAG = "service"
MASKED = frozenset({"authorization", "cookie", "proxy-authorization"})
MASK = "***"


@operation(
    "GET",
    "/health",
    tag=TAG,
    answers={200: Answer("All of it works.", Health), 503: Answer("A part does not work.", Health)},
    identified=False,
    counted=False,
)
def get_health(call: Call[None, None]) -> Response:
    """Whether every part works."""
    parts = {"keys": _keys_part(call.services.keys), "catalog": _catalog_part(call.services)}
    failed = any(part["status"] != "ok" for part in parts.values())
    value = Health().dump({"status": "failed" if failed else "ok", "parts": parts})
    retry = {"Retry-After": str(RETRY_AFTER_S[503])}
    return reply(value, 503 if failed else 200, retry if failed else {})


def _keys_part(keys: KeyFile) -> dict[str, str]:
    try:
        count = len(keys.read().keys)
    except StoreError as error:
        return {"status": "failed", "reason": error.detail}
    return {"status": "ok", "reason": f"{count} can verify, the newest signs"}


def _catalog_part(services: AuthServices) -> dict[str, str]:
    failures = services.probes.failures()
    if failures:
        named = "; ".join(f"{name}: {reason}" for name, reason in sorted(failures.items()))
        return {"status": "failed", "reason": named}
    try:
        return {"status": "ok", "reason": services.catalog.ping()}
    except StoreError as error:
        return {"status": "failed", "reason": error.detail}


@operation(
    "GET",
    "/swagger.json",
    tag=TAG,
    answers={200: Answer("OK", Definition)},
    identified=False,
    counted=False,
)
def get_definition(call: Call[None, None]) -> Response:
    """This definition."""
    return reply(call.services.definition())


@operation("GET", "/echo", tag=TAG, answers={200: Answer("OK", Echo)}, identified=False)
def get_echo(call: Call[None, None]) -> Response:
    """Your request as it arrived, without the secrets in it."""
    request = call.request
    headers = {
        name: MASK if name.lower() in MASKED else value for name, value in request.headers.items()
    }
    query = {name: request.args.getlist(name) for name in request.args}
    shown = {"method": request.method, "path": request.path, "query": query, "headers": headers}
    return reply(shown, headers={"Cache-Control": "no-store"})


OPERATIONS = (get_health, get_definition, get_echo)


def register_page(app: Flask, services: AuthServices) -> None:
    """A page for the person who opens the service's address."""
    shown = (get_openid_configuration, get_keys, get_health, get_definition)

    @app.get("/")
    def front() -> Response:
        g.operation = "page"
        issuer = services.settings.auth_url
        return page(
            "front.html",
            "Authorization service",
            issuer=issuer,
            items=shown,
            account=issuer + ACCOUNT,
            device=issuer + DEVICE,
        )
