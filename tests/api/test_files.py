"""Files over HTTP: put by reference, verify, read by redirect."""

import hashlib
import json
import threading
from dataclasses import replace
from urllib.parse import unquote

import crcmod.predefined
import pytest

from api.app import create_app
from api.http.auth import REPLICA_BY_SCHEME
from pipelines import ingest
from pipelines.limits import PENDING_RETRY_S
from storage import keys
from storage.blobs.sources import SourceSettings, UrlSources
from storage.catalog import ingest as catalog_ingest
from storage.catalog import jobs
from storage.errors import Unavailable
from storage.model import Job
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import verify

HEADERS = (
    "X-STORE-SHA1",
    "X-STORE-SHA256",
    "X-STORE-S3-ETAG",
    "X-STORE-CRC32C",
    "X-STORE-CONTENT-TYPE",
    "X-STORE-CREATOR-UID",
    "X-STORE-VERSION",
    "X-STORE-SIZE",
)
LATER = "2026-03-01T000000.000000Z"
NEVER = "2026-02-01T000000.000000Z"


@pytest.mark.spec("FIL-02", "FIL-23", "FIL-24", "FIL-25", "STA-06")
def test_a_file_that_is_not_verified_yet_is_202_with_its_task(depositor: Depositor) -> None:
    answer = depositor.put_file(uuid_of(1))
    assert answer.status_code == 202
    assert answer.json["version"] == VERSION
    task = answer.headers["Location"]
    assert task == f"http://localhost/v1/tasks/{answer.json['task_id']}"
    path = task.removeprefix("http://localhost")
    pending = depositor.client.get(path).json
    assert (pending["status"], pending["bytes_done"]) == ("PENDING", 0)
    depositor.drain()
    done = depositor.client.get(path).json
    assert (done["status"], done["bytes_done"], done["bytes_total"]) == ("SUCCEEDED", 7, 7)


@pytest.mark.spec("FIL-42")
def test_several_files_are_written_by_one_request(depositor: Depositor) -> None:
    kept = uuid_of(1)
    depositor.put_file(kept)
    depositor.drain()
    new, same, other, absent = (uuid_of(number) for number in range(2, 6))
    assert depositor.put_file(other, b"other").status_code == 202
    source = depositor.stage(b"content")
    assert depositor.put_file(same, source=source).status_code == 202
    sources = dict.fromkeys((new, kept, same, other), source) | {absent: f"{source}-absent"}
    answer = depositor.put_files(sources)
    assert answer.status_code == 200
    found = {one.pop("uuid"): one for one in answer.json["files"]}
    assert [*found] == [*sources]
    assert {one.pop("version") for one in found.values()} == {VERSION}
    assert [one.pop("detail", "")[:11] for one in found.values()][:3] == ["", "", ""]
    assert found[kept] == {}
    pending = {"status": 409, "code": "file_pending", "retry_after_s": PENDING_RETRY_S}
    assert found[other] == pending
    assert found[absent] == {"status": 422, "code": "source_not_found"}
    assert [*found[new]] == [*found[same]] == ["task_id"]
    depositor.drain()
    for uuid in (new, same):
        task = depositor.client.get(f"/v1/tasks/{found[uuid]['task_id']}").json
        assert (task["status"], task["uuid"]) == ("SUCCEEDED", uuid)
    again = depositor.put_files(dict.fromkeys((new, same), source)).json["files"]
    assert again == [{"uuid": uuid, "version": VERSION} for uuid in (new, same)]


@pytest.mark.spec("FIL-42")
def test_refused_item_has_error_of_put_file(depositor, stores, monkeypatch) -> None:
    staged = depositor.stage(b"content")
    key = stores.sources.resolve_area_key(staged)
    declared = dict(stores.areas.head(key).metadata)
    stores.areas.delete(key)
    del declared["store-crc32c"]
    stores.areas.put(key, b"content", metadata=declared)
    lacking = _refused_both_ways(depositor, staged)
    assert lacking["errors"] == {"store-crc32c": ["is missing"]}
    assert "retry_after_s" not in lacking
    unknown = _refused_both_ways(depositor, "ftp://somewhere/a")
    assert (unknown["status"], "errors" in unknown) == (400, False)

    def away(url: str) -> None:
        raise Unavailable("The server of the source failed.", retry_after_s=7)

    monkeypatch.setattr(stores.sources, "open", away)
    failed = _refused_both_ways(depositor, staged)
    assert (failed["status"], failed["retry_after_s"]) == (503, 7)
    assert "errors" not in failed


