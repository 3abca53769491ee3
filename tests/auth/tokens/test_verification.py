"""Token verification: signatures, claims, issuers and audiences."""

import hmac
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, RSAKey

from api.app import build_verifier
from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import SigningKeys, read_signing_keys, rotate_key_file
from auth.tokens.verification import TokenVerifier, check_claims, parse_bearer
from config import Settings
from storage.catalog.audit import OPERATOR
from storage.errors import Invalid, Unauthorized
from storage.model import Principal
from tests.auth.builders import (
    AGES,
    ISSUER,
    NOW,
    Clock,
    Issuer,
    claims,
    segment,
    signed,
    verifier_of,
)
from tests.property_depth import examples

pytestmark = pytest.mark.spec("WHO-02")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ADA = Principal("ada@example.org", frozenset({"store_ingest"}), frozenset({"openid", "email"}))

fuzz = settings(
    max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def refused(verifier: TokenVerifier, token: str) -> str:
    """Why the token is refused; the reason repeats nothing of it."""
    with pytest.raises(Unauthorized) as caught:
        verifier.verify(token)
    assert not token or token not in caught.value.detail
    return caught.value.detail


def test_a_token_of_either_key_type_names_its_bearer(
    verifier: TokenVerifier, rsa: RSAKey, curve: ECKey
) -> None:
    assert verifier.verify(signed(rsa, claims())) == ADA
    assert verifier.verify(signed(curve, claims())) == ADA


def test_a_forged_signature_is_refused(verifier: TokenVerifier, curve: ECKey) -> None:
    forger = ECKey.generate_key("P-256", {"kid": str(curve.kid)})
    assert "signature" in refused(verifier, signed(forger, claims()))


def test_a_changed_claim_breaks_the_signature(verifier: TokenVerifier, curve: ECKey) -> None:
    header, _, signature = signed(curve, claims()).split(".")
    changed = segment(claims(groups=["store_admin"]))
    assert "signature" in refused(verifier, f"{header}.{changed}.{signature}")


def test_algorithm_none_is_refused_in_every_spelling(verifier: TokenVerifier, curve: ECKey) -> None:
    for name in ("none", "None", "NONE", "nOnE"):
        header = segment({"alg": name, "kid": curve.kid})
        assert refused(verifier, f"{header}.{segment(claims())}.{segment(b'x')}")
        assert refused(verifier, f"{header}.{segment(claims())}.")


def test_rejects_public_key_as_hmac_secret(verifier: TokenVerifier, rsa: RSAKey) -> None:
    formats = serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1
    pems = [rsa.public_key.public_bytes(serialization.Encoding.PEM, form) for form in formats]
    for password in (*pems, str(rsa.as_dict()["n"]).encode()):
        signed_part = f"{segment({'alg': 'HS256', 'kid': rsa.kid})}.{segment(claims())}"
        mac = hmac.new(password, signed_part.encode(), "sha256").digest()
        assert "algorithm" in refused(verifier, f"{signed_part}.{segment(mac)}")


def test_settings_cannot_allow_what_is_not_a_public_key_signature(
    issuer: Issuer, clock: Clock
) -> None:
    for algorithms in (["HS256"], ["none"], ["RS256", "HS256"], [], ["RS1"]):
        with pytest.raises(Invalid, match="STORE_TOKEN_ALGORITHMS"):
            verifier_of(issuer, clock, algorithms=algorithms)


def test_an_algorithm_that_is_not_listed_is_refused(
    issuer: Issuer, clock: Clock, rsa: RSAKey
) -> None:
    only_curves = verifier_of(issuer, clock, algorithms=["ES256"])
    assert "algorithm" in refused(only_curves, signed(rsa, claims()))


def test_a_key_verifies_only_the_algorithm_it_is_published_for(
    verifier: TokenVerifier, rsa: RSAKey, curve: ECKey
) -> None:
    token = signed(curve, claims(), kid=rsa.kid)
    assert "signature" in refused(verifier, token)


def test_verifies_only_with_keys_of_tokens_issuer(
    clock: Clock, issuer: Issuer, curve: ECKey
) -> None:
    assert "issuer" in refused(
        verifier_of(issuer, clock), signed(curve, claims(iss="https://other.example"))
    )
    assert "issuer" in refused(verifier_of(issuer, clock), signed(curve, claims(iss=ISSUER + "/")))
    assert refused(verifier_of(issuer, clock), signed(curve, claims(iss=None)))


def test_a_key_id_is_required(verifier: TokenVerifier, curve: ECKey) -> None:
    assert "kid" in refused(verifier, signed(curve, claims(), kid=None))


@pytest.mark.spec("WHO-07")
@pytest.mark.parametrize("member", ["jku", "x5u"])
def test_never_fetches_url_of_header(
    member: str, verifier: TokenVerifier, issuer: Issuer, curve: ECKey
) -> None:
    forger = ECKey.generate_key("P-256", auto_kid=True)
    address = "http://127.0.0.1:9/keys"
    assert refused(verifier, signed(forger, claims(), **{member: address}))
    assert verifier.verify(signed(curve, claims(), **{member: address})) == ADA
    assert issuer.asked == 1


def test_a_key_in_the_header_is_not_believed(verifier: TokenVerifier, curve: ECKey) -> None:
    forger = ECKey.generate_key("P-256", auto_kid=True)
    assert refused(verifier, signed(forger, claims(), jwk=forger.as_dict(private=False)))
    own = signed(forger, claims(), jwk=forger.as_dict(private=False), kid=curve.kid)
    assert "signature" in refused(verifier, own)


def test_extensions_that_must_be_understood_are_refused(
    verifier: TokenVerifier, curve: ECKey
) -> None:
    header = segment({"alg": "ES256", "kid": curve.kid, "crit": ["exp"], "exp": NOW})
    assert "extension" in refused(verifier, f"{header}.{segment(claims())}.{segment(b'x')}")
    header = segment({"alg": "ES256", "kid": curve.kid, "b64": False})
    assert "extension" in refused(verifier, f"{header}.{segment(claims())}.{segment(b'x')}")


def test_a_certificate_chain_in_the_header_does_no_harm(
    verifier: TokenVerifier, curve: ECKey
) -> None:
    assert verifier.verify(signed(curve, claims(), x5c=["A" * 3000])) == ADA


def test_a_huge_token_is_refused_before_it_is_read(
    verifier: TokenVerifier, issuer: Issuer, curve: ECKey
) -> None:
    token = signed(curve, claims(padding="x" * 20_000))
    assert "large" in refused(verifier, token)
    assert issuer.asked == 0


def test_rejects_invalid_json_anywhere(verifier: TokenVerifier, curve: ECKey) -> None:
    for number in (float("nan"), float("inf"), float("-inf")):
        assert refused(verifier, signed(curve, claims(note=number)))


def test_the_largest_group_list_that_fits_is_read(verifier: TokenVerifier, curve: ECKey) -> None:
    groups = [f"group-{number:04}" for number in range(700)]
    assert verifier.verify(signed(curve, claims(groups=groups))).groups == frozenset(groups)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 6000,
        b'{"a":' * 2000,
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"exp": NaN}',
        b'{"exp": ' + b"9" * 5000 + b"}",
        b"",
    ],
)
def test_rejects_body_that_is_no_object(body: bytes, verifier: TokenVerifier, curve: ECKey) -> None:
    assert refused(verifier, signed(curve, body))


