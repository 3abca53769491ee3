"""Key sets of issuers: fetching, caching and failures."""

import functools
import http.server
import threading
import time
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from joserfc.jwk import ECKey, OctKey, RSAKey

from auth.tokens.signing_keys import SigningKeys
from auth.tokens.verification import KeyRing, fetch_json
from storage.errors import Unauthorized, Unavailable
from tests.auth.builders import AGES, Clock, Issuer, segment

pytestmark = pytest.mark.spec("WHO-07")


@pytest.fixture
def ring(issuer: Issuer, clock: Clock) -> KeyRing:
    return KeyRing(issuer, clock, AGES)


def weak_modulus() -> str:
    """Of 1,024 bits."""
    numbers = generate_private_key(65537, 1024).public_key().public_numbers()
    return segment(numbers.n.to_bytes(128, "big"))


def known(key: RSAKey | ECKey) -> str:
    return str(key.kid)


def test_keys_are_fetched_once_and_cached(
    ring: KeyRing, issuer: Issuer, rsa: RSAKey, curve: ECKey
) -> None:
    for _ in range(5):
        assert ring.find(known(rsa)).kid == rsa.kid
        assert ring.find(known(curve)).kid == curve.kid
    assert issuer.asked == 1


def test_a_flood_of_unknown_keys_fetches_once_in_a_cool_down(
    ring: KeyRing, issuer: Issuer, clock: Clock, rsa: RSAKey
) -> None:
    ring.find(known(rsa))
    for second in range(300):
        clock.now += 0.2
        with pytest.raises(Unauthorized):
            ring.find(f"unknown-{second}")
    assert issuer.asked == 1 + 2


