"""The authorization request at the browser: a login if need be, a question if need be, and the
answer brought to the client.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any
from uuid import uuid4

from flask import Flask, Response, g, request

from api.authservice.limits import limit_logins
from api.authservice.openid.oauth import provider_of
from api.authservice.openid.visiting import (
    fields,
    is_of,
    meanings,
    place,
    shown,
    to_login,
    too_many,
    visitor,
)
from api.authservice.pages import ANYWHERE, go, page
from api.authservice.schemas.openid import AuthorizeQuery
from api.authservice.services import AuthServices, Call
from api.operation import Answer, operation
from auth.login.sessions import Session
from auth.openid import authorizing, carrying, granting
from auth.openid.authorizing import Asked, Next, Request
from auth.openid.errors import SentBack, Shown
from auth.openid.provider import Provider
from storage.errors import Forbidden, TooMany

PATH = "/oauth/authorize"
CONSENT = "/oauth/consent"
OVER = "This took too long. Go back to the application and begin again."
SHOWN = {
    400: Answer("A page that tells the person what is wrong.", page=True),
    429: Answer("A page that tells the person when to try again.", page=True),
}


def at_browser(view: Callable[..., Response]) -> Callable[..., Response]:
    """Have a view's refusals shown to the person, or brought to the client."""

    @wraps(view)
    def refusing(services: AuthServices) -> Response:
        provider = provider_of(services)
        try:
            limit_logins(services.catalog, services.settings, request, services.clock())
            return view(services, provider)
        except Shown as error:
            return shown(error)
        except SentBack as error:
            status = 302 if request.method == "GET" else 303
            return go(authorizing.answer_with_error(provider, error), status)
        except TooMany as error:
            return too_many(error)

    return refusing


@operation(
    "GET",
    PATH,
    tag="openid",
    answers={
        200: Answer("A page that asks the person.", page=True),
        302: Answer("To the client with a code or a refusal, or to the login and back here."),
        **SHOWN,
    },
    query=AuthorizeQuery,
    identified=False,
    counted=False,
    acts=True,
)
def get_oauth_authorize(call: Call[Any, None]) -> Response:
    """Have a person let an application act for them (RFC 6749, OpenID Connect)."""
    return _authorize(call.services)


@operation(
    "POST",
    PATH,
    tag="openid",
    answers={303: Answer("To the same request as a link."), **SHOWN},
    errors=(413,),
    identified=False,
    counted=False,
    while_read_only=True,
)
def post_oauth_authorize(call: Call[None, None]) -> Response:
    """The same, with the parameters in a form."""
    return _reposted(call.services)


OPERATIONS = (get_oauth_authorize, post_oauth_authorize)


def register_consent(app: Flask, services: AuthServices) -> None:
    """The answer to the question."""
    app.add_url_rule(CONSENT, "consent", partial(_decided, services), methods=["POST"])


@at_browser
def _authorize(services: AuthServices, provider: Provider) -> Response:
    given, asked = _given(provider)
    session, now = visitor(services, request), services.clock()
    with services.catalog.read() as tx:
        wanted = authorizing.read(tx, provider, given)
        following = authorizing.what_next(tx, wanted, session, now=now, asked=asked)
    authorizing.refuse_prompt(wanted, following)
    if session is None or following is Next.LOGIN:
        return _to_login(provider, given, session)
    if following is Next.CONSENT:
        return _ask(provider, given, wanted, session)
    return _grant(provider, wanted, session, agreed=False)


@at_browser
def _reposted(_services: AuthServices, provider: Provider) -> Response:
    """A form of another site comes without our cookie: come again as a link of ours."""
    request.max_content_length = carrying.MAX_CARRIED
    given = {name: request.form.getlist(name) for name in request.form}
    return go(f"{PATH}?continue={_carried(provider, carrying.CONTINUE, given)}", 303)


@at_browser
def _decided(services: AuthServices, provider: Provider) -> Response:
    g.operation = "post_oauth_consent"
    form, session = fields(request), visitor(services, request)
    what = _opened(provider, carrying.CONSENT, form.get("carried", ""))
    if session is None or not is_of(session, form) or what["session"] != session.id:
        raise Shown("access_denied", OVER)
    with services.catalog.read() as tx:
        wanted = authorizing.read(tx, provider, what["given"])
    if form.get("decision") != "allow":
        raise authorizing.denied(wanted, "The person said no.")
    return _grant(provider, wanted, session, agreed=True)


def _given(provider: Provider) -> tuple[dict[str, list[str]], Asked | None]:
    """The request's parameters: as they came, or as they went through a login, and which."""
    carried = request.args.get("continue")
    if carried is None:
        return {name: request.args.getlist(name) for name in request.args}, None
    what = _opened(provider, carrying.CONTINUE, carried)
    return what["given"], Asked(what["at"], what["session"]) if what["login"] else None


def _to_login(provider: Provider, given: dict[str, list[str]], session: Session | None) -> Response:
    had = session.id if session else ""
    carried = _carried(provider, carrying.CONTINUE, given, login=True, session=had)
    return to_login(f"{PATH}?continue={carried}", again=session is not None)


def _ask(
    provider: Provider, given: dict[str, list[str]], wanted: Request, session: Session
) -> Response:
    return page(
        "consent.html",
        "Allow this?",
        form_action=ANYWHERE,
        client=wanted.client.name,
        email=session.email,
        leads_to=place(wanted.redirect_uri),
        meanings=meanings(wanted.scopes),
        action=CONSENT,
        csrf=session.csrf,
        carried=_carried(provider, carrying.CONSENT, given, session=session.id),
    )


def _grant(provider: Provider, wanted: Request, session: Session, *, agreed: bool) -> Response:
    try:
        with provider.catalog.write() as tx:
            person = granting.person_of(session)
            code = granting.grant_code(tx, provider, wanted, person, str(uuid4()))
            if agreed:
                granting.agree(tx, provider, wanted, session.email, g.request_id)
    except Forbidden as error:
        raise authorizing.denied(wanted, "The person may not use this service.") from error
    return go(authorizing.answer_with_code(provider, wanted, code), 303 if agreed else 302)


def _carried(
    provider: Provider,
    purpose: bytes,
    given: dict[str, list[str]],
    *,
    login: bool = False,
    session: str = "",
) -> str:
    known = {name: values for name, values in given.items() if name in authorizing.PARAMETERS}
    what = {"given": known, "login": login, "session": session}
    carried = carrying.seal(provider.sealer, purpose, what, provider.clock())
    if len(carried) > carrying.MAX_CARRIED:
        raise Shown("invalid_request", "The application's request is too long.")
    return carried


def _opened(provider: Provider, purpose: bytes, carried: str) -> dict[str, Any]:
    what = carrying.opened(provider.sealer, purpose, carried, provider.clock())
    if what is None:
        raise Shown("invalid_request", OVER)
    return what