def _refused_both_ways(depositor: Depositor, source: str) -> dict[str, object]:
    """The item of put_files, once it was compared with the answer of put_file."""
    alone = depositor.client.put(
        f"/v1/files/{uuid_of(1)}?version={VERSION}&replica=aws",
        json={"source_url": source, "creator_uid": 7},
        headers=INGEST,
    )
    (item,) = depositor.put_files({uuid_of(1): source}).json["files"]
    members = ("status", "code", "detail", "errors")
    assert {name: item.get(name) for name in members} == {
        name: alone.json.get(name) for name in members
    }
    wait_s = alone.headers.get("Retry-After")
    assert item.get("retry_after_s") == (None if wait_s is None else int(wait_s))
    return dict(item)


@pytest.mark.spec("FIL-41")
@pytest.mark.parametrize(
    ("files", "pointer"),
    [
        ([], "/files"),
        ([{}] * 101, "/files"),
        (
            [{"uuid": uuid_of(1), "version": VERSION, "source_url": "s3://b/k"}],
            "/files/0/creator_uid",
        ),
        (
            [{"uuid": uuid_of(1), "version": VERSION, "source_url": "s3://b/k", "creator_uid": 7}]
            * 2,
            "/files",
        ),
    ],
)
def test_several_files_that_cannot_be_are_named(
    depositor: Depositor, files: list[dict[str, object]], pointer: str
) -> None:
    answer = depositor.client.put("/v1/files?replica=aws", json={"files": files}, headers=INGEST)
    assert (answer.status_code, [*answer.json["errors"]]) == (400, [pointer])


@pytest.mark.spec("FIL-02", "CON-14")
def test_a_file_that_is_verified_while_waited_for_is_201(settings, stores, drain) -> None:
    worker = _Working(drain)
    working = _served_by(worker, settings, stores)
    answer = working.put_file(uuid_of(1))
    assert (answer.status_code, answer.json) == (201, {"version": VERSION})
    worker.rest()


@pytest.mark.spec("FIL-03")
def test_joining_a_running_verification_is_200(depositor, settings, stores, drain) -> None:
    source = depositor.stage(b"content")
    assert depositor.put_file(uuid_of(1), source=source).status_code == 202
    worker = _Working(drain)
    answer = _served_by(worker, settings, stores).put_file(uuid_of(1), source=source)
    worker.rest()
    assert (answer.status_code, answer.json) == (200, {"version": VERSION})


def _served_by(worker, settings, stores) -> Depositor:
    """A depositor who waits for a worker that works."""
    waiting = type(settings)(home=settings.home, secret_key=settings.secret_key, wait_s=20.0)
    app = create_app(waiting, stores, job_queue=worker, verify=verify)
    return Depositor(app.test_client(), worker.drain)


class _Working:
    """A sender whose worker begins at once, in a thread of its own."""

    def __init__(self, drain) -> None:
        self.drain = drain
        self.threads: list[threading.Thread] = []

    def send(self, rows, request_id="") -> None:
        self.threads.append(threading.Timer(0.2, self.drain))
        self.threads[-1].start()

    def rest(self) -> None:
        """Return when it has nothing in hand: nobody works on a store that is closed."""
        for thread in self.threads:
            thread.join()

    def ping(self) -> None:
        """Always there."""


@pytest.mark.spec("SVC-01", "FIL-03", "FIL-04", "ERR-22")
def test_the_same_content_again_is_200_and_other_content_409(depositor: Depositor) -> None:
    depositor.file(1, b"content")
    again = depositor.put_file(uuid_of(1), b"content")
    assert (again.status_code, again.json) == (200, {"version": VERSION})
    other = depositor.put_file(uuid_of(1), b"other")
    assert (other.status_code, other.json["code"]) == (409, "file_already_exists")


@pytest.mark.spec("FIL-04", "FIL-22", "ERR-27")
def test_changed_content_of_pending_version_is_409_with_retry_after(depositor: Depositor) -> None:
    depositor.put_file(uuid_of(1), b"content")
    other = depositor.put_file(uuid_of(1), source=depositor.stage(b"other", "b.txt"))
    assert (other.status_code, other.json["code"]) == (409, "file_pending")
    assert int(other.headers["Retry-After"]) > 0