@fuzz
@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True))
def test_garbage_is_unauthorized_and_nothing_else(verifier: TokenVerifier, token: str) -> None:
    with pytest.raises(Unauthorized):
        verifier.verify(token)


@fuzz
@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "cty", "jku", "x5c", "x5t", "jwk", "crit", "b64"]),
        JSON,
    )
)
def test_any_header_is_unauthorized_and_nothing_else(
    verifier: TokenVerifier, curve: ECKey, header: dict[str, object]
) -> None:
    for members in (header, {"alg": "ES256", "kid": curve.kid, **header}):
        with pytest.raises(Unauthorized):
            verifier.verify(f"{segment(members)}.{segment(claims())}.{segment(b'0' * 64)}")


@fuzz
@given(st.dictionaries(st.sampled_from([*claims(), "nbf", "email_verified"]), JSON))
def test_signed_claims_give_principal_or_unauthorized(
    verifier: TokenVerifier, curve: ECKey, changed: dict[str, object]
) -> None:
    body = {**claims(), **changed}
    try:
        principal = verifier.verify(signed(curve, body))
    except Unauthorized:
        return
    assert principal.email.isprintable()
    assert all(group.isprintable() for group in principal.groups)


@fuzz
@given(st.data())
def test_a_token_with_any_character_changed_is_refused(
    verifier: TokenVerifier, rsa: RSAKey, data: st.DataObject
) -> None:
    token = signed(rsa, claims())
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCDwxyz0189-_.=+/ é"))
    if other != token[at]:
        with pytest.raises(Unauthorized):
            verifier.verify(token[:at] + other + token[at + 1 :])


