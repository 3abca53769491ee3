"""Work of libraries that is done once per test run instead of once per test.

Nothing of ours is changed. The routes of thousands of applications are the same, and to compile
them takes longer than most tests; so does reading what a client of S3 is made from.
"""

import functools
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.auth.crypt import RSASigner
from werkzeug.routing import Rule

Build = Callable[..., tuple[str, str]]

_compile = Rule._compile_builder
_load = JSONFileLoader.load_file


@contextmanager
def routes_compiled_once() -> Iterator[None]:
    """What builds the URLs of a rule is made once for all rules alike, for as long as the block."""
    known: dict[tuple[Any, ...], Build] = {}

    def compiled(rule: Rule, append_unknown: bool = True) -> Build:
        if rule.defaults:
            return _compile(rule, append_unknown)
        key = (rule.rule, append_unknown, *rule._trace)
        if key not in known:
            known[key] = _compile(rule, append_unknown)
        return known[key]

    Rule._compile_builder = compiled  # type: ignore[method-assign]
    try:
        yield
    finally:
        Rule._compile_builder = _compile  # type: ignore[method-assign]


@contextmanager
def services_read_once() -> Iterator[None]:
    """What botocore knows of a service is read once, not for each session that makes a client."""
    known: dict[str, Any] = {}

    def loaded(loader: JSONFileLoader, path: str) -> Any:
        if path not in known:
            known[path] = _load(loader, path)
        return known[path]

    JSONFileLoader.load_file = loaded
    try:
        yield
    finally:
        JSONFileLoader.load_file = _load


@contextmanager
def private_keys_parsed_once() -> Iterator[None]:
    """Google's library parses the key of a service account once, not for each client."""
    from_string = RSASigner.from_string
    RSASigner.from_string = functools.cache(from_string)
    try:
        yield
    finally:
        RSASigner.from_string = from_string


@contextmanager
def one_root_certificate(folder: Path) -> Iterator[None]:
    """TLS contexts of this process and its children load one certificate instead of the system's.

    No test connects to a public server; those that serve TLS name their own certificate.
    """
    path = folder / "roots.pem"
    path.write_bytes(_make_certificate())
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


def _make_certificate() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def settle() -> None:
    """What was imported and collected stays, so the collector need not look at it again; and it
    looks at the rest seldom: every application that a test leaves behind is a knot of cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def arrange(items: list[pytest.Item]) -> None:
    """What takes long begins first, lest one process ends long after the others. A folder's tests
    stay together, however they were shuffled, for what is made once for all of them."""
    places: dict[Path, int] = {}
    for item in items:
        places.setdefault(item.path.parent, len(places))
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, places[item.path.parent]))
