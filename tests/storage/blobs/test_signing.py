"""Signed URLs: what is signed is what is granted, to the byte, until it expires."""

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.blobs.signing import Grant, UrlSigner
from storage.errors import Forbidden, Invalid

NOW = 1_700_000_000
SIGNER = UrlSigner(b"secret", "aws", now=lambda: NOW)
PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=50)


def received(url: str) -> tuple[str, dict[str, str]]:
    """Key and parameters as a web framework would hand them over."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, strict_parsing=True)
    path = unquote(parts.path).removeprefix("/v1/objects/aws/")
    return path, {name: values[0] for name, values in query.items()}


def test_a_known_url() -> None:
    url = SIGNER.sign("a b/é", expires_s=60, content_type="text/plain; x=y")
    assert url == (
        "/v1/objects/aws/a%20b/%C3%A9?expires=1700000060&type=text%2Fplain%3B%20x%3Dy"
        "&signature=" + url.rpartition("=")[2]
    )
    assert len(url.rpartition("=")[2]) == 64


@given(PRINTABLE.filter(bool), PRINTABLE, PRINTABLE)
def test_what_was_signed_is_granted(key: str, content_type: str, disposition: str) -> None:
    url = SIGNER.sign(key, expires_s=60, content_type=content_type, disposition=disposition)
    assert url.isascii()
    grant = SIGNER.verify(*received(url))
    assert grant == Grant(key, content_type or None, disposition or None)


@pytest.mark.parametrize(
    "change",
    [
        {"expires": str(NOW + 61)},
        {"expires": ""},
        {"type": "text/html"},
        {"type": ""},
        {"disposition": "inline"},
        {"signature": "0" * 64},
        {"signature": ""},
        {"signature": "é"},
    ],
)
def test_any_change_is_forbidden(change: dict[str, str]) -> None:
    key, parameters = received(SIGNER.sign("k", expires_s=60, content_type="a/b"))
    with pytest.raises(Forbidden):
        SIGNER.verify(key, {**parameters, **change})


def test_another_key_bucket_or_secret_is_forbidden() -> None:
    key, parameters = received(SIGNER.sign("k", expires_s=60))
    for signer, asked in (
        (SIGNER, "k2"),
        (UrlSigner(b"secret", "gcp", now=lambda: NOW), key),
        (UrlSigner(b"other", "aws", now=lambda: NOW), key),
    ):
        with pytest.raises(Forbidden):
            signer.verify(asked, parameters)


def test_a_url_expires() -> None:
    key, parameters = received(SIGNER.sign("k", expires_s=60))
    UrlSigner(b"secret", "aws", now=lambda: NOW + 59).verify(key, parameters)
    with pytest.raises(Forbidden):
        UrlSigner(b"secret", "aws", now=lambda: NOW + 60).verify(key, parameters)


def test_a_header_cannot_be_smuggled_in() -> None:
    with pytest.raises(Invalid):
        SIGNER.sign("k", expires_s=60, disposition="attachment\r\nSet-Cookie: x")