@pytest.mark.spec("WHO-01")
def test_reads_bearer_token_from_header() -> None:
    assert parse_bearer(None) is None
    assert parse_bearer("Bearer abc") == "abc"
    assert parse_bearer("bearer   abc ") == "abc"


@pytest.mark.spec("WHO-01")
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "abc", "Bearerabc"])
def test_rejects_other_authorization_headers(header: str) -> None:
    with pytest.raises(Unauthorized):
        parse_bearer(header)


def own_token(keys: SigningKeys, settings: Settings) -> str:
    grant = TokenSpec("ada@example.org", ("store_ingest",), 3600, ("openid", "email"))
    return issue_token(
        keys, grant, issuer=settings.auth_url, audience=settings.audiences, now=NOW, token_id="1"
    )


def never(url: str) -> dict[str, object]:
    raise AssertionError(f"{url} was asked")


def test_our_own_tokens_are_verified_from_the_key_file(tmp_path: Path, clock: Clock) -> None:
    settings = Settings(home=tmp_path)
    verifier = build_verifier(settings, clock, never)
    assert verifier.verify(own_token(read_signing_keys(tmp_path), settings)) == ADA


def test_rotation_is_noticed_and_old_tokens_stay_valid(tmp_path: Path, clock: Clock) -> None:
    settings = Settings(home=tmp_path)
    verifier = build_verifier(settings, clock, never)
    old = own_token(read_signing_keys(tmp_path), settings)
    assert verifier.verify(old) == ADA
    new = own_token(rotate_key_file(tmp_path, "ES256", now=0, life_s=60), settings)
    clock.now += 2
    assert verifier.verify(new) == ADA
    assert verifier.verify(old) == ADA


def test_fetches_keys_of_configured_issuers_at_their_url(
    tmp_path: Path, clock: Clock, issuer: Issuer, curve: ECKey
) -> None:
    address = "https://issuer.example/keys"
    asked = []

    def fetch(url: str) -> object:
        asked.append(url)
        return issuer()

    settings = Settings(home=tmp_path, issuers={ISSUER: address})
    verifier = build_verifier(settings, clock, fetch)  # type: ignore[arg-type]
    assert verifier.verify(signed(curve, claims())) == ADA
    assert asked == [address]
    assert "issuer" in refused(verifier, own_token(read_signing_keys(tmp_path), settings))


def test_accepts_own_issuer_beside_others(tmp_path: Path, clock: Clock) -> None:
    own = Settings().auth_url
    settings = Settings(home=tmp_path, issuers={own: "", ISSUER: "https://issuer.example/keys"})
    verifier = build_verifier(settings, clock, never)
    assert verifier.verify(own_token(read_signing_keys(tmp_path), settings)) == ADA


@pytest.mark.parametrize("address", ["", "keys.json", "file:///etc/passwd", "//issuer.example"])
def test_an_issuer_without_an_address_of_keys_stops_the_start(
    address: str, tmp_path: Path, clock: Clock
) -> None:
    with pytest.raises(Invalid, match="STORE_ISSUERS"):
        build_verifier(Settings(home=tmp_path, issuers={ISSUER: address}), clock, never)


