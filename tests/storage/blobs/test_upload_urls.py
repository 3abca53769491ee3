"""Presigned upload URLs on every engine: one key, one method, limited time."""

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from storage.blobs.folder import FolderBlobs
from storage.blobs.plain_folder import PlainFolder
from storage.blobs.s3 import MAX_PUT_BYTES
from storage.blobs.signed_urls import UploadGrant, UrlSigner
from storage.errors import Forbidden, Invalid, NotFoundError
from storage.protocols import BlobStore, PresignedUpload
from tests.storage.blobs.test_contract import BACKENDS
from tests.waiting import until

NOW = 1_700_000_000
SIGNER = UrlSigner(b"secret", "areas", now=lambda: NOW)
KEY = "areas/6ba7b810-9dad-11d1-80b4-00c04fd430c8/a b/ü+?#%.txt"
ENDS = 1000

Put = Callable[[str, Mapping[str, str], bytes], int]


@dataclass(frozen=True)
class Engine:
    """One bucket; how anybody puts to a URL, and gets one."""

    name: str
    store: BlobStore
    put: Put
    get: Callable[[str], int]


def over_http(url: str, headers: Mapping[str, str], body: bytes) -> int:
    asked = urllib.request.Request(url, body, dict(headers), method="PUT")
    try:
        with urllib.request.urlopen(asked) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def as_the_api(store: FolderBlobs) -> Put:
    """What becomes of a PUT that the API serves; `tests/api/test_area_credentials.py` asks it."""

    def put(url: str, headers: Mapping[str, str], body: bytes) -> int:
        key, parameters = received(url)
        try:
            grant = store.signer.verify_upload(key, parameters)
        except Forbidden:
            return 403
        store.put(grant.key, body, content_type=headers["Content-Type"], replace=True)
        return 200 if len(body) <= grant.max_bytes else 413

    return put


