"""Redirect targets of a login, sealed, and limited to registered addresses.

A target passes through the login pages as a sealed value. The login page or the authorization
endpoint seals it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from auth.secret_values import ValueSealer
from storage.errors import Invalid

MAX_STATE = 2048
TARGET_LIFE_S = 86_400
OWN_PAGES = ("/", "/oauth/authorize", "/device", "/login/account")
"""Own pages that a login may redirect to."""
CONTINUE_PARAMETER = "continue"
"""Sealed authorization request, which is passed back unchanged."""
AUTHORIZE_PATH = "/oauth/authorize"

_SEALED_PREFIX, _CONTINUED_PREFIX = "t.", "c."
_CONTINUED_REQUEST_REGEX = re.compile(
    rf"{AUTHORIZE_PATH}\?{CONTINUE_PARAMETER}=([A-Za-z0-9_.=~-]+)"
)


@dataclass(frozen=True)
class LoginTargets:
    """Checks, seals and opens targets."""

    base_url: str
    seals: ValueSealer
    registered: Callable[[str], bool]
    """Whether a client registered this redirect URI."""

    def seal_target(self, redirect_uri: str, state: str | None, *, now: float) -> str:
        """Seal a login's target; Invalid if the URI is not registered."""
        own = self._own_page_url(redirect_uri)
        if own is None and not self.registered(redirect_uri):
            reason = "It is not a registered redirect URI."
            raise Invalid(f"redirect_uri: {reason}", errors={"redirect_uri": [reason]})
        if state is not None and len(state) > MAX_STATE:
            reason = f"It has more than {MAX_STATE} characters."
            raise Invalid(f"state: {reason}", errors={"state": [reason]})
        continued = _CONTINUED_REQUEST_REGEX.fullmatch((own or "").removeprefix(self.base_url))
        if continued and state is None:
            # Sealed already: passing it unchanged keeps URLs short.
            return _CONTINUED_PREFIX + continued[1]
        url = add_query_parameters(own or redirect_uri, {"state": state})
        return _SEALED_PREFIX + self.seals.seal("target", [url], ends=now + TARGET_LIFE_S)

    def open_target(self, target: str | None, *, now: float) -> str | None:
        """Return the URL of a target; None if it is invalid or expired."""
        text = target or ""
        if text.startswith(_CONTINUED_PREFIX):
            query = urlencode({CONTINUE_PARAMETER: text.removeprefix(_CONTINUED_PREFIX)})
            return f"{self.base_url}{AUTHORIZE_PATH}?{query}"
        values = self.seals.open("target", text.removeprefix(_SEALED_PREFIX), now=now)
        return values[0] if values else None

    def _own_page_url(self, uri: str) -> str | None:
        """Return an own page's URL, from a URL or a path; else None."""
        path = uri.removeprefix(self.base_url) if uri.startswith(self.base_url + "/") else uri
        plain = path.partition("?")[0]
        if not path.isascii() or not path.isprintable() or "#" in path or "\\" in path:
            return None
        return self.base_url + path if plain in OWN_PAGES else None


def add_query_parameters(uri: str, parameters: Mapping[str, str | None]) -> str:
    """Append parameters to the query of a URI, except those that are None."""
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{uri}{'&' if '?' in uri else '?'}{query}" if query else uri


def url_origin(url: str) -> str:
    """Return scheme, host and port of a URL; only the scheme without a host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"
