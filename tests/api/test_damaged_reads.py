"""Reads of damaged objects fail over to the other replica and order a repair."""

import base64
import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from pipelines import bundles, failover, scrub
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.copies import INLINE_BYTES
from storage import keys
from storage.circuit_breaker import CircuitBreaker
from storage.model import FQID, REPLICAS
from tests.builders import make_file, new_uuid, version
from tests.catalogs import ENGINES
from tests.damage import KINDS, damage, path_of

pytestmark = pytest.mark.spec("FIL-39")

CONTENT = b"content, as it was deposited"


@pytest.fixture
def catalog_url(tmp_path, spares):
    """What is damaged lies in buckets: one engine of the catalog is enough."""
    with spares.lend(ENGINES[0], tmp_path) as url:
        yield url


def key_of(data: bytes) -> str:
    return keys.blob_key(hashlib.sha256(data).hexdigest())


def digest(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def get(client, fqid, **more):
    query = {"replica": "aws", "version": fqid.version} | more
    return client.get(f"/v1/files/{fqid.uuid}", query_string=query)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_from_the_other_replica_and_repaired(
    client, stores, drain, kind
) -> None:
    fqid = make_file(stores, CONTENT, everywhere=True)
    damage(stores, "aws", key_of(CONTENT), kind)
    answer = get(client, fqid)
    assert answer.status_code == 302
    assert answer.headers["X-STORE-SERVED-BY"] == "gcp"
    assert client.get(answer.headers["Location"]).data == CONTENT
    assert client.head(f"/v1/files/{fqid.uuid}?replica=aws").headers["X-STORE-SERVED-BY"] == "gcp"
    drain()
    again = get(client, fqid)
    assert "X-STORE-SERVED-BY" not in again.headers
    assert client.get(again.headers["Location"]).data == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_a_url_that_was_signed_before_serves_the_other_replicas_bytes(
    client, stores, drain, kind
) -> None:
    fqid = make_file(stores, CONTENT, everywhere=True)
    url = get(client, fqid).headers["Location"]
    whole = client.get(url)
    assert (whole.data, whole.headers["Repr-Digest"]) == (CONTENT, digest(CONTENT))
    damage(stores, "aws", key_of(CONTENT), kind)
    answer = client.get(url)
    assert (answer.status_code, answer.data) == (200, CONTENT)
    assert answer.headers["X-STORE-SERVED-BY"] == "gcp"
    assert answer.headers["Repr-Digest"] == digest(CONTENT)
    part = client.get(url, headers={"Range": "bytes=3-5"})
    assert (part.status_code, part.data) == (206, CONTENT[3:6])
    assert part.headers["Repr-Digest"] == digest(CONTENT)
    drain()
    healed = client.get(url)
    assert (healed.data, "X-STORE-SERVED-BY" in healed.headers) == (CONTENT, False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{}, {"Range": "bytes=1-3"}])
def test_says_that_a_file_is_damaged_in_both_replicas(client, stores, kind, more, caplog) -> None:
    fqid = make_file(stores, CONTENT, everywhere=True)
    url = get(client, fqid).headers["Location"]
    for replica in REPLICAS:
        damage(stores, replica, key_of(CONTENT), kind)
    for answer, name in ((get(client, fqid), f"file {fqid}"), (client.get(url, headers=more), url)):
        assert (answer.status_code, answer.mimetype) == (500, "application/problem+json")
        assert answer.json["code"] == "internal_error"
        for said in ("no replica has an intact copy", "aws: ", "gcp: "):
            assert said in answer.json["detail"]
        assert name in answer.json["detail"] or key_of(CONTENT) in answer.json["detail"]
    assert client.head(f"/v1/files/{fqid.uuid}?replica=aws").status_code == 500
    assert [record for record in caplog.records if record.exc_info] == []


def test_skips_other_replica_that_lacks_the_file(client, stores) -> None:
    fqid = make_file(stores, CONTENT)
    bundle = FQID(new_uuid(), version())
    new = BundleDraft(bundle, "aws", 1, [NewEntry("a", fqid, False)])
    bundles.put(stores, new, "writer@example.org")
    damage(stores, "aws", key_of(CONTENT), "last byte")
    assert "X-STORE-SERVED-BY" not in get(client, fqid).headers
    scrub.verify_replica(stores, "aws", rng=Random(0), repair=False)
    answer = client.get(
        f"/v1/bundles/{bundle.uuid}?replica=aws&presignedurls=true",
        headers={"Authorization": "Bearer reader"},
    )
    (file,) = answer.json["bundle"]["files"]
    assert "/objects/aws/" in file["url"]


