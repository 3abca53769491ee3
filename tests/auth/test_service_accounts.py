"""Tokens signed by service accounts, verified against the catalog."""

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

import google.auth.jwt
import pytest
from google.auth.crypt import RSASigner
from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from auth import accounts as auth_accounts
from auth import service_accounts
from auth.accounts import AuditContext, NewAccount
from auth.service_accounts import (
    MAX_KEYS,
    ServiceAccounts,
    create_credentials,
    own_address_check,
    parse_public_key,
)
from auth.tokens.verification import KeyRing, TokenVerifier
from storage.catalog import Catalog, audit
from storage.catalog import accounts as catalog_accounts
from storage.catalog.accounts import AccountKey
from storage.catalog.sql import parse
from storage.errors import ConflictError, Invalid, NotFoundError, Unauthorized
from storage.model import Principal
from tests.auth.builders import AGES, ISSUER, NOW, Clock, Issuer, claims, segment, signed

pytestmark = pytest.mark.spec("SAC-01")

ROBOT = "robot@pipelines.example.org"
BY = AuditContext("operator", "test", "request-1")


def pem(key: RSAKey) -> str:
    return key.as_pem(private=False).decode()


def build_service_claims(**changed: Any) -> dict[str, Any]:
    """What the robot says of itself at NOW; None takes a claim away."""
    own = {"iss": ROBOT, "sub": ROBOT, "email": ROBOT}
    return claims(**{**own, **changed})


@pytest.fixture
def accounts(catalog: Catalog) -> ServiceAccounts:
    return ServiceAccounts(catalog, lifetime_s=3600)


@pytest.fixture
def verify(accounts: ServiceAccounts, clock: Clock, issuer: Issuer) -> TokenVerifier:
    """Trusts one issuer, and whoever is on the list."""
    return TokenVerifier(
        {ISSUER: KeyRing(issuer, clock, AGES)},
        audiences=["store"],
        algorithms=["RS256", "PS256", "ES256"],
        clock=clock,
        accounts=accounts,
    )


@pytest.fixture
def robot(catalog: Catalog, rsa: RSAKey) -> RSAKey:
    """A registered account's key."""
    allow(catalog, rsa)
    return rsa


def allow(catalog: Catalog, key: RSAKey, email: str = ROBOT, *, kid: str = "") -> str:
    registered = parse_public_key(pem(key), kid=kid)
    with catalog.write() as tx:
        service_accounts.add_account_key(tx, email, registered, by=BY)
    return registered.kid


def refused(verify: TokenVerifier, token: str) -> str:
    with pytest.raises(Unauthorized) as caught:
        verify.verify(token)
    return caught.value.detail


def test_an_account_on_the_list_signs_for_itself_and_has_no_group_that_it_claims(
    verify: TokenVerifier, robot: RSAKey
) -> None:
    token = signed(robot, build_service_claims(groups=["store_admin"]))
    assert verify.verify(token) == Principal(ROBOT, frozenset(), frozenset({"openid", "email"}))


def test_the_email_may_be_left_out(verify: TokenVerifier, robot: RSAKey) -> None:
    assert verify.verify(signed(robot, build_service_claims(email=None))).email == ROBOT


def test_verifies_other_issuers_as_before(verify: TokenVerifier, robot: RSAKey) -> None:
    assert verify.verify(signed(robot, claims())).groups == {"store_ingest"}


def test_google_auth_signs_with_our_credentials_file(
    catalog: Catalog, accounts: ServiceAccounts
) -> None:
    text, registered = create_credentials(
        ROBOT, audience="store", token_uri="https://auth.example/token"
    )
    with catalog.write() as tx:
        service_accounts.add_account_key(tx, ROBOT, registered, by=BY)
    loaded = google.auth.jwt.Credentials.from_service_account_info(  # type: ignore[no-untyped-call]
        json.loads(text), audience="store"
    )
    loaded.refresh(None)
    now = json.loads(base64.urlsafe_b64decode(loaded.token.split(b".")[1] + b"=="))["iat"]
    verify = TokenVerifier(
        {}, audiences=["store"], algorithms=["RS256"], clock=lambda: now, accounts=accounts
    )
    assert verify.verify(loaded.token.decode()).email == ROBOT


def test_account_may_have_several_keys(
    verify: TokenVerifier, catalog: Catalog, robot: RSAKey
) -> None:
    second = RSAKey.generate_key(2048)
    kid = allow(catalog, second, kid="machine-2")
    signer = RSASigner.from_string(second.as_pem(private=True), kid)  # type: ignore[no-untyped-call]
    token = google.auth.jwt.encode(signer, build_service_claims()).decode()  # type: ignore[no-untyped-call]
    assert verify.verify(token).email == ROBOT
    assert verify.verify(signed(robot, build_service_claims())).email == ROBOT


def test_rejects_removed_account_at_once(
    verify: TokenVerifier, catalog: Catalog, robot: RSAKey
) -> None:
    token = signed(robot, build_service_claims())
    assert verify.verify(token)
    with catalog.write() as tx:
        assert service_accounts.remove_account_keys(tx, ROBOT, None, by=BY) == [robot.kid]
    assert "issuer" in refused(verify, token)


