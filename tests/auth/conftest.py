"""Fixtures of the auth tests: signing keys and issuers."""

import pytest
from joserfc.jwk import ECKey, RSAKey

from auth.tokens.signing_keys import SigningKeys
from auth.tokens.verification import TokenVerifier
from tests.auth.builders import Clock, Issuer, verifier_of


@pytest.fixture(scope="session")
def rsa() -> RSAKey:
    return RSAKey.generate_key(2048, auto_kid=True)


@pytest.fixture(scope="session")
def curve() -> ECKey:
    return ECKey.generate_key("P-256", auto_kid=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(rsa: RSAKey, curve: ECKey) -> Issuer:
    return Issuer(SigningKeys((curve, rsa)))


@pytest.fixture
def verifier(issuer: Issuer, clock: Clock) -> TokenVerifier:
    return verifier_of(issuer, clock)
