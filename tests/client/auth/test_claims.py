"""What is read of a token without believing it."""

import base64
import json
from typing import Any

import pytest

from store_client.auth.claims import (
    TokenStatus,
    claims_expiry,
    claims_identity,
    format_moment,
    make_printable,
    parse_seconds,
    read_claims,
    token_status,
)


def token(said: Any) -> str:
    raw = said if isinstance(said, bytes) else json.dumps(said).encode()
    return f"e30.{base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}.c2ln"


@pytest.mark.spec("CLI-78")
def test_the_end_of_a_token_is_read() -> None:
    assert claims_expiry(read_claims(token({"exp": 1_700_000_000}))) == 1_700_000_000


@pytest.mark.spec("CLI-78")
@pytest.mark.parametrize(
    "end", [None, "soon", True, -1, float("inf"), float("nan"), 10**30, [1], {"a": 1}]
)
def test_ignores_invalid_expiry(end: Any) -> None:
    assert claims_expiry(read_claims(token({"exp": end}))) is None
    assert parse_seconds(end) is None


@pytest.mark.spec("CLI-78")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c.d",
        "a.!!.c",
        "e30.bm90IGpzb24.c",
        token([1]),
        token(b"\xff\xfe"),
        token(b"[" * 100_000),
        f"e30.{'A' * 20_000}.c",
        "ä.e30.c",
        "e30.e30.e30\n",
    ],
)
def test_invalid_token_has_no_claims(text: str) -> None:
    assert read_claims(text) == {}


@pytest.mark.spec("CLI-78")
@pytest.mark.parametrize(
    ("left", "found"),
    [
        (None, TokenStatus.GOOD),
        (301.0, TokenStatus.GOOD),
        (300.0, TokenStatus.NEARLY),
        (0.5, TokenStatus.NEARLY),
        (0.0, TokenStatus.EXPIRED),
        (-1.0, TokenStatus.EXPIRED),
    ],
)
def test_token_is_valid_nearly_expired_or_expired(left: float | None, found: TokenStatus) -> None:
    ends = None if left is None else 1_000.0 + left
    assert token_status(ends, 1_000.0) is found


@pytest.mark.spec("CLI-79")
def test_an_identity_is_what_the_store_would_read() -> None:
    assert claims_identity({"email": "ada@example.org", "sub": "1"}) == "ada@example.org"
    assert claims_identity({"sub": "ada"}) == "ada"
    assert claims_identity({"email": 7, "sub": "ada"}) == ""
    assert claims_identity({}) == ""


@pytest.mark.spec("CLI-74")
def test_escapes_control_characters_of_claims() -> None:
    assert make_printable("a\x1b[2Jb\u202ec\nd") == "a [2Jb c d"
    assert make_printable("x" * 400).endswith("…")
    assert len(make_printable("x" * 400)) == 301


@pytest.mark.spec("CLI-79")
def test_shows_times_in_utc() -> None:
    assert format_moment(0) == "1970-01-01 00:00:00 UTC"
    assert format_moment(-5) == "1970-01-01 00:00:00 UTC"
    assert format_moment(10**18).startswith("9999")
