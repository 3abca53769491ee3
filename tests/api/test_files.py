import threading

import pytest

from api.app import create_app
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


def test_a_file_that_is_verified_while_waited_for_is_201(settings, stores, drain) -> None:
    worker = _Working(drain)
    working = _served_by(worker, settings, stores)
    answer = working.put_file(uuid_of(1))
    assert (answer.status_code, answer.json) == (201, {"version": VERSION})
    worker.rest()


def test_who_joins_another_writers_verification_is_200(depositor, settings, stores, drain) -> None:
    source = depositor.stage(b"content")
    assert depositor.put_file(uuid_of(1), source=source).status_code == 202
    worker = _Working(drain)
    answer = _served_by(worker, settings, stores).put_file(uuid_of(1), source=source)
    worker.rest()
    assert (answer.status_code, answer.json) == (200, {"version": VERSION})


def _served_by(worker, settings, stores) -> Depositor:
    """A depositor who waits for a worker that works."""
    waiting = type(settings)(home=settings.home, secret_key=settings.secret_key, wait_s=20.0)
    app = create_app(waiting, stores, chains=worker, verify=verify)
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


def test_the_same_content_again_is_200_and_other_content_409(depositor: Depositor) -> None:
    depositor.file(1, b"content")
    again = depositor.put_file(uuid_of(1), b"content")
    assert (again.status_code, again.json) == (200, {"version": VERSION})
    other = depositor.put_file(uuid_of(1), b"other")
    assert (other.status_code, other.json["code"]) == (409, "file_already_exists")


def test_other_content_of_a_pending_version_is_409_with_retry_after(depositor: Depositor) -> None:
    depositor.put_file(uuid_of(1), b"content")
    other = depositor.put_file(uuid_of(1), source=depositor.stage(b"other", "b.txt"))
    assert (other.status_code, other.json["code"]) == (409, "file_pending")
    assert int(other.headers["Retry-After"]) > 0


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


def test_a_content_disposition_is_that_of_the_redirects_target(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    wanted = "attachment; filename=reads.txt"
    read = client.get(
        f"/v1/files/{uuid}", query_string={"replica": "gcp", "content_disposition": wanted}
    )
    served = client.get(read.headers["Location"].removeprefix("http://localhost"))
    assert served.headers["Content-Disposition"] == wanted


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


def test_without_a_version_the_latest_verified_one_is_read(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    depositor.put_file(uuid, b"newer", version=LATER)
    assert client.head(f"/v1/files/{uuid}?replica=aws").headers["X-STORE-VERSION"] == VERSION
    depositor.drain()
    assert client.head(f"/v1/files/{uuid}?replica=aws").headers["X-STORE-VERSION"] == LATER


def test_a_file_whose_content_is_wrong_fails_its_task_and_is_422_when_named(
    depositor, client, stores
) -> None:
    url = depositor.stage(b"content")
    key = stores.sources.area_key(url)
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


def test_checksums_are_wanted_and_must_be_well_formed(depositor, stores) -> None:
    url = depositor.stage(b"content")
    key = stores.sources.area_key(url)
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


def test_a_source_that_is_absent_is_422(depositor: Depositor) -> None:
    url = depositor.stage(b"content")
    answer = depositor.put_file(uuid_of(1), source=url.replace("a.txt", "absent.txt"))
    assert (answer.status_code, answer.json["code"]) == (422, "source_not_found")


def test_the_stores_own_buckets_are_no_source(depositor, settings) -> None:
    own = (settings.home.absolute() / "replicas" / "aws" / "blobs" / "x").as_uri()
    answer = depositor.put_file(uuid_of(1), source=own)
    assert (answer.status_code, answer.json["code"]) == (403, "forbidden")


def test_a_direct_url_of_a_folder_is_refused(depositor, client) -> None:
    uuid = depositor.file(1)["uuid"]
    assert client.get(f"/v1/files/{uuid}?replica=aws&directurl=true").status_code == 400


def test_the_old_path_of_put_is_answered_too(depositor, client) -> None:
    answer = client.put(
        f"/v1/file/{uuid_of(1)}?version={VERSION}",
        json={"source_url": depositor.stage(b"content"), "creator_uid": 7},
        headers=INGEST,
    )
    assert answer.status_code == 202


def test_an_absent_task_is_404(client) -> None:
    assert client.get(f"/v1/tasks/{uuid_of(1)}").status_code == 404
