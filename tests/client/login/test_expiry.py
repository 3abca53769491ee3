"""What is read of a token without believing it."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from store_client.login.expiry import (
    Standing,
    claims,
    expiry,
    identity,
    moment,
    printable,
    seconds,
    standing,
)


def token(said: Any) -> str:
    raw = said if isinstance(said, bytes) else json.dumps(said).encode()
    return f"e30.{base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}.c2ln"


def test_the_end_of_a_token_is_read() -> None:
    assert expiry(token({"exp": 1_700_000_000})) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    "end", [None, "soon", True, -1, float("inf"), float("nan"), 10**30, [1], {"a": 1}]
)
def test_an_end_that_is_none_is_not_read(end: Any) -> None:
    assert expiry(token({"exp": end})) is None
    assert seconds(end) is None


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
def test_what_is_no_token_claims_nothing(text: str) -> None:
    assert claims(text) == {}
    assert expiry(text) is None


@pytest.mark.parametrize(
    ("left", "found"),
    [
        (None, Standing.GOOD),
        (301.0, Standing.GOOD),
        (300.0, Standing.NEARLY),
        (0.5, Standing.NEARLY),
        (0.0, Standing.EXPIRED),
        (-1.0, Standing.EXPIRED),
    ],
)
def test_a_token_is_good_nearly_expired_or_expired(left: float | None, found: Standing) -> None:
    ends = None if left is None else 1_000.0 + left
    assert standing(ends, 1_000.0) is found


def test_an_identity_is_what_the_store_would_read() -> None:
    assert identity({"email": "ada@example.org", "sub": "1"}) == "ada@example.org"
    assert identity({"sub": "ada"}) == "ada"
    assert identity({"email": 7, "sub": "ada"}) == ""
    assert identity({}) == ""


def test_what_others_wrote_does_not_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\u202ec\nd") == "a [2Jb c d"
    assert printable("x" * 400).endswith("…")
    assert len(printable("x" * 400)) == 301


def test_moments_are_told_in_utc_however_odd() -> None:
    assert moment(0) == "1970-01-01 00:00:00 UTC"
    assert moment(-5) == "1970-01-01 00:00:00 UTC"
    assert moment(10**18).startswith("9999")
