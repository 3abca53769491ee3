"""Log a person in to the data store, by authorization code with PKCE (RFC 7636).

A real program opens a web browser, and listens on a port of this machine for the code (RFC 8252).
Here the program fills in the forms itself, so that no person is needed.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin

import httpx

from store_client import Client, StoreError

CLIENT_ID = "store-cli"
"""A client of the authorization service that any program on a person's own machine may use."""
CALLBACK = "http://127.0.0.1:8976/callback"
MOST_PAGES = 20


def log_in(store: Client, email: str, password: str) -> Mapping[str, Any]:
    """Log in with a password; the token response, with `access_token` and `refresh_token`."""
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
    digest = hashlib.sha256(verifier.encode()).digest()
    service = store.get_openid_configuration()
    query = {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": CALLBACK,
        "scope": "openid email offline_access",
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    url = f"{service['authorization_endpoint']}?{urlencode(query)}"
    answer = dict(parse_qsl(fill_in_forms(url, email, password).query.decode()))
    if (answer.get("state"), answer.get("iss")) != (state, service["issuer"]):
        raise StoreError(f"the login ended with {', '.join(answer) or 'no answer'}")
    return store.post_oauth_token(
        grant_type="authorization_code",
        client_id=CLIENT_ID,
        redirect_uri=CALLBACK,
        code=answer.get("code", ""),
        code_verifier=verifier,
    )


def refresh(store: Client, tokens: Mapping[str, Any]) -> Mapping[str, Any]:
    """The next tokens of a login. A refresh token is good once."""
    return store.post_oauth_token(
        grant_type="refresh_token", client_id=CLIENT_ID, refresh_token=tokens["refresh_token"]
    )


def fill_in_forms(url: str, email: str, password: str) -> httpx.URL:
    """Log in and allow access in a browser; the URL to which the service sends the browser back."""
    with httpx.Client(timeout=60.0, trust_env=False) as browser:
        page = browser.get(url)
        for _ in range(MOST_PAGES):
            request = page.next_request
            if request is None:
                page = _send_form(browser, page, email=email, password=password)
            elif request.url.netloc != page.url.netloc:
                return request.url
            else:
                page = browser.send(request)
    raise StoreError(f"the login does not end: {page.url}")


def _send_form(browser: httpx.Client, page: httpx.Response, **typed: str) -> httpx.Response:
    """Fill in the form of a page, the one for logging in or the one for allowing access."""
    reader = _FormReader()
    reader.feed(page.text)
    for action, fields, buttons in reader.forms:
        if typed.keys() <= fields.keys():
            fields.update(typed)
        elif "decision" in buttons:
            fields["decision"] = "allow"
        else:
            continue
        origin = f"{page.url.scheme}://{page.url.netloc.decode()}"
        headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
        return browser.post(urljoin(str(page.url), action), data=fields, headers=headers)
    raise StoreError(f"no form to fill in at {page.url}")


class _FormReader(HTMLParser):
    """Collects the forms of a page: action, fields with their values, and names of buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str], set[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((given.get("action", ""), {}, set()))
        elif self.forms and "name" in given:
            _, fields, buttons = self.forms[-1]
            if tag == "input":
                fields[given["name"]] = given.get("value", "")
            elif tag == "button":
                buttons.add(given["name"])
