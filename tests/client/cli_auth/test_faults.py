"""`store whoami` through a network that cuts, resets, refuses and flips bits."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import httpx
import pytest

from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import SigningKeyFile
from store_client.auth.tokens import open_tokens
from store_client.client import Client
from store_client.configuration import URL, Configuration
from store_client.http import HttpSession
from tests.client.auth.auth_service import ADA, World
from tests.client.cli.people import Typist
from tests.client.nouns.test_faults import HARMS, OF_THE_STORE, POLICY, check_output, run
from tests.drill.fault_proxy import Mode, Proxy, before

pytestmark = pytest.mark.spec("CLI-155")

ENDS = {0, 4, 7, 8}
"""Exit codes: also 4, if the answer that was harmed is the one about the login."""


@dataclass
class Network(httpx.BaseTransport):
    """Refuses connections to URLs with that end."""

    closed: str = ""
    through: httpx.BaseTransport = field(default_factory=httpx.HTTPTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.closed and request.url.path.endswith(self.closed):
            raise httpx.ConnectError("refused", request=request)
        return self.through.handle_request(request)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def proxy(world: World) -> Iterator[Proxy]:
    where = urlsplit(world.url)
    with before(str(where.hostname), int(where.port or 0), Random(3)) as found:
        yield found


@pytest.fixture
def user(world: World, proxy: Proxy, network: Network, tmp_path: Path) -> Typist:
    """A user who has logged in."""

    def make(config: Configuration) -> Client:
        tokens = open_tokens(config)
        session = HttpSession(
            config.url, policy=POLICY, tokens=tokens, transport=network, sleep=lambda _: None
        )
        return Client(config=config, session=session)

    token = issue_token(
        SigningKeyFile(world.settings.home, world.settings.secret_key).read(),
        TokenSpec(ADA, ("store_ingest",), 3600),
        issuer=world.auth_url,
        audience=["store"],
        now=time.time(),
        token_id="1",
    )
    user = Typist(tmp_path / "user", make, {URL: f"http://127.0.0.1:{proxy.port}"})
    done = user.types("login", "--access-token", "-", given=token)
    assert done.exit_code == 0, done.stderr
    return user


def test_whoami_is_right_or_says_that_it_was_not_checked(user: Typist, proxy: Proxy) -> None:
    expected = user.reads("whoami")
    assert (expected["email"], expected["checked"]) == (ADA, True)
    assert expected["permissions"]
    for mode in HARMS:
        proxy.mode = mode
        done = run(user, ["whoami", "--json"])
        check_output(done)
        if mode is Mode.FLIP:
            assert done.exit_code in ENDS | OF_THE_STORE
            continue
        assert done.exit_code in ENDS, f"{mode}: {done.exit_code}\n{done.stderr}"
        if done.exit_code == 0:
            # By the clock of the store, whose header Date has whole seconds.
            seen = json.loads(done.stdout)
            expires = [datetime.fromisoformat(one["expires"][:19]) for one in (seen, expected)]
            assert abs(expires[0] - expires[1]) <= timedelta(seconds=2)
            assert {**seen, "expires": expected["expires"]} == expected
        elif done.stdout:
            assert json.loads(done.stdout)["checked"] is False


def test_roles_that_cannot_be_asked_for_are_not_none(user: Typist, network: Network) -> None:
    network.closed = "/account"
    done = run(user, ["whoami"])
    check_output(done)
    assert (done.exit_code, done.stdout) == (7, "")
