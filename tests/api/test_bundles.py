"""Bundles over HTTP: put, read in pages, list, delete."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import crcmod.predefined
import pytest
from sqlalchemy import event

from api.app import create_app
from config import Settings
from pipelines import bundles
from pipelines.limits import PENDING_RETRY_S
from storage import keys
from storage.catalog import events, jobs
from storage.model import FQID, REPLICAS, Job
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import verify

LATER = "2026-02-01T000000.000000Z"


@pytest.mark.spec("BUN-24")
def test_a_new_bundle_is_201_and_answers_its_manifest(depositor: Depositor) -> None:
    entry = depositor.file(1)
    answer = depositor.put_bundle(uuid_of(9), [entry])
    assert answer.status_code == 201
    assert answer.json["version"] == VERSION
    (file,) = answer.json["manifest"]["files"]
    assert file["name"] == "f1.txt"
    assert file["size"] == len(b"content")


@pytest.mark.spec("BUN-25")
def test_the_same_content_again_in_another_order_is_200(depositor: Depositor) -> None:
    entries = [depositor.file(1), depositor.file(2)]
    assert depositor.put_bundle(uuid_of(9), entries).status_code == 201
    assert depositor.put_bundle(uuid_of(9), entries[::-1]).status_code == 200


@pytest.mark.spec("BUN-26", "ERR-23")
def test_changed_content_is_409(depositor: Depositor) -> None:
    entries = [depositor.file(1), depositor.file(2)]
    depositor.put_bundle(uuid_of(9), entries)
    answer = depositor.put_bundle(uuid_of(9), entries[:1])
    assert (answer.status_code, answer.json["code"]) == (409, "bundle_already_exists")


@pytest.mark.spec("BUN-28", "ERR-10")
def test_absent_files_are_named(depositor: Depositor) -> None:
    absent = {"uuid": uuid_of(77), "version": VERSION, "name": "a", "indexed": False}
    answer = depositor.put_bundle(uuid_of(9), [depositor.file(1), absent])
    assert (answer.status_code, answer.json["code"]) == (400, "file_missing")
    assert uuid_of(77) in answer.json["detail"]
    assert "/files/1" in answer.json["errors"]


@pytest.mark.spec("BUN-29", "ERR-27")
def test_a_file_that_is_still_being_verified_is_409_with_retry_after(depositor, settings) -> None:
    depositor.put_file(uuid_of(1))
    entry = {"uuid": uuid_of(1), "version": VERSION, "name": "a", "indexed": False}
    answer = depositor.put_bundle(uuid_of(9), [entry], headers={"Prefer": "respond-async"})
    assert (answer.status_code, answer.json["code"]) == (409, "file_pending")
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.spec("ERR-41")
def test_concurrently_vanishing_files_are_503(depositor, monkeypatch) -> None:
    file = depositor.file(1)
    # Each reservation lacks the file, and each look finds it.
    monkeypatch.setattr(bundles, "check_files", lambda *_: None)
    absent = {**file, "uuid": uuid_of(2)}
    answer = depositor.put_bundle(uuid_of(9), [absent])
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, str(PENDING_RETRY_S))
    described = depositor.client.get("/v1/swagger.json").json["paths"]["/bundles/{uuid}"]
    assert "503" in described["put"]["responses"]


@pytest.mark.spec("BUN-10")
def test_the_way_of_a_bundle_through_put_get_and_delete(depositor, client) -> None:
    uuid = depositor.bundle(1, files=2)
    for replica in ("aws", "gcp"):
        read = client.get(f"/v1/bundles/{uuid.upper()}?replica={replica}")
        assert read.status_code == 200
        assert read.json["bundle"]["uuid"] == uuid
        assert [file["name"] for file in read.json["bundle"]["files"]] == ["f256.txt", "f257.txt"]
    gone = client.delete(
        f"/v1/bundles/{uuid}?replica=aws", json={"reason": "mistake"}, headers=INGEST
    )
    assert (gone.status_code, gone.json) == (200, {})
    for replica in ("aws", "gcp"):
        assert client.get(f"/v1/bundles/{uuid}?replica={replica}").status_code == 404


@pytest.mark.spec("BUN-54")
def test_the_same_reason_again_is_200_and_another_409(depositor, client) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}?replica=aws"
    for reason, status in (("a", 200), ("a", 200), ("b", 409)):
        answer = client.delete(path, json={"reason": reason}, headers=INGEST)
        assert answer.status_code == status
    again = depositor.put_bundle(uuid_of(1), [depositor.file(0x100)], version=LATER)
    assert (again.status_code, again.json["code"]) == (409, "bundle_tombstone_already_exists")


@pytest.mark.spec("BUN-49", "CON-12")
def test_reason_may_be_in_query_but_must_not_differ(depositor, client) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}?replica=aws&reason=a"
    assert client.delete(path, json={"reason": "b"}, headers=INGEST).status_code == 400
    assert client.delete(path, headers=INGEST).status_code == 200
    assert client.delete(path, json={"reason": "a"}, headers=INGEST).status_code == 200


@pytest.mark.spec("BUN-17", "CON-02", "CON-03", "CON-04")
def test_pages_of_files_pin_the_version(depositor, client) -> None:
    uuid = depositor.bundle(1, files=3)
    first = client.get(f"/v1/bundles/{uuid}?replica=aws&per_page=2&extra=x")
    assert first.status_code == 206
    assert first.headers["X-OpenAPI-Paginated-Content-Key"] == "bundle.files"
    link = first.headers["Link"]
    for part in ("replica=aws", "per_page=2", "start_at=2", f"version={VERSION}", "extra=x"):
        assert part in link
    assert link.startswith("<http://localhost/v1/bundles/")
    assert link.endswith('; rel="next"')
    second = client.get(link.partition(">")[0].removeprefix("<http://localhost"))
    assert second.status_code == 200
    assert "Link" not in second.headers
    assert [file["name"] for file in second.json["bundle"]["files"]] == ["f258.txt"]


@pytest.mark.spec("BUN-17", "CON-02")
def test_page_ending_with_manifest_is_last(depositor, client) -> None:
    uuid = depositor.bundle(1, files=2)
    assert client.get(f"/v1/bundles/{uuid}?replica=aws&per_page=2").status_code == 200


@pytest.mark.spec("BUN-14", "BUN-15", "BUN-16", "ERR-08")
def test_presigned_urls_serve_bytes_and_direct_urls_are_refused(depositor, client) -> None:
    uuid = depositor.bundle(1)
    read = client.get(f"/v1/bundles/{uuid}?replica=gcp&presignedurls=True")
    url = read.json["bundle"]["files"][0]["url"]
    assert client.get(url.removeprefix("http://localhost")).data == b"content"
    refused = client.get(f"/v1/bundles/{uuid}?replica=aws&directurls=1")
    assert (refused.status_code, refused.json["code"]) == (400, "illegal_arguments")
    both = client.get(f"/v1/bundles/{uuid}?replica=aws&directurls=1&presignedurls=1")
    assert (both.status_code, both.json["code"]) == (400, "only_one_urltype")


@pytest.mark.spec("BUN-01", "BUN-02")
def test_a_walk_over_the_listing_sees_every_bundle_once_in_order(depositor, client) -> None:
    made = sorted(depositor.bundle(number) for number in range(1, 8))
    seen, path = [], "/v1/bundles/all?replica=gcp&per_page=3"
    sizes = []
    while path:
        page = client.get(path)
        seen += [bundle["uuid"] for bundle in page.json["bundles"]]
        sizes.append((page.status_code, page.json["page_count"], page.json["has_more"]))
        link = page.headers.get("Link", "")
        path = link.partition(">")[0].removeprefix("<http://localhost")
    assert seen == made
    assert page.json["per_page"] == 3
    assert sizes == [(206, 3, True), (206, 3, True), (200, 1, False)]


@pytest.mark.spec("BUN-07")
def test_a_prefix_is_lower_cased_and_narrows_the_listing(depositor, client) -> None:
    uuid = depositor.bundle(0xA)
    depositor.bundle(0xB)
    page = client.get(f"/v1/bundles/all?replica=aws&prefix={uuid.upper()[:36]}")
    assert [bundle["uuid"] for bundle in page.json["bundles"]] == [uuid]


@pytest.mark.spec("BUN-35")
def test_jobs_of_a_write_have_its_request_id(depositor, job_queue) -> None:
    entry = depositor.file(1)
    job_queue.sent.clear()
    depositor.put_bundle(uuid_of(9), [entry], headers={"X-Request-Id": "traced-1"})
    assert {step.step for step, _ in job_queue.sent} >= {"index", "match", "sync"}
    assert {request_id for _, request_id in job_queue.sent} == {"traced-1"}


@pytest.mark.spec("SVC-03", "BUN-11", "BUN-12", "BUN-24")
def test_every_member_of_a_bundle_and_its_entries_is_shown_as_deposited(depositor, client) -> None:
    kind = 'application/json; dcp-type="metadata/biomaterial"'
    source = depositor.stage(b"{}", "donor.json", kind)
    depositor.put_file(uuid_of(1), source=source)
    depositor.drain()
    entry = {"uuid": uuid_of(1), "version": VERSION, "name": "deep/donor.json", "indexed": True}
    shown = {
        **entry,
        "content-type": kind,
        "size": 2,
        "sha1": hashlib.sha1(b"{}").hexdigest(),
        "sha256": hashlib.sha256(b"{}").hexdigest(),
        "crc32c": crc32c(b"{}"),
        "s3_etag": hashlib.md5(b"{}").hexdigest(),
    }
    written = depositor.put_bundle(uuid_of(9), [entry])
    assert written.json == {
        "version": VERSION,
        "manifest": {"creator_uid": 7, "files": [shown]},
    }
    depositor.drain()
    for replica in REPLICAS:
        read = client.get(f"/v1/bundles/{uuid_of(9)}?replica={replica}&version={VERSION}")
        assert read.json == {
            "bundle": {"uuid": uuid_of(9), "version": VERSION, "creator_uid": 7, "files": [shown]}
        }


def crc32c(data: bytes) -> str:
    return f"{crcmod.predefined.mkPredefinedCrcFun('crc-32c')(data):08x}"


@pytest.mark.spec("BUN-13")
def test_files_keep_manifest_order(depositor, client) -> None:
    entries = depositor.files((3, 1, 2))
    depositor.put_bundle(uuid_of(9), entries)
    read = client.get(f"/v1/bundles/{uuid_of(9)}?replica=aws").json["bundle"]
    assert [file["name"] for file in read["files"]] == ["f3.txt", "f1.txt", "f2.txt"]


@pytest.mark.spec("BUN-10", "VER-02")
def test_the_latest_live_version_is_read_when_none_is_named(depositor, client) -> None:
    entry = depositor.file(1)
    for version in (LATER, VERSION):
        assert depositor.put_bundle(uuid_of(9), [entry], version=version).status_code == 201
    path = f"/v1/bundles/{uuid_of(9)}?replica=aws"
    assert client.get(path).json["bundle"]["version"] == LATER
    assert client.get(f"{path}&version={VERSION}").json["bundle"]["version"] == VERSION
    assert client.get(f"{path}&version=2026-01-31T235959.000001Z").status_code == 404
    client.delete(f"{path}&version={LATER}", json={"reason": "x"}, headers=INGEST)
    assert client.get(path).json["bundle"]["version"] == VERSION
    assert client.get(f"{path}&version={LATER}").status_code == 404


@pytest.mark.spec("BUN-18")
def test_a_place_beyond_the_last_file_is_an_empty_last_page(depositor, client) -> None:
    uuid = depositor.bundle(1, files=2)
    path = f"/v1/bundles/{uuid}?replica=aws"
    one = client.get(f"{path}&start_at=1")
    assert (one.status_code, len(one.json["bundle"]["files"])) == (200, 1)
    for place in (2, 1000):
        page = client.get(f"{path}&start_at={place}")
        assert (page.status_code, page.json["bundle"]["files"]) == (200, [])
        assert "Link" not in page.headers


@pytest.mark.spec("BUN-14", "BUN-16")
def test_direct_urls_name_the_bucket(depositor, settings, stores, job_queue) -> None:
    uuid = depositor.bundle(1)
    open_house = replace(settings, direct_file_urls=True)
    client = create_app(open_house, stores, job_queue=job_queue, verify=verify).test_client()
    for replica in REPLICAS:
        read = client.get(f"/v1/bundles/{uuid}?replica={replica}&directurls=true")
        (file,) = read.json["bundle"]["files"]
        key = keys.blob_key(file["sha256"])
        assert file["url"] == stores.replicas[replica].direct_url(key)
        assert file["url"].startswith("file:///")


@pytest.mark.spec("BUN-29")
def test_pending_files_are_waited_for_by_a_setting_of_their_own(
    depositor, settings, stores, job_queue
) -> None:
    own = replace(settings, wait_s=0.0, pending_wait_s=20.0)
    client = create_app(own, stores, job_queue=job_queue, verify=verify).test_client()
    depositor.put_file(uuid_of(1))
    entry = {"uuid": uuid_of(1), "version": VERSION, "name": "a", "indexed": False}
    later = threading.Timer(0.2, depositor.drain)
    later.start()
    assert Depositor(client, depositor.drain).put_bundle(uuid_of(9), [entry]).status_code == 201
    later.join()


@pytest.mark.spec("BUN-29")
def test_files_of_the_other_replica_only_are_waited_for(depositor, stores, drain) -> None:
    entry = depositor.file(1)
    lose_sight(stores, f"{uuid_of(1)}.{VERSION}")
    pending = depositor.put_bundle(
        uuid_of(9), [entry], replica="gcp", headers={"Prefer": "respond-async"}
    )
    assert (pending.status_code, pending.json["code"]) == (409, "file_pending")
    later = threading.Timer(0.2, drain)
    later.start()
    waited = depositor.put_bundle(uuid_of(9), [entry], replica="gcp", headers={"Prefer": "wait=20"})
    later.join()
    assert waited.status_code == 201


def lose_sight(stores, fqid: str) -> None:
    """A file as it stands before it is copied to gcp."""
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM visible WHERE replica = 'gcp'")
        jobs.insert(tx, [Job("sync", "gcp", f"file:{fqid}")])


@pytest.mark.spec("BUN-30", "CON-16")
def test_a_manifest_of_200_000_entries_fits_into_a_body() -> None:
    entry = {
        "uuid": uuid_of(1),
        "version": VERSION,
        "name": "lane_1/" + "x" * 200 + "_000000.fastq.gz",
        "indexed": False,
    }
    assert len(json.dumps(entry)) * 200_000 < Settings().max_body_bytes


@pytest.mark.spec("BUN-31")
def test_files_of_a_bundle_are_queried_together(depositor, stores) -> None:
    entries = depositor.files(range(1, 30))
    seen: list[str] = []

    def note(_c, _cursor, statement, *_) -> None:
        seen.append(statement)

    event.listen(stores.catalog.engine, "before_cursor_execute", note)
    counts = []
    for number, count in ((50, 1), (51, 29)):
        seen.clear()
        assert depositor.put_bundle(uuid_of(number), entries[:count]).status_code == 201
        counts.append(len(seen))
    event.remove(stores.catalog.engine, "before_cursor_execute", note)
    # What is looked at once a second may fall into either.
    assert abs(counts[0] - counts[1]) < 10


@pytest.fixture
def several(client, depositor: Depositor) -> list[tuple[str, str]]:
    """Bundles of one and two versions, and two tombstones; what is live, in order."""
    entry = depositor.file(0x500)
    for number in range(1, 8):
        for version in (VERSION, LATER) if number % 2 else (VERSION,):
            depositor.put_bundle(uuid_of(number), [entry], version=version)
    depositor.drain()
    for query in (f"{uuid_of(2)}?replica=gcp", f"{uuid_of(5)}?replica=aws&version={VERSION}"):
        client.delete(f"/v1/bundles/{query}", json={"reason": "x"}, headers=INGEST)
    return [
        (uuid_of(number), version)
        for number in (1, 3, 4, 5, 6, 7)
        for version in ((VERSION, LATER) if number % 2 else (VERSION,))
        if (number, version) != (5, VERSION)
    ]


def walk(
    client, replica: str, size: int, between: Callable[[], Any] = lambda: None
) -> Iterator[tuple[str, str]]:
    path = f"/v1/bundles/all?replica={replica}&per_page={size}"
    while path:
        page = client.get(path)
        link = page.headers.get("Link", "")
        assert page.status_code == (206 if link else 200)
        assert page.headers["X-OpenAPI-Paginated-Content-Key"] == "bundles"
        assert page.headers["X-OpenAPI-Pagination"] == ("true" if link else "false")
        assert page.json["has_more"] is bool(link)
        assert 0 < page.json["page_count"] == len(page.json["bundles"]) <= size
        yield from ((bundle["uuid"], bundle["version"]) for bundle in page.json["bundles"])
        between()
        path = link.partition(">")[0].removeprefix("<http://localhost")


@pytest.mark.spec("BUN-01", "BUN-02", "BUN-06", "CON-02", "CON-04")
def test_each_live_version_is_listed_once_in_order_by_pages_of_any_size(client, several) -> None:
    for replica, size in product(REPLICAS, (1, 2, 3, 9, 10, 500)):
        assert list(walk(client, replica, size)) == several, (replica, size)


@pytest.mark.spec("BUN-05")
@pytest.mark.parametrize("size", [1, 2, 4])
def test_listing_is_stable_during_writes(client, depositor, several, size) -> None:
    entry = depositor.file(0x500)
    fresh = iter([0, 8, 2, 9, 0x7FF])

    def write() -> None:
        if number := next(fresh, 0):
            depositor.put_bundle(uuid_of(number), [entry], version="2026-04-01T000000.000000Z")

    def remove() -> None:
        write()
        client.delete(
            f"/v1/bundles/{uuid_of(7)}?replica=aws&version={LATER}",
            json={"reason": "x"},
            headers=INGEST,
        )

    seen = list(walk(client, "aws", size, remove))
    assert len(seen) == len(set(seen))
    stayed = set(several) - {(uuid_of(7), LATER)}
    assert [one for one in seen if one in stayed] == sorted(stayed)


@pytest.mark.spec("BUN-07")
def test_the_beginning_of_a_uuid_narrows_the_walk_and_its_pages(client, several) -> None:
    beginning = uuid_of(1)[:-1]
    for prefix in (beginning, beginning.upper(), uuid_of(1)[:1], ""):
        path = f"/v1/bundles/all?replica=aws&prefix={prefix}"
        listed = [(one["uuid"], one["version"]) for one in client.get(path).json["bundles"]]
        assert listed == [each for each in several if each[0].startswith(prefix.lower())]
    page = client.get(f"/v1/bundles/all?replica=aws&prefix={beginning}&per_page=2")
    assert f"prefix={beginning}" in page.headers["Link"]
    for prefix in ("ffff", "xyz", "-", "G7"):
        assert client.get(f"/v1/bundles/all?replica=aws&prefix={prefix}").json["bundles"] == []
    for prefix in ("a_b", "a b", "*", "é", "a%00", "a."):
        refused = client.get(f"/v1/bundles/all?replica=aws&prefix={prefix}")
        assert (refused.status_code, refused.json["code"]) == (400, "illegal_arguments")


@pytest.mark.spec("BUN-04")
def test_a_pointer_belongs_to_its_replica_and_prefix(client, several) -> None:
    link = client.get("/v1/bundles/all?replica=aws&per_page=1").headers["Link"]
    path = link.partition(">")[0].removeprefix("<http://localhost")
    for other in (path.replace("aws", "gcp"), path + "&prefix=0"):
        answer = client.get(other)
        assert (answer.status_code, answer.json["code"]) == (400, "illegal_token")


@pytest.mark.spec("BUN-09", "BUN-22")
def test_bundle_in_one_replica_is_absent_from_the_other(client, depositor, drain) -> None:
    depositor.put_bundle(uuid_of(9), [depositor.file(1)])

    def seen(replica: str) -> tuple[int, int, int, int]:
        listed = client.get(f"/v1/bundles/all?replica={replica}").json["bundles"]
        found = client.post(f"/v1/search?replica={replica}", json={"es_query": {}}).json
        return (
            len(listed),
            client.get(f"/v1/bundles/{uuid_of(9)}?replica={replica}").status_code,
            client.post(f"/v1/bundles/{uuid_of(9)}/checkout?replica={replica}").status_code,
            found["total_hits"],
        )

    assert seen("gcp") == (0, 404, 404, 0)
    drain()
    assert seen("aws") == seen("gcp") == (1, 200, 200, 1)


LATEST = "2026-03-01T000000.000000Z"
UUID = uuid_of(9)


@pytest.fixture
def two_versions(depositor: Depositor) -> str:
    """A bundle in two versions, in both replicas."""
    entry = depositor.file(1)
    for version in (VERSION, LATER):
        assert depositor.put_bundle(UUID, [entry], version=version).status_code == 201
    depositor.drain()
    return UUID


def delete(client, query: str, reason: str = "withdrawn"):
    return client.delete(f"/v1/bundles/{UUID}?{query}", json={"reason": reason}, headers=INGEST)


def live(client, replica: str) -> list[str]:
    listed = client.get(f"/v1/bundles/all?replica={replica}").json["bundles"]
    return [bundle["version"] for bundle in listed]


@pytest.mark.spec("SVC-07", "BUN-06", "BUN-49", "BUN-50", "BUN-51")
@pytest.mark.parametrize("replica", REPLICAS)
def test_deleting_a_version_keeps_other_versions(client, two_versions, replica) -> None:
    gone = delete(client, f"replica={replica}&version={LATER}")
    assert (gone.status_code, gone.json) == (200, {})
    for asked in REPLICAS:
        path = f"/v1/bundles/{UUID}?replica={asked}"
        assert client.get(f"{path}&version={LATER}").status_code == 404
        assert client.get(path).json["bundle"]["version"] == VERSION
        assert live(client, asked) == [VERSION]
        checkout = f"/v1/bundles/{UUID}/checkout?replica={asked}&version={LATER}"
        assert client.post(checkout).status_code == 404


@pytest.mark.spec("SVC-07", "BUN-06", "BUN-32", "BUN-50", "ERR-25")
@pytest.mark.parametrize("replica", REPLICAS)
def test_deleted_bundle_is_gone_with_later_versions(
    client, depositor, two_versions, replica
) -> None:
    assert delete(client, f"replica={replica}").status_code == 200
    for asked in REPLICAS:
        assert live(client, asked) == []
        assert client.get(f"/v1/bundles/{UUID}?replica={asked}").status_code == 404
    entry = depositor.file(1)
    for version in (VERSION, LATEST):
        for named in REPLICAS:
            again = depositor.put_bundle(UUID, [entry], version=version, replica=named)
            assert (again.status_code, again.json["code"]) == (
                409,
                "bundle_tombstone_already_exists",
            )


@pytest.mark.spec("BUN-32", "STA-05")
def test_a_deleted_version_cannot_be_put_again_and_a_later_one_can(
    client, depositor, two_versions
) -> None:
    delete(client, f"replica=aws&version={LATER}")
    entry = depositor.file(1)
    again = depositor.put_bundle(UUID, [entry], version=LATER)
    assert (again.status_code, again.json["code"]) == (409, "bundle_tombstone_already_exists")
    assert depositor.put_bundle(UUID, [entry], version=LATEST).status_code == 201


@pytest.mark.spec("BUN-53")
def test_deletion_notifies_each_live_version_in_each_replica(
    client, stores, depositor, two_versions
) -> None:
    delete(client, f"replica=aws&version={VERSION}")
    for _ in range(2):
        assert delete(client, "replica=gcp").status_code == 200
    depositor.drain()
    with stores.catalog.read() as tx:
        rows = tx.exec_driver_sql("SELECT id FROM events WHERE type = 'TOMBSTONE'").scalars().all()
    expected = {
        events.make_event_id("TOMBSTONE", replica, FQID(UUID, version))
        for replica in REPLICAS
        for version in (VERSION, LATER)
    }
    assert len(rows) == 4
    assert set(rows) == expected


@pytest.mark.spec("BUN-54")
def test_a_version_is_deleted_for_one_reason_only(client, two_versions) -> None:
    for reason, status in (("a", 200), ("a", 200), ("b", 409)):
        answer = delete(client, f"replica=aws&version={LATER}", reason)
        assert answer.status_code == status
    assert answer.json["code"] == "bundle_tombstone_already_exists"


@pytest.mark.spec("BUN-55", "ERR-19")
def test_deleting_absent_bundle_is_404(client, two_versions) -> None:
    for query in (f"replica=aws&version={LATEST}", f"replica=gcp&version={LATEST}"):
        absent = delete(client, query)
        assert (absent.status_code, absent.json["code"]) == (404, "not_found")
    never = client.delete(
        f"/v1/bundles/{uuid_of(77)}?replica=aws", json={"reason": "x"}, headers=INGEST
    )
    assert never.status_code == 404
