"""Page tokens and page sizes."""

import base64

import pytest
from flask import Request
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder

from api.http.paging import Cursors, next_page_url
from storage.errors import Invalid

pytestmark = pytest.mark.spec("BUN-04", "CON-05")

CURSORS = Cursors(b"a key of this deployment")
SCOPE = ("get_bundles_all", "aws", "4c")
POINTER = CURSORS.seal(SCOPE, ["uuid", "version"])


def test_page_token_is_valid_after_restart() -> None:
    assert Cursors(b"a key of this deployment").open(SCOPE, POINTER) == ["uuid", "version"]


@pytest.mark.spec("FMT-07")
def test_the_format_of_pointers_does_not_change() -> None:
    assert POINTER == "AfMryj-9idqysLVLt5m9TyRbInV1aWQiLCJ2ZXJzaW9uIl0"


@pytest.mark.parametrize(
    "scope",
    [
        ("get_bundles_all", "gcp", "4c"),
        ("get_bundles_all", "aws", ""),
        ("post_search", "aws", "4c"),
    ],
)
def test_a_pointer_of_another_listing_is_illegal(scope) -> None:
    with pytest.raises(Invalid) as refused:
        CURSORS.open(scope, POINTER)
    assert refused.value.code == "illegal_token"


def test_a_pointer_of_another_key_is_illegal() -> None:
    with pytest.raises(Invalid):
        Cursors(b"another key").open(SCOPE, POINTER)


@pytest.mark.spec("ERR-07")
def test_no_single_changed_character_is_accepted() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
    for place in range(len(POINTER)):
        for letter in alphabet:
            changed = POINTER[:place] + letter + POINTER[place + 1 :]
            if changed != POINTER:
                with pytest.raises(Invalid):
                    CURSORS.open(SCOPE, changed)


@given(st.text(max_size=200))
def test_nonsense_is_illegal_and_never_breaks(text: str) -> None:
    with pytest.raises(Invalid):
        CURSORS.open(SCOPE, text)


def test_a_forged_payload_is_illegal() -> None:
    sealed = base64.urlsafe_b64decode(POINTER + "=" * (-len(POINTER) % 4))
    forged = base64.urlsafe_b64encode(sealed[:17] + b'["other","version"]').decode().rstrip("=")
    with pytest.raises(Invalid):
        CURSORS.open(SCOPE, forged)


@pytest.mark.spec("CON-03")
def test_the_next_url_repeats_every_parameter_and_replaces_the_pointer() -> None:
    environ = EnvironBuilder("/v1/bundles/all?replica=aws&x=%26y&search_after=old&per_page=2")
    url = next_page_url(
        Request(environ.get_environ()), "https://a.example", {"search_after": "new"}
    )
    assert url == (
        "https://a.example/v1/bundles/all?replica=aws&x=%26y&per_page=2&search_after=new"
    )


@pytest.mark.spec("OPS-43")
def test_a_token_of_the_former_key_is_accepted() -> None:
    later = Cursors(b"another key", (b"a key of this deployment",))
    assert later.open(SCOPE, POINTER) == ["uuid", "version"]
    assert Cursors(b"another key").open(SCOPE, later.seal(SCOPE, ["a"])) == ["a"]
