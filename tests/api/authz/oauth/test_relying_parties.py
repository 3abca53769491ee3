"""Third-party OpenID Connect clients against the service."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import OpenIDProviderMetadata
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from requests_oauthlib import OAuth2Session as OtherSession

from api.app import build_verifier
from api.authz import create_auth_app
from auth.login import sessions
from auth.oauth.clients import NewOAuthClient, add_client
from config import Settings
from storage.catalog import Catalog
from tests.api.authz.oauth.builders import ADA, LASTING
from tests.http_server import serving_late

pytestmark = pytest.mark.spec("OID-11")

URI = "http://127.0.0.1:43117/callback"


@dataclass(frozen=True)
class Service:
    """A running service, what it says of itself, and who is logged in at its browser."""

    settings: Settings
    catalog: Catalog
    found: dict[str, Any]
    http: httpx.Client

    def visit(self, url: str) -> str:
        """A person follows a link until it leads to the client, and allows what is asked."""
        response = self.http.get(url)
        while True:
            if response.status_code == 200:
                form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', response.text))
                response = self.http.post("/oauth/consent", data={**form, "decision": "allow"})
            location = urljoin(str(response.url), response.headers["Location"])
            if not location.startswith(self.found["issuer"]):
                return location
            response = self.http.get(location)


@pytest.fixture
def service(settings: Settings, catalog: Catalog) -> Iterator[Service]:
    with serving_late() as (base, put):
        own = replace(settings, auth_external_url=base)
        put(create_auth_app(own, catalog, verify=build_verifier(own, time.time).verify))
        with catalog.write() as tx:
            cookie, _ = sessions.create_session(
                tx, ADA, "local", now=time.time(), lifetimes=LASTING
            )
        with httpx.Client(base_url=base, cookies={"store-session": cookie}) as http:
            found = http.get("/.well-known/openid-configuration").json()
            yield Service(own, catalog, found, http)


@pytest.fixture
def portal(service: Service) -> str:
    new = NewOAuthClient("portal", "Portal", ("http://127.0.0.1:43117/callback",), public=False)
    with service.catalog.write() as tx:
        return add_client(tx, new, 1) or ""


def checked(service: Service, token: dict[str, Any], client_id: str, nonce: str) -> dict[str, Any]:
    """The id token, by Authlib's own rules."""
    keys = KeySet.import_key_set(service.http.get(service.found["jwks_uri"]).json())
    decoded = jwt.decode(token["id_token"], keys, algorithms=["RS256"])
    options = {
        "iss": {"essential": True, "value": service.found["issuer"]},
        "aud": {"essential": True, "value": client_id},
        "nonce": {"essential": True, "value": nonce},
        "auth_time": {"essential": True},
        "at_hash": {"essential": True},
    }
    params = {"access_token": token["access_token"], "nonce": nonce, "client_id": client_id}
    claims = CodeIDToken(decoded.claims, decoded.header, options, params)
    claims.validate()
    return dict(claims)


@pytest.mark.spec("OID-01")
def test_authlib_finds_the_discovery_document_valid(service: Service) -> None:
    metadata = OpenIDProviderMetadata(service.found)
    for name in metadata.REGISTRY_KEYS:
        # It wants https, which a port of this machine has not.
        if name in service.found and not str(service.found[name]).startswith("http://"):
            getattr(metadata, f"validate_{name}", lambda: None)()


def test_authlib_logs_in_with_pkce(service: Service, monkeypatch: Any) -> None:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    verifier_ = "v" * 50
    with OAuth2Session(
        "store-cli",
        redirect_uri=URI,
        scope="openid email groups",
        code_challenge_method="S256",
        token_endpoint_auth_method="none",
    ) as client:
        url, _ = client.create_authorization_url(
            service.found["authorization_endpoint"], nonce="n-0S6", code_verifier=verifier_
        )
        back = service.visit(url)
        token = client.fetch_token(
            service.found["token_endpoint"],
            authorization_response=back,
            code_verifier=verifier_,
        )
        claims = checked(service, token, "store-cli", "n-0S6")
        assert claims["email"] == ADA
        info = client.get(service.found["userinfo_endpoint"]).json()
        assert info["sub"] == claims["sub"]
        fresh = client.refresh_token(service.found["token_endpoint"])
        assert fresh["refresh_token"] != token["refresh_token"]
        assert client.get(service.found["userinfo_endpoint"]).status_code == 200
        client.revoke_token(service.found["revocation_endpoint"], token=fresh["refresh_token"])
        assert client.get(service.found["userinfo_endpoint"]).status_code == 401


@pytest.mark.parametrize("proof", ["client_secret_basic", "client_secret_post"])
def test_authlib_logs_in_with_secret_and_consent(
    service: Service, portal: str, proof: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    session = OAuth2Session(
        "portal", portal, redirect_uri=URI, scope="openid email", token_endpoint_auth_method=proof
    )
    with session:
        url, _ = session.create_authorization_url(
            service.found["authorization_endpoint"], nonce="another"
        )
        back = service.visit(url)
        token = session.fetch_token(service.found["token_endpoint"], authorization_response=back)
        assert checked(service, token, "portal", "another")["azp"] == "portal"
        with pytest.raises(JoseError):
            checked(service, token, "portal", "a nonce of another login")


def test_requests_oauthlib_logs_in(service: Service, portal: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    with OtherSession("store-cli", redirect_uri=URI, scope=["openid", "email"], pkce="S256") as one:
        url, _ = one.authorization_url(service.found["authorization_endpoint"])
        token = one.fetch_token(
            service.found["token_endpoint"],
            authorization_response=service.visit(url),
            include_client_id=True,
        )
        assert one.get(service.found["userinfo_endpoint"]).json()["email"] == ADA
        fresh = one.refresh_token(service.found["token_endpoint"], client_id="store-cli")
        assert fresh["refresh_token"] != token["refresh_token"]
    with OtherSession("portal", redirect_uri=URI, scope=["openid"]) as two:
        url, _ = two.authorization_url(service.found["authorization_endpoint"])
        back = service.visit(url)
        token = two.fetch_token(
            service.found["token_endpoint"], authorization_response=back, client_secret=portal
        )
        assert token["scope"] == ["openid"]


def test_store_verifier_accepts_token(service: Service, monkeypatch: Any) -> None:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with OAuth2Session(
        "store-cli", redirect_uri=URI, code_challenge_method="S256", scope="openid offline_access"
    ) as client:
        client.token_endpoint_auth_method = "none"
        url, _ = client.create_authorization_url(
            service.found["authorization_endpoint"], code_verifier="w" * 50
        )
        token = client.fetch_token(
            service.found["token_endpoint"],
            authorization_response=service.visit(url),
            code_verifier="w" * 50,
        )
    trusting = replace(
        service.settings, issuers={service.found["issuer"]: service.found["jwks_uri"]}
    )
    elsewhere = replace(trusting, auth_external_url="http://127.0.0.1:1")
    for settings in (service.settings, elsewhere):
        principal = build_verifier(settings, time.time).verify(token["access_token"])
        assert principal.email == ADA
    assert json.loads(json.dumps(token))["scope"] == "openid offline_access"
