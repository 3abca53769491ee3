"""Applications that ask people for grants: the store's own, and those that operators add.

A client with a secret is confidential; one without is public and a native application, or a page in
a browser, which can keep none.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auth.accounts.changing import By, record_audit
from auth.digests import digest, is_secret, new_secret
from auth.openid.redirects import check_redirect_uri, is_registered
from storage.catalog import clients as rows
from storage.catalog import grants, logins
from storage.catalog.audit import OPERATOR
from storage.catalog.engine import Tx
from storage.errors import Conflict, Invalid, NotFound

CLI, WEB = "store-cli", "store-web"
CLI_REDIRECTS = tuple(
    f"http://{host}{path}" for host in ("127.0.0.1", "[::1]") for path in ("", "/", "/callback")
)
"""On any port, which the command-line client takes as it finds one."""
MAX_NAME = 100
MAX_REDIRECTS = 20

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Client:
    """An application; `secret` is the digest of one."""

    id: str
    name: str
    secret: str | None
    redirect_uris: tuple[str, ...]
    first_party: bool

    @property
    def public(self) -> bool:
        """Whether it has no secret to prove itself with."""
        return self.secret is None

    def comes_back_to(self, uri: str) -> bool:
        """Whether answers may be brought to this address."""
        return is_registered(uri, self.redirect_uris, native=self.public)

    def proves(self, secret: str) -> bool:
        """Whether this is its secret."""
        return self.secret is not None and is_secret(secret, self.secret)


def built_in(web_redirect_uris: Iterable[str]) -> Mapping[str, Client]:
    """The store's own: its command-line client and, where its address is set, its web pages."""
    found = [Client(CLI, "the store's command-line client", None, CLI_REDIRECTS, True)]
    if uris := tuple(web_redirect_uris):
        found.append(Client(WEB, "the store's web pages", None, uris, True))
    return {client.id: client for client in found}


def find(tx: Tx, own: Mapping[str, Client], client_id: str) -> Client | None:
    """The client of that id."""
    if client_id in own or not _ID.fullmatch(client_id):
        return own.get(client_id)
    row = rows.find(tx, client_id)
    return None if row is None else _client(row)


def listing(tx: Tx, own: Mapping[str, Client]) -> list[Client]:
    """All of them, the store's own first."""
    return [*own.values(), *map(_client, rows.listing(tx))]


@dataclass(frozen=True, slots=True)
class NewClient:
    """A client that an operator adds."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    public: bool
    first_party: bool = False


def add(tx: Tx, new: NewClient, now_us: int, *, taken: Iterable[str] = ()) -> str | None:
    """Add it; its secret, which is nowhere else, or None of a public one. Invalid when it cannot be
    such a client, Conflict when its id, or one of `taken`, is."""
    _check(new)
    secret = None if new.public else new_secret()
    kept = None if secret is None else digest(secret)
    row = rows.ClientRow(
        new.id, new.name, kept, new.redirect_uris, new.first_party, created_us=now_us
    )
    # An id token is for a client: it would pass for an access token if an audience had its name.
    if new.id in {CLI, WEB, *taken} or not rows.add(tx, row):
        raise Conflict(f"The id {new.id} is taken.")
    record_audit(tx, By(OPERATOR, "add_client"), f"client/{new.id}", before=None, after=_said(row))
    return secret


def remove(tx: Tx, client_id: str, now_us: int) -> None:
    """Remove it with all that it was granted; NotFound when an operator added none such."""
    row = rows.find(tx, client_id)
    if row is None or not rows.remove(tx, client_id):
        raise NotFound("No operator added a client of that id.")
    grants.revoke_of(tx, now_us, client=client_id)
    logins.forget_session_consents(tx, client_id)
    by = By(OPERATOR, "remove_client")
    record_audit(tx, by, f"client/{client_id}", before=_said(row), after=None)


def _check(new: NewClient) -> None:
    if not _ID.fullmatch(new.id):
        raise Invalid("A client's id is 1 to 64 letters, digits, dots, dashes and underscores.")
    if not 0 < len(new.name) <= MAX_NAME or not new.name.isprintable():
        raise Invalid(f"A client's name is 1 to {MAX_NAME} printable characters.")
    if len(new.redirect_uris) > MAX_REDIRECTS:
        raise Invalid(f"A client has at most {MAX_REDIRECTS} redirect URIs.")
    for uri in new.redirect_uris:
        check_redirect_uri(uri, native=new.public)


def _said(row: rows.ClientRow) -> dict[str, object]:
    """What the audit log tells of it."""
    return {
        "name": row.name,
        "public": row.secret is None,
        "first_party": row.first_party,
        "redirect_uris": list(row.redirect_uris),
    }


def _client(row: rows.ClientRow) -> Client:
    return Client(row.id, row.name, row.secret, row.redirect_uris, row.first_party)
