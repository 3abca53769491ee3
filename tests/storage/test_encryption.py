"""Sealed secrets open only in their own context."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.encryption import SecretBox, derive_key
from storage.errors import Unavailable

SEALER = SecretBox(b"k" * 32)

# RFC 5869 by hand: HMAC-SHA256(HMAC-SHA256(32 zeros, secret), b"cursors\x01")
KNOWN_CURSOR_KEY = "9b53aecdec8f3f85bc435b478cb52c881b02ab9e233e4ef1aef0b1181d4183a2"


@given(st.binary(), st.binary())
def test_what_was_sealed_opens_in_its_own_context(plain: bytes, context: bytes) -> None:
    assert SEALER.open(SEALER.seal(plain, context), context) == plain


def test_sealing_twice_gives_different_bytes() -> None:
    assert SEALER.seal(b"secret", b"one") != SEALER.seal(b"secret", b"one")


def test_a_sealed_secret_does_not_open_elsewhere() -> None:
    sealed = SEALER.seal(b"secret", b"subscription one")
    with pytest.raises(Unavailable):
        SEALER.open(sealed, b"subscription two")
    with pytest.raises(Unavailable):
        SecretBox(b"K" * 32).open(sealed, b"subscription one")


@given(st.integers(0, 1 + 12 + 6 + 16 - 1), st.integers(1, 255))
def test_no_changed_bit_opens(at: int, bits: int) -> None:
    sealed = bytearray(SEALER.seal(b"secret", b"one"))
    sealed[at] ^= bits
    with pytest.raises(Unavailable):
        SEALER.open(bytes(sealed), b"one")


@given(st.binary(max_size=40))
def test_garbage_does_not_open(garbage: bytes) -> None:
    with pytest.raises(Unavailable):
        SEALER.open(garbage, b"one")


@pytest.mark.spec("FMT-07")
def test_each_purpose_has_its_own_key_for_ever() -> None:
    known = derive_key(b"a secret of the store", b"cursors")
    assert known.hex() == KNOWN_CURSOR_KEY
    assert derive_key(b"a secret of the store", b"urls") != known
    assert derive_key(b"another secret", b"cursors") != known
    assert len(derive_key(b"a secret of the store", b"cursors", 64)) == 64