def received(url: str, bucket: str = "") -> tuple[str, dict[str, str]]:
    """Key and parameters as a web framework would hand them over."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    key = unquote(parts.path).removeprefix("/v1/objects/").partition("/")[2]
    return key, {name: values[0] for name, values in query.items()}


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with BACKENDS[request.param](tmp_path) as backend:
        store = backend.store
        put = as_the_api(store) if isinstance(store, FolderBlobs) else over_http
        yield Engine(request.param, store, put, lambda url: backend.fetch(url).status)


def signed(store: BlobStore, key: str = KEY, expires_s: int = 60) -> PresignedUpload:
    return store.sign_upload(key, expires_s=expires_s, max_bytes=ENDS)


def sent(engine: Engine, url: str, body: bytes, **more: str) -> int:
    headers = {**signed(engine.store).headers, "Content-Type": "text/csv", **more}
    return engine.put(url, headers, body)


def stored(store: BlobStore, key: str = KEY) -> bytes:
    return b"".join(store.read(key))


@pytest.mark.spec("ARU-17")
def test_signed_put_stores_and_replaces_with_type(
    engine: Engine,
) -> None:
    upload = signed(engine.store)
    for body in (b"first", b""):
        assert sent(engine, upload.url, body) == 200
        assert stored(engine.store) == body
    assert engine.store.head(KEY).content_type == "text/csv"


def looks_at_signatures(engine: Engine) -> None:
    if engine.name == "gcs-server":
        pytest.xfail("gcs-server: signatures are not looked at")


@pytest.mark.spec("ARU-17")
def test_leave_to_put_is_for_one_key_and_for_a_while(engine: Engine) -> None:
    looks_at_signatures(engine)
    upload = signed(engine.store, "areas/k")
    assert sent(engine, upload.url.replace("/k?", "/other?"), b"x") == 403
    # S3 signs for a second at least.
    brief = signed(engine.store, "areas/k", expires_s=-1).url
    until(lambda: sent(engine, brief, b"x") in (400, 403))
    engine.store.delete("areas/k")
    assert sent(engine, brief, b"x") in (400, 403)
    for key in ("areas/k", "areas/other"):
        with pytest.raises(NotFoundError):
            engine.store.head(key)


@pytest.mark.spec("ARU-17")
def test_put_and_get_signatures_are_not_interchangeable(engine: Engine) -> None:
    looks_at_signatures(engine)
    engine.store.put("areas/k", b"kept")
    assert engine.get(signed(engine.store, "areas/k").url) in (400, 403)
    reading = engine.store.sign("areas/k", expires_s=60)
    assert sent(engine, reading, b"changed") in (400, 403)
    assert stored(engine.store, "areas/k") == b"kept"


@pytest.mark.spec("ARU-17")
def test_put_signature_allows_no_copy(engine: Engine) -> None:
    looks_at_signatures(engine)
    engine.store.put("secret", b"secret")
    bucket = getattr(engine.store, "name", "one")
    names = ("x-amz-copy-source", "x-goog-copy-source")
    sent(engine, signed(engine.store).url, b"", **dict.fromkeys(names, f"/{bucket}/secret"))
    try:
        assert stored(engine.store) == b""
    except NotFoundError:
        return


@pytest.mark.spec("ARU-17")
def test_rejects_more_bytes_than_signed(engine: Engine) -> None:
    upload = signed(engine.store)
    if engine.name == "gcs":
        assert sent(engine, upload.url, b"x" * (ENDS + 1)) == 400
        assert sent(engine, upload.url, b"x" * ENDS) == 200
    assert upload.max_bytes == ENDS
    most = engine.store.sign_upload(KEY, expires_s=60, max_bytes=10**15).max_bytes
    assert most == (MAX_PUT_BYTES if engine.name.startswith("s3") else 10**15)


@pytest.mark.spec("ARU-16")
def test_repr_hides_upload_url(engine: Engine) -> None:
    assert "http" not in repr(signed(engine.store))


@pytest.mark.spec("ARU-17")
def test_a_known_url_of_a_folder_bucket() -> None:
    key = "areas/6ba7b810-9dad-11d1-80b4-00c04fd430c8/a b/é"
    assert SIGNER.sign_upload(key, expires_s=60, max_bytes=1000) == (
        "/v1/objects/areas/areas/6ba7b810-9dad-11d1-80b4-00c04fd430c8/a%20b/%C3%A9"
        "?method=PUT&expires=1700000060&size=1000"
        "&signature=8064894b430323720cae3eba55aa13b10958ec0f3b19c962d1802b8f02a263b8"
    )
    assert SIGNER.verify_upload(
        *received(SIGNER.sign_upload(key, expires_s=60, max_bytes=1000))
    ) == UploadGrant(key, 1000)


@pytest.mark.spec("ARU-17")
@pytest.mark.parametrize(
    "change",
    [
        {"method": "GET"},
        {"method": ""},
        {"expires": str(NOW + 61)},
        {"expires": ""},
        {"size": "1001"},
        {"size": ""},
        {"signature": "0" * 64},
        {"signature": ""},
        {"signature": "é"},
    ],
)
def test_any_change_of_an_upload_url_is_forbidden(change: dict[str, str]) -> None:
    key, parameters = received(SIGNER.sign_upload("k", expires_s=60, max_bytes=1000))
    with pytest.raises(Forbidden):
        SIGNER.verify_upload(key, {**parameters, **change})


@pytest.mark.spec("ARU-17")
def test_an_upload_url_is_for_one_bucket_secret_and_time() -> None:
    key, parameters = received(SIGNER.sign_upload("k", expires_s=60, max_bytes=1))
    for signer in (
        UrlSigner(b"secret", "aws", now=lambda: NOW),
        UrlSigner(b"other", "areas", now=lambda: NOW),
        UrlSigner(b"secret", "areas", now=lambda: NOW + 60),
    ):
        with pytest.raises(Forbidden):
            signer.verify_upload(key, parameters)


@pytest.mark.spec("ARU-17")
def test_crafted_get_url_is_no_put_url() -> None:
    """One text cannot be both: what is signed begins with which of them it is."""
    reading = SIGNER.sign("k", expires_s=60, content_type="x&method=PUT&size=9")
    key, parameters = received(reading)
    with pytest.raises(Forbidden):
        SIGNER.verify_upload(key, {**parameters, "method": "PUT", "size": "9"})
    key, parameters = received(SIGNER.sign_upload("k", expires_s=60, max_bytes=9))
    with pytest.raises(Forbidden):
        SIGNER.verify(key, parameters)


@pytest.mark.spec("ARU-17")
def test_a_key_that_cannot_be_is_not_signed_for(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        signed(FolderBlobs(tmp_path / "one", SIGNER), "a\nb")
    with pytest.raises(Forbidden):
        signed(PlainFolder(tmp_path / "two"), "k")
