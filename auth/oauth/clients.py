"""OAuth clients, built in or added by operators, and their redirect URIs.

URIs are compared as strings: two parsers of a URL need not agree.

A client with a secret is confidential. One without is public: a native application, or a page in
a browser, which cannot keep a secret.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from auth.accounts import AuditContext, record_audit
from auth.secret_values import create_secret, hash_secret
from auth.settings import AuthSettings
from storage.catalog import Catalog, Tx, login, oauth
from storage.catalog.audit import OPERATOR
from storage.catalog.oauth import OAuthClient
from storage.errors import ConflictError, Invalid, NotFoundError

MAX_REDIRECT_URI = 1024

_PRINTABLE_REGEX = re.compile(r"[!-~]+")
_LOOPBACK_REGEX = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)")
_MAX_PORT = 65535
_PRIVATE_SCHEME_REGEX = re.compile(r"[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+:/?[^/].*")


def check_redirect_uri(uri: str, *, native: bool) -> None:
    """Raise Invalid unless a client may register the URI.

    Allowed: https, http on loopback, and for native clients a private scheme (RFC 8252)."""
    if (
        len(uri) > MAX_REDIRECT_URI
        or not _PRINTABLE_REGEX.fullmatch(uri)
        or "#" in uri
        or "\\" in uri
    ):
        raise Invalid("A redirect URI is printable ASCII without a fragment.")
    if (
        _is_https(uri)
        or _strip_loopback_port(uri)
        or (native and _PRIVATE_SCHEME_REGEX.fullmatch(uri))
    ):
        return
    raise Invalid(
        "A redirect URI begins with https://, http://127.0.0.1 or http://[::1]; that of a public"
        " client may begin with com.example.app:"
    )


def _is_https(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        has_host = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        return parts.scheme == "https" and has_host
    except ValueError:
        return False


def is_native_uri(uri: str) -> bool:
    """Return whether local programs may receive responses: loopback or private scheme.

    See RFC 8252, 8.6."""
    return _strip_loopback_port(uri) is not None or not uri.startswith(("http://", "https://"))


def is_registered_uri(uri: str, registered: Iterable[str], *, native: bool) -> bool:
    """Return whether the URI is registered; native clients may use any loopback port."""
    uris = set(registered)
    if uri in uris:
        return True
    return (
        native
        and _strip_loopback_port(uri) is not None
        and _strip_loopback_port(uri) in map(_strip_loopback_port, uris)
    )


def is_registered_origin(origin: str, registered: Iterable[str]) -> bool:
    """Return whether it is the origin of a registered URI, on any loopback port."""
    origins = {_uri_origin(uri) for uri in registered} - {""}
    return is_registered_uri(origin, origins, native=True)


def _uri_origin(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else ""


def _strip_loopback_port(uri: str) -> str | None:
    """Return a loopback URI without its port; None for other URIs and invalid ports."""
    match = _LOOPBACK_REGEX.fullmatch(uri)
    return match[1] + match[3] if match and int(match[2] or 0) <= _MAX_PORT else None


CLI_CLIENT, PAGES_CLIENT, WEB_CLIENT = "store-cli", "store-pages", "store-web"
PERSONAL_TOKENS_CLIENT = "store-tokens"
"""The client of personal tokens' grants; no application can log in as it."""
CLI_REDIRECT_URIS = tuple(
    f"http://{host}{path}" for host in ("127.0.0.1", "[::1]") for path in ("", "/", "/callback")
)
"""On any port: the command-line client takes a free one."""
MAX_CLIENT_NAME = 100
MAX_REDIRECTS = 20

_CLIENT_ID_REGEX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def built_in_clients(settings: AuthSettings) -> Mapping[str, OAuthClient]:
    """Return the clients of the command line and of the web pages, and `store-web` if it is set."""
    pages_uris, web_uris = (settings.pages_redirect_uri,), settings.web_redirect_uris
    clients = [
        OAuthClient(CLI_CLIENT, "the store's command-line client", None, CLI_REDIRECT_URIS, True),
        OAuthClient(PAGES_CLIENT, "the store's web pages", None, pages_uris, True),
    ]
    if web_uris:
        clients.append(OAuthClient(WEB_CLIENT, "the store's web portal", None, web_uris, True))
    return {client.id: client for client in clients}