@pytest.mark.spec("SVC-02", "FIL-27", "FIL-28", "FIL-29")
def test_head_answers_the_metadata_and_get_redirects_to_the_bytes(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    head = client.head(f"/v1/files/{uuid}?replica=aws")
    assert (head.status_code, head.data) == (200, b"")
    assert head.headers["X-STORE-SIZE"] == "7"
    assert head.headers["X-STORE-CREATOR-UID"] == "7"
    assert head.headers["X-STORE-CONTENT-TYPE"] == "text/plain"
    read = client.get(f"/v1/files/{uuid}?replica=aws&version={VERSION}")
    assert read.status_code == 302
    assert [read.headers[name] for name in HEADERS] == [head.headers[name] for name in HEADERS]
    target = read.headers["Location"].removeprefix("http://localhost")
    assert client.get(target).data == b"content"


@pytest.mark.spec("FIL-33")
def test_a_content_disposition_is_that_of_the_redirects_target(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    wanted = "attachment; filename=reads.txt"
    read = client.get(
        f"/v1/files/{uuid}", query_string={"replica": "gcp", "content_disposition": wanted}
    )
    served = client.get(read.headers["Location"], buffered=True)
    assert served.headers["Content-Disposition"] == wanted


@pytest.mark.spec("FIL-33")
@pytest.mark.parametrize(
    ("name", "fallback", "encoded"),
    [
        ("Käfer.txt", "Kafer.txt", "K%C3%A4fer.txt"),
        ("数据 1;%.json", "__ 1;_.json", "%E6%95%B0%E6%8D%AE%201%3B%25.json"),
        ("\U0001f600" * 100, "_" * 100, "%F0%9F%98%80" * 100),
    ],
)
def test_a_file_name_may_have_any_letters(depositor, client, name, fallback, encoded) -> None:
    uuid = depositor.file(1)["uuid"]
    asked = {"replica": "aws", "content_disposition": f'attachment; filename="{name}"'}
    read = client.get(f"/v1/files/{uuid}", query_string=asked)
    assert read.status_code == 302, read.text
    served = client.get(read.headers["Location"], buffered=True)
    wanted = f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{encoded}"
    assert served.headers["Content-Disposition"] == wanted


@pytest.mark.spec("FIL-33")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ('attachment; filename="\u4f60', "a form like"),
        ("K\xe4fer.txt", "a form like"),
        # An ambiguous pattern would take years for this one.
        ("attachment" + ";a=  " * 150 + '"\u4f60', "a form like"),
        ("\xe4ttachment", "a form like"),
        ('attachment; name="\xe4"', "Only filename"),
        ('attachment; filename="\xe4\x85"', "control characters"),
        ("attachment; filename=a\nb", "control characters"),
        ("a" * 1025, "at most 1024"),
        ("attachment; filename=" + "\u4f60" * 900, "at most 3000"),
    ],
)
def test_a_disposition_that_no_header_carries_is_refused(client, asked, said) -> None:
    query = {"replica": "aws", "content_disposition": asked}
    answer = client.get(f"/v1/files/{uuid_of(1)}", query_string=query)
    assert (answer.status_code, list(answer.json["errors"])) == (400, ["content_disposition"])
    assert said in answer.json["detail"]