def test_a_reader_that_waits_for_other_readers_does_not_blame_the_bucket(
    stores, monkeypatch
) -> None:
    fqid = make_file(stores, CONTENT)
    busy, blamed = threading.Event(), []
    monkeypatch.setattr(failover, "PATIENCE_S", 0.01)
    monkeypatch.setattr(stores.circuit_breaker, "record_failure", blamed.append)
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(failover, "_CHECKS", {"aws": pool})
        pool.submit(busy.wait)
        assert failover.check_before_read(stores, "aws", keys.record_key("file", fqid)) is None
        assert blamed == []
        busy.set()


@pytest.mark.parametrize("more", [{}, {"Range": "bytes=1-3"}])
def test_bytes_known_to_be_damaged_everywhere_are_not_sent(client, stores, more) -> None:
    fqid = make_file(stores, CONTENT, everywhere=True)
    url = get(client, fqid).headers["Location"]
    for replica in REPLICAS:
        damage(stores, replica, key_of(CONTENT), "last byte")
    answer = client.get(url, headers=more)
    assert answer.status_code == 500
    assert CONTENT[:3] not in answer.data


def test_a_damaged_object_that_was_restored_in_place_is_served_again(client, stores) -> None:
    make_file(stores, CONTENT, everywhere=True)
    url = stores.replicas["aws"].sign(key_of(CONTENT), expires_s=60)
    path = path_of(stores.replicas["aws"], key_of(CONTENT))
    whole, status = path.read_bytes(), path.stat()
    for replica in REPLICAS:
        damage(stores, replica, key_of(CONTENT), "last byte")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert client.get(url).status_code == 500
    path.write_bytes(whole)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert client.get(url).data == CONTENT


def test_a_bucket_that_hangs_does_not_keep_the_other_from_being_read(stores, monkeypatch) -> None:
    make_file(stores, CONTENT, everywhere=True)
    hanging, end = stores.replicas["aws"], threading.Event()
    head = hanging.head

    def hang(key):
        end.wait(30)
        return head(key)

    monkeypatch.setattr(hanging, "head", hang)
    monkeypatch.setattr(failover, "PATIENCE_S", 0.01)
    failed = []
    monkeypatch.setattr(CircuitBreaker, "record_failure", lambda _, name: failed.append(name))
    try:
        for _ in range(20):
            assert failover.check_before_read(stores, "aws", key_of(CONTENT)) is None
        assert set(failed) == {"bucket.aws"}
        monkeypatch.setattr(failover, "PATIENCE_S", 20)
        damage(stores, "gcp", key_of(CONTENT), "last byte")
        assert failover.check_before_read(stores, "gcp", key_of(CONTENT)) is not None
    finally:
        end.set()


def test_holds_back_last_bytes_of_damaged_large_file(client, stores, drain) -> None:
    content = bytes(INLINE_BYTES + 1)
    fqid = make_file(stores, content, everywhere=True)
    url = get(client, fqid).headers["Location"]
    damage(stores, "aws", key_of(content), "last byte")
    blocks = iter(client.get(url).response)
    taken = 0
    with pytest.raises(ConnectionResetError):  # noqa: PT012
        while True:
            taken += len(next(blocks))
    assert taken < len(content)
    again = client.get(url)
    assert again.headers["X-STORE-SERVED-BY"] == "gcp"
    assert again.data == content
    drain()
    assert path_of(stores.replicas["aws"], key_of(content)).read_bytes().endswith(content[-9:])
    assert client.get(url).data == content


def change_later(stores, replica, key) -> None:
    """Flip the last byte of an object, seconds after it was stored."""
    damage(stores, replica, key, "last byte")
    path = path_of(stores.replicas[replica], key)
    later = time.time() + 5
    os.utime(path, (later, later))


@pytest.mark.parametrize("more", [{}, {"Range": "bytes=-3"}])
def test_a_large_file_that_changed_is_read_from_the_other_replica_at_once(
    client, stores, drain, more
) -> None:
    content = os.urandom(INLINE_BYTES + 1)
    make_file(stores, content, everywhere=True)
    key = key_of(content)
    url = stores.replicas["aws"].sign(key, expires_s=60)
    change_later(stores, "aws", key)
    answer = client.get(url, headers=more)
    assert answer.headers["X-STORE-SERVED-BY"] == "gcp"
    assert answer.data == (content[-3:] if more else content)
    drain()
    assert path_of(stores.replicas["aws"], key).read_bytes().endswith(content[-9:])