def test_removing_one_key_keeps_others(
    verify: TokenVerifier, catalog: Catalog, robot: RSAKey
) -> None:
    second = RSAKey.generate_key(2048, auto_kid=True)
    allow(catalog, second)
    with catalog.write() as tx:
        service_accounts.remove_account_keys(tx, ROBOT, robot.kid, by=BY)
    assert refused(verify, signed(robot, build_service_claims()))
    assert verify.verify(signed(second, build_service_claims())).email == ROBOT


def test_disabled_account_is_rejected_until_enabled(
    verify: TokenVerifier, catalog: Catalog, robot: RSAKey
) -> None:
    token = signed(robot, build_service_claims())
    with catalog.write() as tx:
        tx.execute(
            parse(
                "INSERT INTO accounts (kind, id, status, created_us, changed_us)"
                " VALUES ('user', :id, 'disabled', 1, 1)"
            ),
            {"id": ROBOT},
        )
    assert refused(verify, token)
    with catalog.write() as tx:
        tx.execute(parse("UPDATE accounts SET status = 'enabled' WHERE id = :id"), {"id": ROBOT})
    assert verify.verify(token)


@pytest.mark.parametrize(
    "changed",
    [
        {"sub": "ada@example.org"},
        {"sub": None},
        {"sub": [ROBOT]},
        {"sub": ROBOT.upper()},
        {"email": "ada@example.org"},
        {"email": ROBOT.upper()},
        {"iss": "other@pipelines.example.org"},
        {"iss": ROBOT + " "},
        {"iss": "https://evil.example"},
        {"aud": "other"},
        {"aud": None},
        {"exp": None},
        {"exp": NOW - 31},
        {"exp": NOW + 3601},
        {"iat": None},
        {"iat": NOW - 1},
        {"iat": NOW + 31, "exp": NOW + 60},
        {"iat": NOW + 20, "exp": NOW + 10},
        {"exp": NOW + 10**9, "iat": NOW},
    ],
)
def test_claims_of_anything_else_are_refused(
    verify: TokenVerifier, robot: RSAKey, changed: Mapping[str, Any]
) -> None:
    assert verify.verify(signed(robot, build_service_claims()))
    assert refused(verify, signed(robot, build_service_claims(**changed)))


def test_no_account_signs_for_another(
    verify: TokenVerifier, catalog: Catalog, robot: RSAKey
) -> None:
    other = RSAKey.generate_key(2048, {"kid": str(robot.kid)})
    allow(catalog, other, "other@pipelines.example.org", kid=str(robot.kid))
    assert "signature" in refused(verify, signed(other, build_service_claims()))
    assert refused(verify, signed(other, build_service_claims(iss="other@pipelines.example.org")))


def test_no_issuer_speaks_for_an_account_by_its_key_and_no_account_for_an_issuer(
    verify: TokenVerifier, catalog: Catalog, curve: ECKey
) -> None:
    mine = RSAKey.generate_key(2048, auto_kid=True)
    allow(catalog, mine)
    assert refused(verify, signed(curve, build_service_claims()))
    assert refused(verify, signed(mine, claims()))


def test_rejects_public_key_as_hmac_secret(verify: TokenVerifier, robot: RSAKey) -> None:
    header = segment({"alg": "HS256", "kid": robot.kid})
    for secret in (pem(robot), pem(robot).strip(), json.dumps(robot.as_dict(private=False))):
        said = f"{header}.{segment(build_service_claims())}"
        made = hmac.digest(secret.encode(), said.encode(), "sha256")
        assert "algorithm" in refused(verify, f"{said}.{segment(made)}")


def test_rejects_other_algorithms(verify: TokenVerifier, robot: RSAKey) -> None:
    header = segment({"alg": "none", "kid": robot.kid})
    assert refused(verify, f"{header}.{segment(build_service_claims())}.{segment(b'x')}")
    signer = RSAKey.import_key(robot.as_dict(private=True))
    assert "algorithm" in refused(verify, signed_with(signer, "PS256"))


def signed_with(key: RSAKey, algorithm: str) -> str:
    registry = jws.JWSRegistry(algorithms=[algorithm])
    header = {"alg": algorithm, "kid": key.kid}
    return jws.serialize_compact(
        header, json.dumps(build_service_claims()).encode(), key, registry=registry
    )


def test_ignores_key_in_header(verify: TokenVerifier, robot: RSAKey) -> None:
    forger = RSAKey.generate_key(2048, {"kid": str(robot.kid)})
    for header in (
        {"jwk": forger.as_dict(private=False)},
        {"jku": "https://evil.example/keys"},
        {"x5u": "https://evil.example/chain"},
    ):
        assert refused(verify, signed(forger, build_service_claims(), **header))


def test_rejects_all_accounts_without_list(clock: Clock, rsa: RSAKey) -> None:
    verify = TokenVerifier({}, audiences=["store"], algorithms=["RS256"], clock=clock)
    assert "issuer" in refused(verify, signed(rsa, build_service_claims()))


