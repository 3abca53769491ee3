"""Sealed secrets open only in their own context."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.encryption import SecretBox, derive_key
from storage.errors import Unavailable

SEALER = SecretBox(b"k" * 32)

ROOT = Path(__file__).resolve().parents[2]

# RFC 5869 by hand: HMAC-SHA256(HMAC-SHA256(32 zeros, b"a secret of the store"), purpose + b"\x01")
KNOWN_KEYS = {
    b"area uploads": "d431ee0c0e7bd91a623329c16f34f270c95ab6d8574a67cf2281bf96661fa2ab",
    b"backups": "0bb9d0503813adee99a4a9fdc50180e3",
    b"instance": "45e83e7fbb3147202f0f9c8b33052057",
    b"logins": "cc452db1f2009534b4c320e2e6d68450a0805dbb8358b671ee39104dfa30135e",
    b"object urls": "d53da22d6910621f838a2449f2a77fdca31b7a8603f354195c4dc101fbb63623",
    b"openid refresh tokens": "0ae45d22ff088c6309bd0b57813e35312da4640833612fa07c8b090c119e1dff",
    b"page pointers": "b54e50c10be3f18360e5d6fafc8da98802e3b224fba51a6231b1d803ebaea4ce",
    b"signing keys": "ae636a7b7ba15b4e23b089444cdcb09270f66e459eedc41482cbbefbfdba53d8",
    b"subscription secrets": "5f2e666b8e005a6cfaf9eff6437fd48b4b70f31271cad0f79dfc91a3e33d9239",
    b"values of logins": "06e8a2fbacfa414f2785e8601faffb27e842a26b0e83f57e0250fc08768b940e",
}


@given(st.binary(), st.binary())
def test_sealed_value_opens_in_its_context(plain: bytes, context: bytes) -> None:
    assert SEALER.open(SEALER.seal(plain, context), context) == plain


def test_sealing_is_randomized() -> None:
    assert SEALER.seal(b"secret", b"one") != SEALER.seal(b"secret", b"one")


def test_sealed_value_does_not_open_in_another_context() -> None:
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
@pytest.mark.parametrize(("purpose", "known"), KNOWN_KEYS.items())
def test_each_purpose_has_its_own_key_for_ever(purpose: bytes, known: str) -> None:
    key = derive_key(b"a secret of the store", purpose, len(known) // 2)
    assert key.hex() == known
    assert derive_key(b"another secret", purpose, len(key)) != key


def test_code_derives_keys_for_the_known_purposes_only() -> None:
    layers = ("api", "auth", "ops", "pipelines", "storage", "workers")
    modules = [path.read_text() for layer in layers for path in (ROOT / layer).rglob("*.py")]
    constants = dict(re.findall(r"(?m)^(\w+)(?:: Final)? = b\"([\w ]+)\"", "\n".join(modules)))
    constants["_KEY_PURPOSE"] = "backups"
    found = {
        (literal or constants[name]).encode()
        for module in modules
        for literal, name in re.findall(
            r"derive_keys?\((?!secret: bytes|secrets: |secret\.encode).*?,"
            r" (?:b\"([\w ]+)\"|(\w+))(?=[,)])",
            module,
        )
    }
    assert found == set(KNOWN_KEYS)
