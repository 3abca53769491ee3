"""The consent flow: a person logs in at their browser, which brings a code to this machine.

Authorization code with PKCE S256 (RFC 7636) on a loopback port (RFC 8252); `state` ties the answer
to the question, `iss` (RFC 9207) to the service, `nonce` the id token to this login.
"""

import base64
import hashlib
import importlib
import os
import secrets
import sys
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import Any
from urllib.parse import urlencode

from store_client.errors import NotAllowed, Refused, StoreError
from store_client.login.discovery import Service
from store_client.login.door import Answer, Door, opened
from store_client.login.expiry import printable
from store_client.login.granting import CLIENT_ID, SCOPE, Granted, granted
from store_client.transport.session import Session

WAIT_S = 300.0

Show = Callable[[str], Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Question:
    """What only whoever asked knows, or is told in the answer."""

    redirect_uri: str
    state: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)

    def url(self, service: Service) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": self.redirect_uri,
            "scope": SCOPE,
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in service.authorization_endpoint else "?"
        return f"{service.authorization_endpoint}{joint}{urlencode(asked)}"


def consent(
    session: Session,
    service: Service,
    *,
    say: Say,
    show: Show | None = None,
    wait_s: float = WAIT_S,
) -> Granted:
    """The tokens of who logs in at the browser; TimedOut, or NotAllowed when they say no."""
    with opened() as door:
        question = _Question(door.redirect_uri)
        door.expect(question.state)
        url = question.url(service)
        say(f"Log in at your browser. If it does not open, go to:\n  {url}")
        # Some browsers of a terminal come back only when they are closed.
        Thread(target=_shown, args=(show or open_browser, url), daemon=True).start()
        answer = door.wait(wait_s)
        try:
            found = _redeemed(session, service, question, answer)
        except StoreError as error:
            door.tell("You are not logged in", str(error))
            raise
        _tell(door, found)
        return found


def open_browser(
    url: str, *, environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> bool:
    """Whether a browser was opened. Where there is no screen none is: it would be one of text, in
    the midst of what the terminal shows."""
    screen = platform in ("win32", "darwin", "cygwin") or any(
        environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    return screen and webbrowser.open(url)


def _shown(show: Show, url: str) -> None:
    try:
        show(url)
    except (webbrowser.Error, OSError):
        return  # the address was printed


def _tell(door: Door, found: Granted) -> None:
    whom = f" as {found.email}" if found.email else ""
    door.tell("You are logged in", f"The terminal goes on{whom}. Close this page.")


def _redeemed(session: Session, service: Service, question: _Question, answer: Answer) -> Granted:
    if answer.get("iss", service.issuer) != service.issuer or _lacks_issuer(service, answer):
        raise Refused("the answer is of another authorization service: nothing was sent to it")
    if "error" in answer:
        raise _refusal(answer)
    if not answer.get("code"):
        raise Refused("the authorization service answered with neither a code nor a reason")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": question.redirect_uri,
        "code_verifier": question.verifier,
    }
    # A code that is redeemed twice ends the login.
    found = granted(session, service.token_endpoint, form, again=False)
    importlib.import_module("store_client.login.id_token").check(
        session,
        found.id_token,
        issuer=service.issuer,
        jwks_uri=service.jwks_uri,
        nonce=question.nonce,
    )
    return found


def _lacks_issuer(service: Service, answer: Answer) -> bool:
    return service.says_issuer and "iss" not in answer


def _refusal(answer: Answer) -> StoreError:
    said = printable(answer.get("error_description") or answer["error"])
    if answer["error"] == "access_denied":
        return NotAllowed(f"the login was refused: {said}", hint="again: store login")
    return Refused(f"the authorization service says no: {said}", hint="again: store login")
