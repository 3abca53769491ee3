"""Public keys and credentials files of service accounts."""

import base64
import json
from itertools import count
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa as generating
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from auth.service_accounts import create_credentials, parse_credentials_key, parse_public_key
from storage.errors import Invalid

pytestmark = pytest.mark.spec("SAC-02")

SPKI = PublicFormat.SubjectPublicKeyInfo
ROBOT = "robot@example.org"


def pem(key: Any, *, private: bool = False) -> str:
    return str(key.as_pem(private=private).decode())


def test_a_pem_and_its_jwk_are_the_same_key(rsa: RSAKey) -> None:
    by_pem, by_jwk = (
        parse_public_key(pem(rsa)),
        parse_public_key(json.dumps(rsa.as_dict(private=False))),
    )
    assert by_pem == by_jwk
    assert by_pem.kid == rsa.thumbprint()
    assert set(json.loads(by_pem.jwk)) == {"kty", "n", "e", "kid"}


def test_key_id_defaults_to_thumbprint(rsa: RSAKey) -> None:
    own = json.dumps({**rsa.as_dict(private=False), "kid": "own", "alg": "RS256", "use": "sig"})
    assert parse_public_key(own).kid == "own"
    assert parse_public_key(own, kid="given").kid == "given"
    assert json.loads(parse_public_key(own, kid="given").jwk)["kid"] == "given"


def weak(*, private: bool = False) -> str:
    made = generating.generate_private_key(65_537, 1024)
    if private:
        return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return made.public_key().public_bytes(Encoding.PEM, SPKI).decode()


def weak_jwk() -> str:
    number = (1 << 1023) + 1
    n = base64.urlsafe_b64encode(number.to_bytes(128, "big")).rstrip(b"=").decode()
    return json.dumps({"kty": "RSA", "n": n, "e": "AQAB"})


def exponent_three() -> str:
    made = generating.RSAPublicNumbers(e=3, n=(1 << 2048) + 1).public_key()
    return made.public_bytes(Encoding.PEM, SPKI).decode()


def jwk(**members: Any) -> str:
    key = RSAKey.generate_key(2048)
    return json.dumps({**key.as_dict(private=False), **members})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "null",
        '{"kty": "RSA"}',
        '{"kty": "RSA", "n": 5, "e": "AQAB"}',
        '{"keys": []}',
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        '{"a":' * 5000,
        " " * 70_000 + "{}",
        weak(),
        weak_jwk(),
        exponent_three(),
        pem(ECKey.generate_key("P-256")),
        json.dumps(ECKey.generate_key("P-256").as_dict(private=False)),
        json.dumps(OKPKey.generate_key("Ed25519").as_dict(private=False)),
        json.dumps(OctKey.generate_key(2048).as_dict()),
        jwk(use="enc"),
        jwk(alg="HS256"),
        jwk(alg="PS256"),
        jwk(alg=None),
        jwk(kid="with space"),
        jwk(kid="x" * 129),
        jwk(kid="line\nbreak"),
    ],
    # Keys are new each time: processes that share the tests would call them differently.
    ids=(f"text{number}" for number in count()),
)
def test_rejects_weak_and_other_keys(text: str) -> None:
    with pytest.raises(Invalid):
        parse_public_key(text)


def test_a_private_key_is_refused_and_not_repeated(rsa: RSAKey) -> None:
    for text in (pem(rsa, private=True), json.dumps(rsa.as_dict(private=True))):
        with pytest.raises(Invalid, match="private key") as caught:
            parse_public_key(text)
        assert text not in str(caught.value)


def test_credentials_file_yields_public_key_only() -> None:
    text, registered = create_credentials(
        ROBOT, audience="store", token_uri="https://auth.example/token"
    )
    given = json.loads(text)
    assert given["type"] == "service_account"
    assert given["client_email"] == ROBOT
    assert given["private_key_id"] == registered.kid
    assert given["private_key"].startswith("-----BEGIN PRIVATE KEY-----\n")
    assert (given["audience"], given["token_uri"]) == ("store", "https://auth.example/token")
    assert parse_credentials_key(text, email=ROBOT) == registered
    assert set(json.loads(registered.jwk)) == {"kty", "n", "e", "kid"}
    other, _ = create_credentials(ROBOT, audience="store", token_uri="")
    assert json.loads(other)["private_key"] != given["private_key"]


@pytest.mark.parametrize(
    "changed",
    [
        {"client_email": "other@example.org"},
        {"private_key": None},
        {"private_key": "x"},
        {"private_key": weak(private=True)},
        {"private_key": pem(ECKey.generate_key("P-256"), private=True)},
        {"private_key": pem(RSAKey.generate_key(2048))},
        {"private_key_id": "with space"},
    ],
)
def test_rejects_other_credentials_files(changed: dict[str, Any], rsa: RSAKey) -> None:
    whole = {"client_email": ROBOT, "private_key": pem(rsa, private=True), "private_key_id": "k"}
    assert parse_credentials_key(json.dumps(whole), email=ROBOT).kid == "k"
    with pytest.raises(Invalid):
        parse_credentials_key(json.dumps({**whole, **changed}), email=ROBOT)