def find_client(tx: Tx, own: Mapping[str, OAuthClient], client_id: str) -> OAuthClient | None:
    """Find a client by id."""
    if client_id in own or not _CLIENT_ID_REGEX.fullmatch(client_id):
        return own.get(client_id)
    return oauth.find_client(tx, client_id)


def list_clients(tx: Tx, own: Mapping[str, OAuthClient]) -> list[OAuthClient]:
    """List all clients, own ones first."""
    return [*own.values(), *oauth.list_clients(tx)]


@dataclass(frozen=True, slots=True)
class NewOAuthClient:
    """A client that an operator adds."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    public: bool
    first_party: bool = False


def add_client(
    tx: Tx,
    new: NewOAuthClient,
    now_us: int,
    *,
    taken: Iterable[str] = (),
    by: AuditContext = AuditContext(OPERATOR, "add_client"),  # noqa: B008
) -> str | None:
    """Add a client; return its secret, or None if it is public.

    Invalid for bad members; ConflictError if the id exists or is in `taken`."""
    _check_client(new)
    secret = None if new.public else create_secret()
    digest = None if secret is None else hash_secret(secret)
    row = OAuthClient(
        new.id, new.name, digest, new.redirect_uris, new.first_party, created_us=now_us
    )
    # An ID token would pass as an access token if its client were named like an audience.
    reserved = {CLI_CLIENT, PAGES_CLIENT, WEB_CLIENT, PERSONAL_TOKENS_CLIENT, *taken}
    if new.id in reserved or not oauth.insert_client(tx, row):
        raise ConflictError(f"The id {new.id} is taken.")
    record_audit(
        tx,
        by,
        f"client/{new.id}",
        before=None,
        after=_audit_state(row),
    )
    return secret


def remove_client(
    tx: Tx,
    client_id: str,
    now_us: int,
    by: AuditContext = AuditContext(OPERATOR, "remove_client"),  # noqa: B008
) -> None:
    """Remove an added client, its grants and consents; NotFoundError if there is none."""
    row = oauth.find_client(tx, client_id)
    if row is None or not oauth.delete_client(tx, client_id):
        raise NotFoundError("No operator added a client of that id.")
    oauth.revoke_grants(tx, now_us, client=client_id)
    login.delete_session_consents(tx, client_id)
    record_audit(tx, by, f"client/{client_id}", before=_audit_state(row), after=None)


def _check_client(new: NewOAuthClient) -> None:
    if not _CLIENT_ID_REGEX.fullmatch(new.id):
        raise Invalid("A client's id is 1 to 64 letters, digits, dots, dashes and underscores.")
    if not 0 < len(new.name) <= MAX_CLIENT_NAME or not new.name.isprintable():
        raise Invalid(f"A client's name is 1 to {MAX_CLIENT_NAME} printable characters.")
    if len(new.redirect_uris) > MAX_REDIRECTS:
        raise Invalid(f"A client has at most {MAX_REDIRECTS} redirect URIs.")
    for uri in new.redirect_uris:
        check_redirect_uri(uri, native=new.public)


def _audit_state(row: OAuthClient) -> dict[str, object]:
    """Format for the audit log."""
    return {
        "name": row.name,
        "public": row.secret is None,
        "first_party": row.first_party,
        "redirect_uris": list(row.redirect_uris),
    }


def list_applications(catalog: Catalog, settings: AuthSettings) -> list[OAuthClient]:
    """List all applications, built-in ones first."""
    with catalog.read() as tx:
        return list_clients(tx, built_in_clients(settings))


def add_application(
    catalog: Catalog, settings: AuthSettings, new: NewOAuthClient, by: AuditContext, now: float
) -> str | None:
    """Add an application; return its secret, or None if it is public. Invalid, ConflictError."""
    with catalog.write() as tx:
        return add_client(tx, new, int(now * 1e6), taken=settings.audiences, by=by)


def remove_application(catalog: Catalog, client_id: str, by: AuditContext, now: float) -> None:
    """Remove an application and end all its tokens; NotFoundError if none was added."""
    with catalog.write() as tx:
        remove_client(tx, client_id, int(now * 1e6), by)
