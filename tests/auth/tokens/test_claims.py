import pytest

from auth.tokens.claims import judge
from storage.catalog.audit import OPERATOR
from storage.errors import Unauthorized
from storage.model import Principal
from tests.auth.builders import NOW, claims

LEEWAY_S = 30.0


def judged(**changed: object) -> Principal:
    return judge(claims(**changed), ["store", "other-store"], NOW, LEEWAY_S)


@pytest.mark.parametrize("audience", ["store", ["store"], ["x", "other-store"]])
def test_one_accepted_audience_is_enough(audience: object) -> None:
    assert judged(aud=audience).email == "ada@example.org"


@pytest.mark.parametrize(
    "audience", ["", "x", [], ["x"], "store x", ["store "], {"store": 1}, 1, None, [["store"]], [1]]
)
def test_another_audience_is_refused(audience: object) -> None:
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
def test_a_time_that_is_no_usable_number_is_refused(claim: str, value: object) -> None:
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


@pytest.mark.parametrize("given", [{"email": OPERATOR}, {"email": None, "sub": OPERATOR}])
def test_no_token_names_the_operator_of_the_audit_log(given: dict[str, str | None]) -> None:
    with pytest.raises(Unauthorized):
        judged(**given)
    assert judged(email=None, sub="operator").email != OPERATOR


def test_neither_email_nor_subject_is_refused() -> None:
    with pytest.raises(Unauthorized, match="sub"):
        judged(email=None, sub=None)


@pytest.mark.parametrize("word", [False, "false"])
def test_an_address_that_its_issuer_did_not_verify_names_nobody(word: object) -> None:
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
