"""The device authorization grant."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from auth.oauth import device
from auth.oauth.device import DEVICE_GRANT_TYPE
from auth.oauth.provider import OAuthError, OAuthProvider
from auth.oauth.tokens import exchange_tokens
from storage.errors import Forbidden
from tests.auth.builders import Clock
from tests.auth.oauth.builders import ADA, added, client_of, refresh, session
from tests.auth.oauth.conftest import Users

pytestmark = pytest.mark.spec("OID-10")


def begun(provider: OAuthProvider, **form: str) -> dict[str, Any]:
    return device.start_device_login(provider, client_of(provider), form)


def poll(provider: OAuthProvider, device: dict[str, Any], client_id: str = "store-cli") -> Any:
    form = {"grant_type": DEVICE_GRANT_TYPE, "device_code": device["device_code"]}
    try:
        return exchange_tokens(provider, client_of(provider, client_id), form)
    except OAuthError as error:
        return error.error


def enter(provider: OAuthProvider, code: str, *, allow: bool = True, email: str = ADA) -> bool:
    with provider.catalog.write() as tx:
        found = device.find_pending_device(tx, provider, code)
        if found is None:
            return False
        person = session(provider.clock(), email)
        return device.decide_device(tx, provider, found.id, person, allow=allow)


def test_a_device_waits_and_gets_its_tokens_once(provider: OAuthProvider, clock: Clock) -> None:
    device = begun(provider, scope="openid email")
    assert device["verification_uri"] == "https://auth.example/device"
    assert device["verification_uri_complete"].endswith(f"?user_code={device['user_code']}")
    assert (device["expires_in"], device["interval"]) == (600, 5)
    assert poll(provider, device) == "authorization_pending"
    assert enter(provider, device["user_code"])
    clock.now += 5
    tokens = poll(provider, device)
    assert tokens["scope"] == "openid email"
    assert refresh(provider, tokens["refresh_token"])
    assert poll(provider, device) == "invalid_grant"


@pytest.mark.parametrize("written", ["{}", " {} ", "{lower}", "{bare}", "{spaced}"])
def test_a_code_is_known_however_a_person_writes_it(provider: OAuthProvider, written: str) -> None:
    code = begun(provider)["user_code"]
    bare = code.replace("-", "")
    spaced = " ".join(bare)
    assert enter(provider, written.format(code, lower=code.lower(), bare=bare, spaced=spaced))


def test_user_codes_have_unambiguous_letters(provider: OAuthProvider) -> None:
    for _ in range(20):
        code = begun(provider)["user_code"]
        assert len(code) == 9
        assert not set(code) & set("AEIOUY0123456789")


def test_polling_too_fast_is_slow_down(provider: OAuthProvider, clock: Clock) -> None:
    device = begun(provider)
    assert poll(provider, device) == "authorization_pending"
    clock.now += 2
    assert poll(provider, device) == "slow_down"
    clock.now += 6
    # Ten seconds by now, and each time five more.
    assert poll(provider, device) == "slow_down"
    clock.now += 15
    assert poll(provider, device) == "authorization_pending"


def test_denied_device_gets_access_denied(provider: OAuthProvider) -> None:
    device = begun(provider)
    assert enter(provider, device["user_code"], allow=False)
    assert poll(provider, device) == "access_denied"
    assert poll(provider, device) == "invalid_grant"


def test_a_code_is_over_after_its_life(provider: OAuthProvider, clock: Clock) -> None:
    device = begun(provider)
    clock.now += 600
    assert not enter(provider, device["user_code"])
    assert poll(provider, device) == "expired_token"


def test_unfetched_approval_expires(provider: OAuthProvider, clock: Clock) -> None:
    device = begun(provider)
    assert enter(provider, device["user_code"])
    clock.now += 600
    assert poll(provider, device) == "expired_token"


def test_a_code_is_decided_once(provider: OAuthProvider) -> None:
    device = begun(provider)
    assert enter(provider, device["user_code"])
    assert not enter(provider, device["user_code"], allow=False)
    assert isinstance(poll(provider, device), dict)


def test_rejects_device_code_of_another_client(provider: OAuthProvider) -> None:
    added(provider, "other", public=True)
    device = begun(provider)
    enter(provider, device["user_code"])
    assert poll(provider, device, "other") == "invalid_grant"
    assert isinstance(poll(provider, device), dict)


def test_disabled_user_cannot_approve(provider: OAuthProvider, users: Users) -> None:
    device, other = begun(provider), begun(provider)
    assert enter(provider, device["user_code"])
    users.disable(ADA)
    assert poll(provider, device) == "invalid_grant"
    with pytest.raises(Forbidden):
        enter(provider, other["user_code"])
    assert poll(provider, other) == "authorization_pending"


def test_concurrent_polls_get_tokens_once(provider: OAuthProvider) -> None:
    device = begun(provider)
    enter(provider, device["user_code"])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: poll(provider, device), range(8)))
    assert len([each for each in found if isinstance(each, dict)]) == 1
    assert found.count("invalid_grant") == 7


def test_removed_client_has_no_pending_device(provider: OAuthProvider) -> None:
    with provider.catalog.write() as tx:
        assert device.find_pending_device(tx, provider, "BCDF-GHJK") is None
        assert device.find_pending_device(tx, provider, "\0é" * 100) is None
