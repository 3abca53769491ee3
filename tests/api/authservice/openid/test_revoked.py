"""An application that is logged out is out at the store, and at the service, from the next request
on."""

from dataclasses import replace

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api.app import create_app
from api.authservice import create_auth_app
from auth.tokens.grants import Grants
from auth.tokens.verifying import verifier
from config.settings import Settings
from storage.catalog import Catalog
from storage.stores import Stores
from tests.api.authservice.openid.builders import ADA, BASE, Browser
from tests.auth.builders import Clock
from tests.conftest import Outbox


@pytest.fixture
def both(
    settings: Settings, stores: Stores, catalog: Catalog, chains: Outbox, clock: Clock
) -> list[tuple[FlaskClient, str]]:
    """A store and a service on one catalog, each with something that wants a token."""
    verify = verifier(settings, clock, grants=Grants(catalog, clock)).verify
    reached = replace(settings, external_url="https://store.example")
    store = create_app(reached, stores, chains=chains, verify=verify).test_client()
    service = create_auth_app(settings, catalog, verify=verify, clock=clock).test_client()
    return [(store, "/v1/subscriptions?replica=aws"), (service, f"/v1/user/{ADA}")]


def asked(client: FlaskClient, path: str, token: str) -> TestResponse:
    return client.get(path, base_url=BASE, headers={"Authorization": f"Bearer {token}"})


def test_a_token_is_401_everywhere_as_soon_as_it_is_given_back(
    both: list[tuple[FlaskClient, str]], browser: Browser
) -> None:
    browser.log_in()
    tokens = browser.tokens()
    before = [asked(client, path, tokens["access_token"]).status_code for client, path in both]
    assert before == [200, 200]
    form = {"token": tokens["refresh_token"], "client_id": "store-cli"}
    assert browser.post("/oauth/revoke", form).status_code == 200
    for client, path in both:
        answer = asked(client, path, tokens["access_token"])
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert (answer.json or {})["code"] == "unauthorized"
        assert tokens["access_token"] not in answer.text
    assert asked(*both[1], browser.tokens()["access_token"]).status_code == before[1]
