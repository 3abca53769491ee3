from dataclasses import replace

from api.authservice import create_auth_app
from auth.tokens.verifying import verifier
from config.settings import Settings
from storage.catalog import Catalog
from tests.api.authservice.openid.builders import BASE, Browser
from tests.auth.builders import Clock


def test_who_asks_for_tokens_too_often_waits(
    settings: Settings, catalog: Catalog, clock: Clock
) -> None:
    limited = replace(settings, token_rate_per_minute=60, token_rate_burst=3)
    accepted = verifier(limited, clock).verify
    app = create_auth_app(limited, catalog, verify=accepted, clock=clock)
    browser = Browser(app.test_client(use_cookies=False), catalog, clock)
    form = {"grant_type": "refresh_token", "client_id": "store-cli", "refresh_token": "x"}
    assert [browser.token(form).status_code for _ in range(4)] == [400, 400, 400, 429]
    refused = browser.token(form)
    assert (refused.json or {})["error"] == "temporarily_unavailable"
    assert int(refused.headers["Retry-After"]) >= 1
    # Keys are for everybody who verifies a token.
    assert browser.client.get("/.well-known/jwks.json", base_url=BASE).status_code == 200
    clock.now += 2
    assert browser.token(form).status_code == 400