def test_issued_token_expires_with_its_lifetime(tmp_path: Path, clock: Clock) -> None:
    settings = Settings(home=tmp_path)
    verifier = build_verifier(settings, clock, never)
    token = own_token(read_signing_keys(tmp_path), settings)
    clock.now = NOW + 3600 + 29
    assert verifier.verify(token) == ADA
    clock.now = NOW + 3600 + 31
    assert "expired" in refused(verifier, token)


def test_verifying_is_cheap_once_the_keys_are_known(
    verifier: TokenVerifier, issuer: Issuer, rsa: RSAKey
) -> None:
    token = signed(rsa, claims())
    verifier.verify(token)
    start = time.thread_time()
    for _ in range(100):
        verifier.verify(token)
    assert time.thread_time() - start < 2
    assert issuer.asked == 1


@pytest.mark.spec("ACC-12")
def test_groups_of_our_own_service_count_only_if_an_operator_chose_them(
    curve: ECKey, issuer: Issuer, clock: Clock
) -> None:
    ours = verifier_of(issuer, clock, own=ISSUER)
    named = {"email": "ada@example.org", "groups": ["store_admin"]}
    assert ours.verify(signed(curve, claims(**named))).groups == frozenset()
    for wrong in ("operators", "", ["operator"], True):
        assert ours.verify(signed(curve, claims(**named, groups_by=wrong))).groups == frozenset()
    chosen = ours.verify(signed(curve, claims(**named, groups_by="operator")))
    assert chosen.groups == {"store_admin"}


@pytest.mark.spec("ACC-12")
def test_groups_of_a_foreign_issuer_count(curve: ECKey, issuer: Issuer, clock: Clock) -> None:
    theirs = verifier_of(issuer, clock, own="https://ours.example")
    assert theirs.verify(signed(curve, claims(groups=["team"]))).groups == {"team"}


@pytest.mark.spec("ACC-19")
def test_e_mail_addresses_ignore_case(verifier: TokenVerifier, curve: ECKey) -> None:
    assert verifier.verify(signed(curve, claims(email="Ada@Example.ORG"))) == ADA
    # Only of ASCII: the Kelvin sign is not somebody else's k. What is no address stays as it is.
    kelvin = verifier.verify(signed(curve, claims(email="\u212aim@example.org")))
    assert kelvin.email == "\u212aim@example.org"
    opaque = verifier.verify(signed(curve, claims(email=None, sub="auth0|AbC")))
    assert opaque.email == "auth0|AbC"


@pytest.mark.parametrize("said", [False, "false", "False", "no", 0, [], {}])
def test_an_address_is_believed_only_if_nothing_speaks_against_it(
    verifier: TokenVerifier, curve: ECKey, said: object
) -> None:
    token = signed(curve, {**claims(), "email_verified": said})
    assert "verified" in refused(verifier, token)


@pytest.mark.spec("OPS-21")
def test_leaked_key_ends_in_running_processes(tmp_path: Path, clock: Clock) -> None:
    settings = Settings(home=tmp_path)
    running = build_verifier(settings, clock)
    token = issue_token(
        read_signing_keys(tmp_path),
        TokenSpec("ada@example.org", (), 3600),
        issuer=settings.auth_url,
        audience=settings.audiences,
        now=NOW,
        token_id="1",
    )
    assert running.verify(token).email == "ada@example.org"
    rotate_key_file(tmp_path, now=NOW, life_s=60, drop=True)
    clock.now += 1
    with pytest.raises(Unauthorized):
        running.verify(token)


def test_a_token_that_was_verified_before_expires(
    curve: ECKey, issuer: Issuer, clock: Clock
) -> None:
    verifier = verifier_of(issuer, clock)
    token = signed(curve, claims(exp=NOW + 60))
    assert [verifier.verify(token), verifier.verify(token)] == [ADA, ADA]
    clock.now += 60 + LEEWAY_S
    assert "expired" in refused(verifier, token)