def test_a_large_file_that_changed_in_both_replicas_is_verified_in_both(
    client, stores, drain
) -> None:
    content = bytes(INLINE_BYTES + 1)
    fqid = make_file(stores, content, everywhere=True)
    for replica in REPLICAS:
        change_later(stores, replica, key_of(content))
    assert get(client, fqid).status_code == 302
    drain()
    answer = get(client, fqid)
    assert (answer.status_code, answer.json["code"]) == (500, "internal_error")


def test_a_large_file_that_was_only_touched_is_served_as_before(client, stores, drain) -> None:
    content = bytes(INLINE_BYTES + 1)
    make_file(stores, content, everywhere=True)
    key = key_of(content)
    later = time.time() + 5
    for replica in REPLICAS:
        os.utime(path_of(stores.replicas[replica], key), (later, later))
    answer = client.get(stores.replicas["aws"].sign(key, expires_s=60))
    assert (answer.data, "X-STORE-SERVED-BY" in answer.headers) == (content, False)


def test_no_range_is_sent_of_a_large_file_that_is_listed_as_damaged(client, stores) -> None:
    content = bytes(INLINE_BYTES + 1)
    make_file(stores, content, everywhere=True)
    key = key_of(content)
    url = stores.replicas["aws"].sign(key, expires_s=60)
    damage(stores, "aws", key, "last byte")
    scrub.verify_replica(stores, "aws", rng=Random(0), repair=False)
    asked = {"Range": "bytes=-3"}
    answer = client.get(url, headers=asked)
    assert (answer.headers["X-STORE-SERVED-BY"], answer.data) == ("gcp", content[-3:])
    damage(stores, "gcp", key, "last byte")
    scrub.verify_replica(stores, "gcp", rng=Random(0), repair=False)
    answer = client.get(url, headers=asked)
    assert (answer.status_code, answer.json["code"]) == (500, "internal_error")


@pytest.mark.parametrize("more", [{}, {"Range": "bytes=-3"}])
def test_detects_damage_after_verification_expires(client, stores, monkeypatch, more) -> None:
    make_file(stores, CONTENT, everywhere=True)
    url = stores.replicas["aws"].sign(key_of(CONTENT), expires_s=60)
    assert client.get(url).data == CONTENT
    path = path_of(stores.replicas["aws"], key_of(CONTENT))
    status = path.stat()
    damage(stores, "aws", key_of(CONTENT), "last byte")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    later = time.monotonic() + failover.TRUST_S
    monkeypatch.setattr(failover, "monotonic", lambda: later)
    answer = client.get(url, headers=more)
    assert answer.headers["X-STORE-SERVED-BY"] == "gcp"
    assert answer.data == (CONTENT[-3:] if more else CONTENT)


def test_records_and_files_of_areas_carry_a_digest_too(client, stores) -> None:
    stores.areas.put("areas/x/a.txt", b"staged")
    answer = client.get(stores.areas.sign("areas/x/a.txt", expires_s=60))
    assert (answer.data, answer.headers["Repr-Digest"]) == (b"staged", digest(b"staged"))
    fqid = make_file(stores, CONTENT, everywhere=True)
    key = keys.record_key("file", fqid)
    answer = client.get(stores.replicas["aws"].sign(key, expires_s=60))
    assert answer.headers["Repr-Digest"] == digest(answer.data)


def test_bundles_show_urls_in_the_other_replica_for_files_known_to_be_damaged(
    client, stores
) -> None:
    fqids = [make_file(stores, data, everywhere=True) for data in (CONTENT, b"other")]
    bundle = FQID(new_uuid(), version())
    entries = [NewEntry(str(place), fqid, False) for place, fqid in enumerate(fqids)]
    bundles.put(stores, BundleDraft(bundle, "aws", 1, entries), "writer@example.org")
    damage(stores, "aws", key_of(CONTENT), "last byte")
    scrub.verify_replica(stores, "aws", rng=Random(0), repair=False)
    answer = client.get(
        f"/v1/bundles/{bundle.uuid}?replica=aws&presignedurls=true",
        headers={"Authorization": "Bearer reader"},
    )
    urls = [file["url"] for file in answer.json["bundle"]["files"]]
    assert ["/objects/gcp/" in url for url in urls] == [True, False]
    assert [client.get(url).data for url in urls] == [CONTENT, b"other"]
