"""OAuth clients: registration, secrets and redirect URIs."""

import base64

import pytest

from auth.oauth import clients
from auth.oauth.clients import NewOAuthClient, check_redirect_uri
from auth.oauth.provider import OAuthError, OAuthProvider, authenticate_client
from auth.secret_values import is_matching_secret
from storage.catalog.oauth import OAuthClient
from storage.errors import ConflictError, Invalid, NotFoundError
from tests.auth.oauth.builders import added

pytestmark = pytest.mark.spec("OID-05")


def basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


def test_secret_is_shown_once_and_stored_as_digest(provider: OAuthProvider) -> None:
    secret = added(provider, "portal", "https://portal.example/back")
    with provider.catalog.read() as tx:
        found = provider.client(tx, "portal")
        listed = clients.list_clients(tx, provider.own_clients)
    assert found is not None
    assert is_matching_secret(secret, found.secret or "")
    assert not is_matching_secret(secret + "x", found.secret or "")
    assert secret not in repr(found)
    assert [client.id for client in listed] == ["store-cli", "store-pages", "store-web", "portal"]


def test_a_public_client_has_no_secret(provider: OAuthProvider) -> None:
    assert added(provider, "app", "com.example.app:/back", public=True) == ""


@pytest.mark.parametrize("client_id", ["portal", "store-cli", "store-web", "store"])
def test_rejects_duplicate_client_id(provider: OAuthProvider, client_id: str) -> None:
    added(provider, "portal", "https://portal.example/back")
    new = NewOAuthClient(client_id, "Another", (), public=True)
    with pytest.raises(ConflictError), provider.catalog.write() as tx:
        clients.add_client(tx, new, 1, taken=provider.settings.audiences)


def test_built_in_clients_cannot_be_removed(provider: OAuthProvider) -> None:
    for client_id in ("store-cli", "absent"):
        with pytest.raises(NotFoundError), provider.catalog.write() as tx:
            clients.remove_client(tx, client_id, 1)


@pytest.mark.parametrize(
    "new",
    [
        NewOAuthClient("", "Name", (), public=True),
        NewOAuthClient("a b", "Name", (), public=True),
        NewOAuthClient("a\n", "Name", (), public=True),
        NewOAuthClient("a", "", (), public=True),
        NewOAuthClient("a", "Na\nme", (), public=True),
        NewOAuthClient("a", "Name", ("https://a.example/",) * 21, public=True),
    ],
)
def test_rejects_invalid_clients(provider: OAuthProvider, new: NewOAuthClient) -> None:
    with pytest.raises(Invalid), provider.catalog.write() as tx:
        clients.add_client(tx, new, 1)


@pytest.mark.parametrize(
    ("uri", "native"),
    [
        ("https://portal.example/back", False),
        ("https://portal.example:8443/back?tenant=1", False),
        ("http://127.0.0.1/back", False),
        ("http://[::1]:8080", True),
        ("com.example.app:/back", True),
    ],
)
def test_addresses_that_may_be_registered(uri: str, native: bool) -> None:
    check_redirect_uri(uri, native=native)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://portal.example/back",
        "http://localhost/back",
        "http://127.0.0.1.evil.example/",
        "http://127.0.0.1@evil.example/",
        "https://user@portal.example/",
        "https://portal.example/#part",
        "https://portal.example/\\evil",
        "https://portal.example/é",
        "https:///back",
        "https://[bad/",
        "https://portal.example:65536/back",
        "http://127.0.0.1:65536/back",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "myapp:/back",
        "com.example.app://evil.example/",
        "https://a.example/" + "a" * 1024,
    ],
)
def test_addresses_that_may_not(uri: str, native: bool) -> None:
    with pytest.raises(Invalid):
        check_redirect_uri(uri, native=native)


def test_a_private_scheme_is_for_native_clients() -> None:
    with pytest.raises(Invalid):
        check_redirect_uri("com.example.app:/back", native=False)


def found(provider: OAuthProvider, header: str | None, **form: str) -> OAuthClient:
    return authenticate_client(provider, header, form)


def test_a_client_proves_itself_by_either_way(provider: OAuthProvider) -> None:
    secret = added(provider, "portal", "https://portal.example/back")
    assert found(provider, basic("portal", secret)).id == "portal"
    assert found(provider, basic("portal", secret), client_id="portal").id == "portal"
    assert found(provider, None, client_id="portal", client_secret=secret).id == "portal"
    assert found(provider, None, client_id="store-cli").id == "store-cli"
    # What an HTTP library makes of a client without a secret.
    assert found(provider, basic("store-cli", "")).id == "store-cli"


def test_parts_of_basic_are_form_encoded(provider: OAuthProvider) -> None:
    secret = added(provider, "por.tal", "https://portal.example/back")
    encoded = secret.replace("-", "%2D").replace("_", "%5f")
    assert found(provider, basic("por%2Etal", encoded)).id == "por.tal"


@pytest.mark.parametrize(
    ("header", "form"),
    [
        (None, {}),
        (None, {"client_id": "absent"}),
        (None, {"client_id": "portal"}),
        (None, {"client_id": "portal", "client_secret": "wrong"}),
        (None, {"client_id": "portal", "client_secret": "wrong\ud800"}),
        (None, {"client_id": "store-cli", "client_secret": "any"}),
        (basic("portal", "wrong"), {}),
        (basic("portal", ""), {}),
        (basic("absent", "any"), {}),
        (basic("store-cli", "any"), {}),
        ("Bearer abc", {"client_id": "store-cli"}),
        ("Basic", {"client_id": "store-cli"}),
        ("Basic !!!", {}),
        ("Basic " + base64.b64encode(b"portal").decode(), {}),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), {}),
        ("Basic " + "A" * 5000, {}),
    ],
)
def test_rejects_client_without_proof(
    provider: OAuthProvider, header: str | None, form: dict[str, str]
) -> None:
    added(provider, "portal", "https://portal.example/back")
    with pytest.raises(OAuthError) as caught:
        authenticate_client(provider, header, form)
    assert (caught.value.error, caught.value.status) == ("invalid_client", 401)
    assert "wrong" not in str(caught.value)


def test_rejects_two_proofs(provider: OAuthProvider) -> None:
    secret = added(provider, "portal", "https://portal.example/back")
    for form in ({"client_secret": secret}, {"client_id": "store-cli"}):
        with pytest.raises(OAuthError) as caught:
            authenticate_client(provider, basic("portal", secret), form)
        assert caught.value.error == "invalid_request"