def test_a_token_is_verified_again_by_a_key_that_took_the_place_of_its_own(
    curve: ECKey, issuer: Issuer, clock: Clock
) -> None:
    verifier = verifier_of(issuer, clock)
    token = signed(curve, claims(exp=NOW + 2 * AGES.refresh_s))
    assert [verifier.verify(token), verifier.verify(token)] == [ADA, ADA]
    issuer.keys = SigningKeys((ECKey.generate_key("P-256", {"kid": str(curve.kid)}),))
    clock.now += AGES.refresh_s
    assert "signature" in refused(verifier, token)


LEEWAY_S = 30.0


def judged(**changed: object) -> Principal:
    return check_claims(claims(**changed), ["store", "other-store"], NOW, LEEWAY_S)


@pytest.mark.parametrize("audience", ["store", ["store"], ["x", "other-store"]])
def test_accepts_any_listed_audience(audience: object) -> None:
    assert judged(aud=audience).email == "ada@example.org"


@pytest.mark.parametrize(
    "audience", ["", "x", [], ["x"], "store x", ["store "], {"store": 1}, 1, None, [["store"]], [1]]
)
def test_rejects_other_audience(audience: object) -> None:
    with pytest.raises(Unauthorized, match=r"audience|aud"):
        judged(aud=audience)


def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    assert judged(exp=NOW - 29)
    assert judged(nbf=NOW + 29, iat=NOW + 29)
    for late in ({"exp": NOW - 30}, {"nbf": NOW + 31}, {"iat": NOW + 31}):
        with pytest.raises(Unauthorized, match=r"expired|not valid yet"):
            judged(**late)


def test_a_token_without_an_end_is_refused() -> None:
    with pytest.raises(Unauthorized, match="no expiry"):
        judged(exp=None)


def test_iat_and_nbf_may_be_absent() -> None:
    assert judged(iat=None, nbf=None)


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["1", True, [], {}, float("inf"), float("nan"), -1, 10**400, "x"])
def test_rejects_invalid_times(claim: str, value: object) -> None:
    with pytest.raises(Unauthorized, match=claim):
        judged(**{claim: value})


def test_without_an_email_the_subject_is_the_identity() -> None:
    assert judged(email=None).email == "subject"


@pytest.mark.parametrize(
    "email",
    [
        "",
        " ",
        "a b@example.org",
        "a\n@example.org",
        "a\ud800@example.org",
        "a\u202e@example.org",
        "x" * 255,
        1,
        ["a"],
        {},
    ],
)
def test_an_email_that_cannot_be_an_identity_is_refused(email: object) -> None:
    with pytest.raises(Unauthorized, match="email"):
        judged(email=email)


@pytest.mark.spec("ACC-16")
@pytest.mark.parametrize("given", [{"email": OPERATOR}, {"email": None, "sub": OPERATOR}])
def test_no_token_names_the_operator_of_the_audit_log(given: dict[str, str | None]) -> None:
    with pytest.raises(Unauthorized):
        judged(**given)
    assert judged(email=None, sub="operator").email != OPERATOR


def test_neither_email_nor_subject_is_refused() -> None:
    with pytest.raises(Unauthorized, match="sub"):
        judged(email=None, sub=None)


@pytest.mark.parametrize("word", [False, "false"])
def test_rejects_unverified_address(word: object) -> None:
    with pytest.raises(Unauthorized, match="not verified"):
        judged(email_verified=word)
    assert judged(email_verified=True)


def test_groups_are_a_list_or_absent() -> None:
    assert judged(groups=None).groups == frozenset()
    assert judged(groups=["a", "b", "a"]).groups == {"a", "b"}


@pytest.mark.parametrize(
    "groups", ["store_admin", [1], [None], [["a"]], {"store_admin": 1}, 5, [""], ["a\x00"]]
)
def test_groups_of_another_shape_are_refused(groups: object) -> None:
    with pytest.raises(Unauthorized, match="groups"):
        judged(groups=groups)


def test_scope_is_a_string_or_a_list() -> None:
    assert judged(scope="a b").scopes == {"a", "b"}
    assert judged(scope=["a", "b"]).scopes == {"a", "b"}
    assert judged(scope="").scopes == frozenset()
    assert judged(scope=None).scopes == frozenset()