@pytest.mark.spec("FIL-33")
def test_inline_is_refused_where_the_store_serves_the_bytes_itself(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    for asked in ("inline", " INLINE ; filename=a.html"):
        query = {"replica": "aws", "content_disposition": asked}
        answer = client.get(f"/v1/files/{uuid}", query_string=query)
        assert (answer.status_code, list(answer.json["errors"])) == (400, ["content_disposition"])
        assert "only as attachments" in answer.json["detail"]


@pytest.mark.spec("FIL-33")
def test_inline_is_passed_to_a_cloud_bucket(depositor, settings, stores, job_queue) -> None:
    uuid = depositor.file(1)["uuid"]
    cloud = replace(settings, replica_aws="s3://bucket")
    client = create_app(cloud, stores, job_queue=job_queue, verify=verify).test_client()
    query = {"replica": "aws", "content_disposition": 'inline; filename="\xe4"'}
    location = client.get(f"/v1/files/{uuid}", query_string=query).headers["Location"]
    assert "inline; filename=\"a\"; filename*=UTF-8''%C3%A4" in unquote(location)


@pytest.mark.spec("FIL-31", "CON-01", "ERR-04")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_pending_file_is_301_to_itself_with_what_was_declared(depositor, client, method) -> None:
    depositor.put_file(uuid_of(1))
    path = f"/v1/files/{uuid_of(1)}?replica=aws&version={VERSION}"
    answer = client.open(path, method=method)
    assert answer.status_code == 301
    assert answer.headers["Location"] == f"http://localhost{path}"
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-STORE-SIZE"] == "7"


@pytest.mark.spec("SVC-01", "FIL-27", "VER-02")
def test_without_a_version_the_latest_verified_one_is_read(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    depositor.put_file(uuid, b"newer", version=LATER)
    assert client.head(f"/v1/files/{uuid}?replica=aws").headers["X-STORE-VERSION"] == VERSION
    depositor.drain()
    assert client.head(f"/v1/files/{uuid}?replica=aws").headers["X-STORE-VERSION"] == LATER
    for version, size in ((VERSION, "7"), (LATER, "5")):
        named = client.head(f"/v1/files/{uuid}?replica=aws&version={version}")
        assert (named.status_code, named.headers["X-STORE-SIZE"]) == (200, size)
    assert client.head(f"/v1/files/{uuid}?replica=aws&version={NEVER}").status_code == 404


@pytest.mark.spec("FIL-24", "FIL-26", "FIL-32", "STA-06", "ERR-36")
def test_wrong_checksum_fails_task_and_is_422_in_bundle(depositor, client, stores) -> None:
    url = depositor.stage(b"content")
    key = stores.sources.resolve_area_key(url)
    info = stores.areas.head(key)
    stores.areas.delete(key)
    stores.areas.put(key, b"CONTENT", metadata=info.metadata)
    task = depositor.put_file(uuid_of(1), source=url).json["task_id"]
    depositor.drain()
    failed = client.get(f"/v1/tasks/{task}").json
    assert failed["status"] == "FAILED"
    assert failed["cause"]["code"] == "checksum_mismatch"
    assert {"field", "declared", "computed"} <= failed["cause"].keys()
    named = client.head(f"/v1/files/{uuid_of(1)}?replica=aws&version={VERSION}")
    assert named.status_code == 422
    assert client.get(f"/v1/files/{uuid_of(1)}?replica=aws").status_code == 404


@pytest.mark.spec("FIL-09", "ERR-34", "ERR-35")
def test_requires_well_formed_checksums(depositor, stores) -> None:
    url = depositor.stage(b"content")
    key = stores.sources.resolve_area_key(url)
    good = dict(stores.areas.head(key).metadata)
    for metadata, code in (
        ({**good, "store-sha1": "xyz"}, "invalid_checksum"),
        (
            {name: value for name, value in good.items() if name != "store-crc32c"},
            "missing_checksum",
        ),
    ):
        stores.areas.delete(key)
        stores.areas.put(key, b"content", metadata=metadata)
        answer = depositor.put_file(uuid_of(1), source=url)
        assert (answer.status_code, answer.json["code"]) == (422, code)


@pytest.mark.spec("FIL-19", "ERR-11", "ERR-18")
@pytest.mark.parametrize(
    ("source", "status", "code"),
    [
        ("ftp://somewhere/a", 400, "unknown_source_schema"),
        ("https://elsewhere.example/a", 400, "unknown_source_schema"),
        ("no url", 400, "unknown_source_schema"),
        ("file:///etc/passwd", 403, "forbidden"),
    ],
)
def test_sources_that_may_not_be_read_are_refused(depositor, source, status, code) -> None:
    answer = depositor.put_file(uuid_of(1), source=source)
    assert (answer.status_code, answer.json["code"]) == (status, code)


@pytest.mark.spec("FIL-21", "ERR-37")
def test_a_source_that_is_absent_is_422(depositor: Depositor) -> None:
    url = depositor.stage(b"content")
    answer = depositor.put_file(uuid_of(1), source=url.replace("a.txt", "absent.txt"))
    assert (answer.status_code, answer.json["code"]) == (422, "source_not_found")


@pytest.mark.spec("ERR-45")
@pytest.mark.parametrize("source", ["s3://elsewhere/reads", "gs://elsewhere/reads"])
def test_a_source_that_cannot_be_read_is_422(depositor, monkeypatch, source) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    answer = depositor.put_file(uuid_of(1), source=source)
    assert (answer.status_code, answer.json["code"]) == (422, "source_not_readable")
    assert "cannot be read" in answer.json["detail"]


@pytest.mark.spec("FIL-20")
def test_rejects_store_buckets_as_source(depositor, settings) -> None:
    own = (settings.home.absolute() / "replicas" / "aws" / "blobs" / "x").as_uri()
    answer = depositor.put_file(uuid_of(1), source=own)
    assert (answer.status_code, answer.json["code"]) == (403, "forbidden")


@pytest.mark.spec("FIL-34")
def test_a_direct_url_of_a_folder_is_refused(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    assert client.get(f"/v1/files/{uuid}?replica=aws&directurl=true").status_code == 400


@pytest.mark.spec("FIL-01", "CON-12")
def test_the_old_path_of_put_is_answered_too(depositor, client) -> None:
    answer = client.put(
        f"/v1/file/{uuid_of(1)}?version={VERSION}",
        json={"source_url": depositor.stage(b"content"), "creator_uid": 7},
        headers=INGEST,
    )
    assert answer.status_code == 202


@pytest.mark.spec("FIL-23")
def test_an_absent_task_is_404(client) -> None:
    assert client.get(f"/v1/tasks/{uuid_of(1)}").status_code == 404


@pytest.mark.spec("FIL-30")
def test_headers_have_deposited_values(depositor, client) -> None:
    kind = 'application/json; dcp-type="metadata/biomaterial"'
    depositor.put_file(uuid_of(1), source=depositor.stage(b"{}", "d.json", kind))
    depositor.drain()
    for method in ("HEAD", "GET"):
        answer = client.open(f"/v1/files/{uuid_of(1)}?replica=gcp", method=method)
        assert {name: answer.headers[name] for name in HEADERS} == {
            "X-STORE-SHA1": hashlib.sha1(b"{}").hexdigest(),
            "X-STORE-SHA256": hashlib.sha256(b"{}").hexdigest(),
            "X-STORE-S3-ETAG": hashlib.md5(b"{}").hexdigest(),
            "X-STORE-CRC32C": f"{crcmod.predefined.mkPredefinedCrcFun('crc-32c')(b'{}'):08x}",
            "X-STORE-CONTENT-TYPE": kind,
            "X-STORE-CREATOR-UID": "7",
            "X-STORE-VERSION": VERSION,
            "X-STORE-SIZE": "2",
        }
    target = client.get(f"/v1/files/{uuid_of(1)}?replica=gcp").headers["Location"]
    assert client.get(target, buffered=True).headers["Content-Type"] == kind


@pytest.mark.spec("FIL-15")
def test_an_empty_file_is_stored_and_read(depositor, client) -> None:
    depositor.file(1, b"")
    read = client.get(f"/v1/files/{uuid_of(1)}?replica=gcp")
    assert read.headers["X-STORE-SIZE"] == "0"
    assert client.get(read.headers["Location"]).data == b""


@pytest.mark.spec("FIL-16", "FIL-36")
def test_the_same_bytes_under_another_uuid_are_another_file(depositor, client, stores) -> None:
    depositor.file(1, b"same")
    depositor.put_file(uuid_of(2), source=depositor.stage(b"same", "b.json", "application/json"))
    depositor.drain()
    types = {}
    for number in (1, 2):
        read = client.get(f"/v1/files/{uuid_of(number)}?replica=aws")
        served = client.get(read.headers["Location"], buffered=True)
        types[number] = served.headers["Content-Type"]
    assert types[1].startswith("text/plain")
    assert types[2] == "application/json"
    blobs = list(stores.replicas["aws"].list("blobs/"))
    assert len(blobs) == 1


@pytest.mark.spec("FIL-05")
def test_a_file_of_another_creator_or_type_is_other_content(depositor: Depositor) -> None:
    depositor.file(1, b"content")
    typed = depositor.put_file(uuid_of(1), source=depositor.stage(b"content", "b", "text/csv"))
    assert (typed.status_code, typed.json["code"]) == (409, "file_already_exists")
    created = depositor.client.put(
        f"/v1/files/{uuid_of(1)}?version={VERSION}",
        json={"source_url": depositor.stage(b"content"), "creator_uid": 8},
        headers=INGEST,
    )
    assert (created.status_code, created.json["code"]) == (409, "file_already_exists")


@pytest.mark.spec("FIL-06", "FIL-24")
@pytest.mark.parametrize(("named", "kept"), [(None, "aws"), ("aws", "aws"), ("gcp", "gcp")])
def test_the_replica_is_the_one_named_or_that_of_the_source(depositor, client, named, kept) -> None:
    query = f"version={VERSION}" + (f"&replica={named}" if named else "")
    answer = client.put(
        f"/v1/files/{uuid_of(1)}?{query}",
        json={"source_url": depositor.stage(b"content"), "creator_uid": 7},
        headers=INGEST,
    )
    task = client.get(f"/v1/tasks/{answer.json['task_id']}").json
    assert task == {
        "task_id": answer.json["task_id"],
        "status": "PENDING",
        "uuid": uuid_of(1),
        "version": VERSION,
        "replica": kept,
        "bytes_done": 0,
        "bytes_total": 7,
    }


@pytest.mark.spec("FIL-06")
def test_scheme_selects_replica() -> None:
    assert REPLICA_BY_SCHEME == {"s3": "aws", "gs": "gcp", "file": "aws"}


@pytest.mark.spec("FIL-14")
def test_a_source_without_a_type_is_a_stream_of_bytes(
    depositor, client, settings, stores, job_queue, tmp_path
) -> None:
    root = tmp_path / "staging"
    root.mkdir()
    (root / "a").write_bytes(b"content")
    staged = depositor.stage(b"content")
    declared = dict(stores.areas.head(stores.sources.resolve_area_key(staged)).metadata)
    (root / "a.store.json").write_text(json.dumps(declared))
    sources = UrlSources(SourceSettings(areas=stores.areas, staging_roots=(str(root),)))
    own = replace(stores, sources=sources)
    app = create_app(settings, own, job_queue=job_queue, verify=verify)
    answer = Depositor(app.test_client(), depositor.drain).put_file(
        uuid_of(1), source=(root / "a").as_uri()
    )
    assert answer.status_code == 202
    head = client.head(f"/v1/files/{uuid_of(1)}?replica=aws")
    assert head.headers["X-STORE-CONTENT-TYPE"] == "application/octet-stream"


@pytest.mark.spec("FIL-31")
def test_a_file_that_is_only_in_the_other_replica_is_301_until_it_is_here(
    depositor, client, stores, drain
) -> None:
    depositor.file(1)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM visible WHERE replica = 'gcp'")
        jobs.insert(tx, [Job("sync", "gcp", f"file:{uuid_of(1)}.{VERSION}")])
    path = f"/v1/files/{uuid_of(1)}?replica=gcp"
    for method in ("GET", "HEAD"):
        answer = client.open(path, method=method)
        assert (answer.status_code, answer.headers["Location"]) == (301, f"http://localhost{path}")
        assert int(answer.headers["Retry-After"]) > 0
    drain()
    assert client.get(path).status_code == 302


@pytest.mark.spec("FIL-34")
def test_direct_url_ignores_disposition(depositor, settings, stores, job_queue) -> None:
    depositor.file(1)
    own = replace(settings, direct_file_urls=True)
    client = create_app(own, stores, job_queue=job_queue, verify=verify).test_client()
    path = f"/v1/files/{uuid_of(1)}?replica=aws&directurl=true"
    plain = client.get(path)
    assert plain.status_code == 302
    sha256 = plain.headers["X-STORE-SHA256"]
    assert plain.headers["Location"] == stores.replicas["aws"].direct_url(keys.blob_key(sha256))
    disposed = client.get(f"{path}&content_disposition=attachment")
    assert disposed.headers["Location"] == plain.headers["Location"]


@pytest.mark.spec("FIL-22", "STA-06")
def test_a_version_that_failed_may_be_put_again(depositor, client, stores) -> None:
    url = depositor.stage(b"content")
    key = stores.sources.resolve_area_key(url)
    metadata = stores.areas.head(key).metadata
    stores.areas.delete(key)
    stores.areas.put(key, b"CONTENT", metadata=metadata)
    depositor.put_file(uuid_of(1), source=url)
    depositor.drain()
    path = f"/v1/files/{uuid_of(1)}?replica=aws&version={VERSION}"
    assert client.get(path).status_code == 422
    assert depositor.put_file(uuid_of(1), source=depositor.stage(b"content", "b.txt")).status_code
    depositor.drain()
    assert client.get(path).status_code == 302


@pytest.mark.spec("FIL-24", "FIL-25", "STA-06")
def test_a_task_runs_from_its_claim_to_its_end(depositor, client, stores) -> None:
    ident = depositor.put_file(uuid_of(1)).json["task_id"]
    with stores.catalog.write() as tx:
        claim = jobs.claim(tx, Job("verify", "aws", ident), token="t", lease_s=60, max_claims=5)
        catalog_ingest.record_progress(tx, ident, 3)
    assert claim is not None
    running = client.get(f"/v1/tasks/{ident}").json
    assert (running["status"], running["bytes_done"], running["bytes_total"]) == ("RUNNING", 3, 7)
    ingest.verify(stores, claim, lambda _n: None)
    done = client.get(f"/v1/tasks/{ident}").json
    assert (done["status"], done["bytes_done"]) == ("SUCCEEDED", 7)


@pytest.mark.spec("FIL-27")
def test_a_pending_file_without_a_version_is_the_latest_pending_one(depositor, client) -> None:
    source = depositor.stage(b"content")
    for version in (LATER, VERSION):
        depositor.put_file(uuid_of(1), source=source, version=version)
    for method in ("GET", "HEAD"):
        answer = client.open(f"/v1/files/{uuid_of(1)}?replica=aws", method=method)
        assert (answer.status_code, answer.headers["X-STORE-VERSION"]) == (301, LATER)
    depositor.drain()
    assert client.head(f"/v1/files/{uuid_of(1)}?replica=aws").headers["X-STORE-VERSION"] == LATER
    assert client.head(f"/v1/files/{uuid_of(2)}?replica=aws").status_code == 404


@pytest.mark.spec("FIL-44", "FIL-45", "FIL-46")
def test_file_lists_its_bundles(depositor, client) -> None:
    first, second = depositor.files([1, 2])
    names = sorted(uuid_of(number) for number in (20, 21, 22))
    for uuid in names:
        twice = {**first, "name": "again.txt"}
        assert depositor.put_bundle(uuid, [first, twice, second]).status_code == 201
    assert depositor.put_bundle(uuid_of(23), [second]).status_code == 201
    path = f"/v1/files/{uuid_of(1)}/bundles"
    whole = client.get(f"{path}?replica=aws&version={VERSION}")
    assert whole.status_code == 200
    listed = [{"uuid": uuid, "version": VERSION} for uuid in names]
    assert whole.json == {"bundles": listed, "has_more": False, "page_count": 3, "per_page": 100}
    page = client.get(f"{path}?replica=aws&per_page=2")
    assert (page.status_code, page.json["bundles"]) == (206, listed[:2])
    following = page.headers["Link"].split(">")[0].lstrip("<")
    last = client.get(following.removeprefix("http://localhost"))
    assert (last.status_code, last.json["bundles"]) == (200, listed[2:])
    for size in ("0", "501"):
        assert client.get(f"{path}?replica=aws&per_page={size}").status_code == 400
    other = f"/v1/files/{uuid_of(2)}/bundles?replica=aws&"
    assert client.get(other + following.partition("?")[2]).status_code == 400


@pytest.mark.spec("FIL-44", "FIL-45")
def test_bundles_of_file_are_live_and_of_its_replica(depositor, client) -> None:
    entry = depositor.file(1)
    assert depositor.put_bundle(uuid_of(20), [entry]).status_code == 201
    assert depositor.put_bundle(uuid_of(21), [entry]).status_code == 201
    path = f"/v1/files/{uuid_of(1)}/bundles"
    client.delete(f"/v1/bundles/{uuid_of(20)}?replica=aws", json={"reason": "r"}, headers=INGEST)
    assert [one["uuid"] for one in client.get(f"{path}?replica=aws").json["bundles"]] == [
        uuid_of(21)
    ]
    assert client.get(f"{path}?replica=aws&version={NEVER}").status_code == 404
    assert client.get(f"/v1/files/{uuid_of(9)}/bundles?replica=aws").status_code == 404
    assert client.get(path).status_code == 400