def test_a_flood_from_many_threads_fetches_once(issuer: Issuer, clock: Clock) -> None:
    ring = KeyRing(issuer, clock, AGES)
    start = threading.Barrier(16)
    issuer.before = functools.partial(threading.Event().wait, 0.1)

    def ask(number: int) -> None:
        start.wait()
        with pytest.raises(Unauthorized):
            ring.find(f"unknown-{number}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert issuer.asked == 1


def test_a_rotated_key_is_found_after_the_cool_down(
    ring: KeyRing, issuer: Issuer, clock: Clock, rsa: RSAKey
) -> None:
    ring.find(known(rsa))
    new = ECKey.generate_key("P-256", auto_kid=True)
    issuer.keys = SigningKeys((new, rsa))
    clock.now += 31
    assert ring.find(known(new)).kid == new.kid
    assert ring.find(known(rsa)).kid == rsa.kid


def test_a_key_that_its_issuer_withdrew_is_refused_after_the_refresh(
    ring: KeyRing, issuer: Issuer, clock: Clock, rsa: RSAKey, curve: ECKey
) -> None:
    ring.find(known(curve))
    issuer.keys = SigningKeys((rsa,))
    clock.now += 3599
    assert ring.find(known(curve))
    clock.now += 2
    with pytest.raises(Unauthorized):
        ring.find(known(curve))


def test_cached_keys_are_used_during_outage(
    ring: KeyRing, issuer: Issuer, clock: Clock, rsa: RSAKey
) -> None:
    ring.find(known(rsa))
    issuer.down = True
    clock.now += 3601
    for _ in range(10):
        assert ring.find(known(rsa)).kid == rsa.kid
    assert issuer.asked == 2
    with pytest.raises(Unavailable) as caught:
        ring.find("unknown")
    assert caught.value.retry_after_s == 30


def test_keys_too_old_to_be_believed_are_not(
    ring: KeyRing, issuer: Issuer, clock: Clock, rsa: RSAKey
) -> None:
    ring.find(known(rsa))
    issuer.down = True
    clock.now += AGES.usable_s + 1
    with pytest.raises(Unavailable):
        ring.find(known(rsa))


def test_unavailable_until_issuer_answers_first(
    ring: KeyRing, issuer: Issuer, clock: Clock, rsa: RSAKey
) -> None:
    issuer.down = True
    for _ in range(5):
        with pytest.raises(Unavailable):
            ring.find(known(rsa))
    assert issuer.asked == 1
    issuer.down = False
    clock.now += 31
    assert ring.find(known(rsa)).kid == rsa.kid


def test_a_clock_that_was_set_back_does_not_stop_the_fetching(
    ring: KeyRing, issuer: Issuer, clock: Clock, rsa: RSAKey
) -> None:
    ring.find(known(rsa))
    clock.now -= 100_000
    assert ring.find(known(rsa)).kid == rsa.kid
    assert issuer.asked == 2


def test_cached_key_never_waits_for_slow_fetch(issuer: Issuer, clock: Clock, rsa: RSAKey) -> None:
    ring = KeyRing(issuer, clock, AGES)
    ring.find(known(rsa))
    fetching, answer = threading.Event(), threading.Event()

    def slow() -> None:
        fetching.set()
        answer.wait(10)

    issuer.before = slow
    clock.now += 3601
    thread = threading.Thread(target=ring.find, args=(known(rsa),))
    thread.start()
    fetching.wait(10)
    started = time.monotonic()
    assert ring.find(known(rsa)).kid == rsa.kid
    assert time.monotonic() - started < AGES.waiting_s
    with pytest.raises(Unavailable, match="being read"):
        ring.find("unknown")
    answer.set()
    thread.join()


@pytest.mark.parametrize("document", [{}, {"keys": None}, {"keys": {}}, {"keys": "x"}])
def test_invalid_key_set_is_a_failed_fetch(
    document: dict[str, object], ring: KeyRing, issuer: Issuer
) -> None:
    issuer.document = document
    with pytest.raises(Unavailable):
        ring.find("any")


def test_keys_that_cannot_verify_are_left_out_and_the_rest_is_used(
    ring: KeyRing, issuer: Issuer, curve: ECKey
) -> None:
    public = curve.as_dict(private=False)
    oct_key = OctKey.generate_key(256, {"kid": "symmetric"}).as_dict(private=True)
    issuer.document = {
        "keys": [
            None,
            "text",
            {},
            {"kty": "AKP", "kid": "future"},
            oct_key,
            {"kty": "RSA", "kid": "weak", "n": weak_modulus(), "e": "AQAB"},
            {"kty": "RSA", "kid": "broken", "n": "*" * 342, "e": "AQAB"},
            {**public, "kid": "off-curve", "x": public["y"]},
            {**public, "kid": "no-curve", "crv": "P-999"},
            {**public, "kid": "encrypts", "use": "enc"},
            {**public, "kid": 5},
            public,
        ]
    }
    assert ring.find(known(curve)).kid == curve.kid
    for refused in (
        "future",
        "symmetric",
        "weak",
        "broken",
        "off-curve",
        "no-curve",
        "encrypts",
        "5",
    ):
        with pytest.raises(Unauthorized):
            ring.find(refused)


class Answers(http.server.BaseHTTPRequestHandler):
    """A key address in the moods that the tests name by its path."""

    def do_GET(self) -> None:
        body = {
            "/good": b'{"keys": []}',
            "/list": b"[]",
            "/broken": b"{",
            "/deep": b"[" * 100_000,
            "/huge": b'{"keys": [' + b" " * 300_000 + b"]}",
        }.get(self.path, b"")
        status = {"/moved": 302, "/absent": 404, "/failing": 500}.get(self.path, 200)
        self.send_response(status)
        self.send_header("Location", "/good")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Tests are quiet."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_json_object_is_fetched(address: str) -> None:
    assert fetch_json(f"{address}/good") == {"keys": []}


def test_proxies_of_the_environment_are_not_used(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert fetch_json(f"{address}/good") == {"keys": []}


@pytest.mark.parametrize(
    "path", ["/list", "/broken", "/deep", "/huge", "/moved", "/absent", "/failing", "/empty"]
)
def test_every_other_answer_is_unavailable(address: str, path: str) -> None:
    with pytest.raises(Unavailable):
        fetch_json(address + path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "http://",
        "http://127.0.0.1:1/",
        "http://[x/",
    ],
)
def test_unreachable_address_is_unavailable(url: str) -> None:
    with pytest.raises(Unavailable):
        fetch_json(url)
