"""Sealed cookies and codes of the login."""

from typing import Any

import pytest

from auth.secret_values import ValueSealer, decode_base64url
from tests.auth.builders import NOW

pytestmark = pytest.mark.spec("OID-12")

SEALS = ValueSealer.from_secret(b"a secret for tests only")


def test_a_value_is_opened_for_its_purpose_until_its_end() -> None:
    sealed = SEALS.seal("state", ["a", "b"], ends=NOW + 60)
    assert SEALS.open("state", sealed, now=NOW + 59) == ["a", "b"]
    assert SEALS.open("state", sealed, now=NOW + 60) is None
    assert SEALS.open("target", sealed, now=NOW) is None
    assert (
        ValueSealer.from_secret(b"another secret of a test").open("state", sealed, now=NOW) is None
    )


@pytest.mark.parametrize("values", [[], ["é"], [{"a": ["b"], "c": None}, 1, 0.5]])
def test_values_are_any_of_json(values: list[Any]) -> None:
    assert SEALS.open("state", SEALS.seal("state", values, ends=NOW + 60), now=NOW) == values


@pytest.mark.parametrize("ahead_s", [1, 30, 3_600])
def test_accepts_value_of_machine_with_fast_clock(ahead_s: int) -> None:
    """It says when it ends, and nothing of when it was made."""
    sealed = SEALS.seal("state", ["a"], ends=NOW + ahead_s + 900)
    assert SEALS.open("state", sealed, now=NOW) == ["a"]
    assert SEALS.open("state", sealed, now=NOW + ahead_s + 900) is None


@pytest.mark.parametrize("forged", [None, "", "a", "é", "####", "A" * 100, "A" * 20_000])
def test_rejects_foreign_values(forged: str | None) -> None:
    assert SEALS.open("state", forged, now=NOW) is None


def test_rejects_changed_values() -> None:
    sealed = SEALS.seal("state", ["a"], ends=NOW + 60)
    for place in range(len(sealed)):
        other = "A" if sealed[place] != "A" else "B"
        changed = sealed[:place] + other + sealed[place + 1 :]
        assert SEALS.open("state", changed, now=NOW) is None


def test_value_is_url_safe() -> None:
    for length in range(4):
        sealed = SEALS.seal("state", ["a" * length], ends=NOW + 60)
        assert sealed.replace("-", "a").replace("_", "a").isalnum()


@pytest.mark.parametrize("text", ["_-8=", "_-8\n", "_-9", "/-8", "_+8", "_-", "é-8", "_-8A="])
def test_base64url_has_one_spelling(text: str) -> None:
    assert decode_base64url("_-8") == b"\xff\xef"
    with pytest.raises(ValueError, match=r"."):
        decode_base64url(text)


def test_rejects_padding() -> None:
    padded = {
        sealed + "=" * (-len(sealed) % 4)
        for sealed in (SEALS.seal("state", ["a" * n], ends=NOW + 60) for n in range(3))
    }
    opened = [SEALS.open("state", one, now=NOW) for one in sorted(padded, key=len)]
    assert opened.count(None) == 2


@pytest.mark.spec("OPS-43")
def test_a_value_of_the_former_secret_is_opened() -> None:
    sealed = SEALS.seal("state", ["a"], ends=NOW + 60)
    later = ValueSealer.from_secret(b"another secret of a test", b"a secret for tests only")
    assert later.open("state", sealed, now=NOW) == ["a"]
    assert SEALS.open("state", later.seal("state", ["a"], ends=NOW + 60), now=NOW) is None
