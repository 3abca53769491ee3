"""The authorization request at the browser: a login if need be, a question if need be, and the
answer brought to the client.
"""

from functools import partial
from typing import Any
from uuid import uuid4

from flask import Flask, Response, g, request

from api.authservice.frame import add_page, framed, message
from api.authservice.openid.visiting import (
    MAX_CARRIED,
    at_browser,
    carried,
    carry,
    is_of,
    meanings,
    place,
    to_login,
    visitor,
)
from api.authservice.pages import ANYWHERE, go, page
from api.authservice.schemas.openid import AuthorizeQuery
from api.authservice.services import AuthServices, Call
from api.operation import Answer, operation
from auth.login.sessions import Session
from auth.openid import authorizing, granting
from auth.openid.authorizing import Asked, Next, Request
from auth.openid.errors import Shown
from auth.openid.provider import Provider
from storage.errors import Forbidden

PATH = "/oauth/authorize"
CONSENT = "/oauth/consent"
CONTINUING, CONSENTING = "continue", "consent"
"""A request on its way through a login; one that a person is asked about."""
OVER = "This took too long. Go back to the application and begin again."
SHOWN = {
    400: Answer("A page that tells the person what is wrong.", page=True),
    429: Answer("A page that tells the person when to try again.", page=True),
}


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
    return framed(call.services.logins, partial(_authorize, call.services))


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
    return framed(call.services.logins, partial(_reposted, call.services))


OPERATIONS = (get_oauth_authorize, post_oauth_authorize)


def register_consent(app: Flask, services: AuthServices) -> None:
    """Take the answer of the consent page."""
    decided = partial(_decided, services)
    add_page(app, services.logins, CONSENT, decided, "POST", name="post_oauth_consent")
    add_page(app, services.logins, CONSENT, partial(message, OVER, status=400), "GET")


@at_browser
def _authorize(services: AuthServices) -> Response:
    given, asked = _given(services)
    session, now = visitor(services, request), services.clock()
    with services.catalog.read() as tx:
        wanted = authorizing.read(tx, services.provider, given)
        following = authorizing.what_next(tx, wanted, session, now=now, asked=asked)
    authorizing.refuse_prompt(wanted, following)
    if session is None or following is Next.LOGIN:
        return _to_login(services, given, session, wanted.login_hint)
    if following is Next.CONSENT:
        return _ask(services, given, wanted, session)
    return _grant(services.provider, wanted, session, agreed=False)


@at_browser
def _reposted(services: AuthServices) -> Response:
    """A form of another site comes without our cookie: come again as a link of ours."""
    request.max_content_length = MAX_CARRIED
    given = {name: request.form.getlist(name) for name in request.form}
    return go(f"{PATH}?continue={_sealed(services, CONTINUING, given)}", 303)


@at_browser
def _decided(services: AuthServices) -> Response:
    form, session = request.form, visitor(services, request)
    what = _opened(services, CONSENTING, form.get("carried", ""))
    if session is None or not is_of(session, form) or what["session"] != session.id:
        raise Shown("access_denied", OVER)
    with services.catalog.read() as tx:
        wanted = authorizing.read(tx, services.provider, what["given"])
    if form.get("decision") != "allow":
        raise authorizing.denied(wanted, "The person said no.")
    return _grant(services.provider, wanted, session, agreed=True)


def _given(services: AuthServices) -> tuple[dict[str, list[str]], Asked | None]:
    """The request's parameters: as they came, or as they went through a login, and which."""
    sealed = request.args.get("continue")
    if sealed is None:
        return {name: request.args.getlist(name) for name in request.args}, None
    what = _opened(services, CONTINUING, sealed)
    return what["given"], Asked(what["at"], what["session"]) if what["login"] else None


def _to_login(
    services: AuthServices, given: dict[str, list[str]], session: Session | None, hint: str
) -> Response:
    had = session.id if session else ""
    sealed = _sealed(services, CONTINUING, given, login=True, session=had)
    return to_login(f"{PATH}?continue={sealed}", again=session is not None, hint=hint)


def _ask(
    services: AuthServices, given: dict[str, list[str]], wanted: Request, session: Session
) -> Response:
    """Show the consent page."""
    return page(
        "consent.html",
        "Allow access?",
        form_action=ANYWHERE,
        client=wanted.client.name,
        email=session.email,
        leads_to=place(wanted.redirect_uri),
        unverified=wanted.is_unverified,
        meanings=meanings(wanted.scopes),
        action=CONSENT,
        csrf=session.csrf,
        carried=_sealed(services, CONSENTING, given, session=session.id),
    )


def _grant(provider: Provider, wanted: Request, session: Session, *, agreed: bool) -> Response:
    try:
        with provider.catalog.write() as tx:
            person = granting.person_of(session)
            code = granting.grant_code(tx, provider, wanted, person, str(uuid4()))
            if agreed:
                granting.agree(tx, provider, wanted, session, g.request_id)
    except Forbidden as error:
        raise authorizing.denied(wanted, "The person may not use this service.") from error
    return go(authorizing.answer_with_code(provider, wanted, code), 303 if agreed else 302)


def _sealed(
    services: AuthServices,
    purpose: str,
    given: dict[str, list[str]],
    *,
    login: bool = False,
    session: str = "",
) -> str:
    known = {name: values for name, values in given.items() if name in authorizing.PARAMETERS}
    sealed = carry(services, purpose, {"given": known, "login": login, "session": session})
    # A form has room for all that a request may hold, an address has not.
    if purpose == CONTINUING and len(sealed) > MAX_CARRIED:
        raise Shown("invalid_request", "The application's request is too long.")
    return sealed


def _opened(services: AuthServices, purpose: str, sealed: str) -> dict[str, Any]:
    what = carried(services, purpose, sealed)
    if what is None:
        raise Shown("invalid_request", OVER)
    return what