def test_changes_are_audited_without_the_key(catalog: Catalog, robot: RSAKey) -> None:
    with catalog.write() as tx:
        service_accounts.remove_account_keys(tx, ROBOT, None, by=BY)
    with catalog.read() as tx:
        removed, added = audit.list_records(
            tx, audit.AuditFilter(who="operator"), before_id=None, limit=5
        )
    assert (added.target, added.before) == (f"service_account/{ROBOT}", None)
    assert json.loads(added.after or "") == {"kid": robot.kid} == json.loads(removed.before or "")
    assert removed.after is None
    assert added.request_id == "request-1"


def test_the_same_key_again_changes_nothing_and_another_of_its_name_is_refused(
    catalog: Catalog, robot: RSAKey
) -> None:
    allow(catalog, robot)
    with catalog.read() as tx:
        assert [each.kid for each in catalog_accounts.list_service_keys(tx)] == [robot.kid]
    with pytest.raises(ConflictError, match="another key"):
        allow(catalog, RSAKey.generate_key(2048), kid=str(robot.kid))


def test_an_account_has_a_few_keys_and_no_more(catalog: Catalog, rsa: RSAKey) -> None:
    for number in range(MAX_KEYS):
        allow(catalog, rsa, kid=f"key-{number}")
    with pytest.raises(ConflictError, match="already"):
        allow(catalog, rsa, kid="one-more")
    allow(catalog, rsa, "other@example.org", kid="one-more")


def test_removing_unknown_account_is_an_error(catalog: Catalog, robot: RSAKey) -> None:
    for email, kid in (("ada@example.org", None), (ROBOT, "other"), ("ada@example.org", robot.kid)):
        with pytest.raises(NotFoundError), catalog.write() as tx:
            service_accounts.remove_account_keys(tx, email, kid, by=BY)


@pytest.mark.parametrize(
    "email", ["", "robot", "a@b@c", "https://issuer.example", "x" * 129, "a@é"]
)
def test_an_account_is_named_by_an_address(catalog: Catalog, rsa: RSAKey, email: str) -> None:
    with pytest.raises(Invalid):
        allow(catalog, rsa, email)


def test_account_names_ignore_case(catalog: Catalog, verify: TokenVerifier, rsa: RSAKey) -> None:
    shouted = ROBOT.upper()
    allow(catalog, rsa, shouted)
    token = signed(rsa, build_service_claims(iss=shouted, sub=shouted, email=shouted))
    assert verify.verify(token).email == ROBOT
    auth_accounts.create_account(catalog, NewAccount(AccountKey("user", ROBOT)), BY)
    auth_accounts.set_account_status(catalog, ROBOT, "disabled", BY)
    assert "issuer" in refused(verify, token)
    with catalog.write() as tx:
        assert service_accounts.remove_account_keys(tx, ROBOT, None, by=BY)


@pytest.mark.parametrize(
    ("told", "hosts", "audience", "taken"),
    [
        ("https://store.example", (), "https://store.example", True),
        ("https://store.example", (), "https://STORE.example:443/", True),
        ("https://store.example/data", (), "https://store.example/data", True),
        ("https://store.example", (), "https://other.example", False),
        ("https://store.example", (), "http://store.example", False),
        ("https://store.example", (), "http://127.0.0.1:8000", False),
        ("https://store.example", ("other.example",), "https://other.example", False),
        ("", (), "http://127.0.0.1:8123", True),
        ("", (), "http://localhost:8000", True),
        ("", (), "https://store.example", False),
        ("", ("store.example",), "https://store.example:8443", True),
        ("", ("store.example:8443",), "https://store.example:8444", False),
        ("", (), "http://127.0.0.1:8000/elsewhere", False),
        ("", (), "http://user@127.0.0.1:8000", False),
        ("", (), "http://127.0.0.1:99999", False),
        ("", (), "http://127.0.0.1.example", False),
        ("", (), "127.0.0.1", False),
        ("", (), "store", True),
    ],
)
def test_audience_may_be_base_url_of_one_store(
    *,
    accounts: ServiceAccounts,
    clock: Clock,
    robot: RSAKey,
    told: str,
    hosts: tuple[str, ...],
    audience: str,
    taken: bool,
) -> None:
    verify = TokenVerifier(
        {},
        audiences=["store"],
        algorithms=["RS256"],
        clock=clock,
        accounts=accounts,
        is_own_address=own_address_check(told, hosts),
    )
    token = signed(robot, build_service_claims(aud=audience))
    if taken:
        assert verify.verify(token).email == ROBOT
    else:
        assert "audience" in refused(verify, token)


def test_base_url_audience_is_for_service_accounts_only(
    issuer: Issuer, clock: Clock, robot: RSAKey
) -> None:
    verify = TokenVerifier(
        {ISSUER: KeyRing(issuer, clock, AGES)},
        audiences=["store"],
        algorithms=["RS256"],
        clock=clock,
        is_own_address=lambda _: True,
    )
    assert "audience" in refused(verify, signed(robot, claims(aud="http://127.0.0.1:8000")))
