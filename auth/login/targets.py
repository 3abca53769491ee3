"""Where a browser goes when it is known who is at it: only to where somebody registered it may go.

A target travels through the login's pages as a text that was sealed: by us, or by the page of ours
that sent the browser here and takes it back.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from auth.seals import Seals
from storage.errors import Invalid

MAX_STATE = 2048
LIFE_S = 86_400
OWN_PAGES = ("/", "/oauth/authorize", "/device", "/login/account")
"""Pages of ours that a login may lead to."""
CONTINUE = "continue"
"""A sealed value of the authorization request's own, which goes back there as it came."""
AUTHORIZE = "/oauth/authorize"

_SEALED, _CONTINUED = "t.", "c."
_CARRIED = re.compile(rf"{AUTHORIZE}\?{CONTINUE}=([A-Za-z0-9_.=~-]+)")


@dataclass(frozen=True)
class Targets:
    """Judges, seals and opens targets."""

    base_url: str
    seals: Seals
    registered: Callable[[str], bool]
    """Whether a client registered this redirect URI."""

    def asked(self, redirect_uri: str, state: str | None, *, now: float) -> str:
        """The target of a login; Invalid when nobody registered that address."""
        own = self._own(redirect_uri)
        if own is None and not self.registered(redirect_uri):
            told = "It is not a registered redirect URI."
            raise Invalid(f"redirect_uri: {told}", errors={"redirect_uri": [told]})
        if state is not None and len(state) > MAX_STATE:
            told = f"It has more than {MAX_STATE} characters."
            raise Invalid(f"state: {told}", errors={"state": [told]})
        carried = _CARRIED.fullmatch((own or "").removeprefix(self.base_url))
        if carried and state is None:
            # Sealed already: it travels as it is, which keeps addresses short.
            return _CONTINUED + carried[1]
        url = with_state(own or redirect_uri, state)
        return _SEALED + self.seals.seal("target", [url], ends=now + LIFE_S)

    def home(self, *, now: float) -> str:
        """Our own page, for who came from nowhere."""
        return self.asked("/login/account", None, now=now)

    def url(self, target: str | None, *, now: float) -> str | None:
        """The address of a target; None for what is none of ours, or too old."""
        text = target or ""
        if text.startswith(_CONTINUED):
            query = urlencode({CONTINUE: text.removeprefix(_CONTINUED)})
            return f"{self.base_url}{AUTHORIZE}?{query}"
        opened = self.seals.open("target", text.removeprefix(_SEALED), now=now)
        return opened[0] if opened else None

    def _own(self, uri: str) -> str | None:
        """The address of a page of ours, named whole or by its path."""
        path = uri.removeprefix(self.base_url) if uri.startswith(self.base_url + "/") else uri
        plain = path.partition("?")[0]
        if not path.isascii() or not path.isprintable() or "#" in path or "\\" in path:
            return None
        return self.base_url + path if plain in OWN_PAGES else None


def with_state(uri: str, state: str | None) -> str:
    """The address with the state added to its query, as it came."""
    if state is None:
        return uri
    return uri + ("&" if "?" in uri else "?") + urlencode({"state": state})


def origin(url: str) -> str:
    """Scheme, host and port of an address; of a scheme without a host, the scheme."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"
