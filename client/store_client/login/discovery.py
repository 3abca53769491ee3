"""The authorization service of a store, as it describes itself (OpenID Connect Discovery).

The store names it in its definition. From then on it is believed about its own end points only if
it calls itself what the store calls it, so that no other service's answer is taken for one of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from store_client.configuration import Configuration
from store_client.definition import load
from store_client.definition.reading import DISCOVERY
from store_client.errors import Refused, StoreError
from store_client.transport.limits import SMALL_ANSWER
from store_client.transport.session import Session

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Service:
    """An authorization service and its end points; those that it lacks are empty."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str = ""
    device_authorization_endpoint: str = ""
    userinfo_endpoint: str = ""
    jwks_uri: str = ""
    says_issuer: bool = False
    """Whether each answer at the browser names its issuer (RFC 9207)."""


def service_of(session: Session, config: Configuration, *, fresh: bool = False) -> Service:
    """The authorization service of this store; StoreError when the store names none. `fresh` asks
    the store, whatever it said before."""
    address = load(session, config, fresh=fresh).auth_url
    if not address:
        raise StoreError(
            f"{config.url} names no authorization service",
            hint="log in with a token: store login --access-token -",
        )
    return found_at(session, address)


def found_at(session: Session, address: str) -> Service:
    """The service of this issuer, or of the address of its description."""
    issuer = address.removesuffix(DISCOVERY).rstrip("/")
    answer = session.ask("GET", issuer + DISCOVERY, authorize=False, limit=SMALL_ANSWER)
    try:
        said = answer.json()
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Refused(f"{issuer} is no authorization service: it does not describe itself")
    if str(said.get("issuer", "")).rstrip("/") != issuer:
        raise Refused(
            f"{issuer} calls itself something else",
            hint="tell the store's operators: STORE_AUTH_EXTERNAL_URL is not its address",
        )
    return _service(said)


def _service(said: Mapping[str, Any]) -> Service:
    texts = {name: said.get(name, "") for name in Service.__slots__ if name != "says_issuer"}
    for name, text in texts.items():
        if not isinstance(text, str) or not (text == "" or _safe(text, str(said["issuer"]))):
            raise Refused(f"the authorization service's {name} is no address that is safe to ask")
    if not texts["token_endpoint"] or not texts["authorization_endpoint"]:
        raise Refused("the authorization service names no end points to log in at")
    says_issuer = said.get("authorization_response_iss_parameter_supported") is True
    return Service(**texts, says_issuer=says_issuer)


def _safe(url: str, issuer: str) -> bool:
    """Whether secrets may be sent there: encrypted, unless the service itself is not."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and parts.scheme in ("https", urlsplit(issuer).scheme)


def in_the_clear(url: str) -> bool:
    """Whether whoever is on the way reads what is sent there."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK
