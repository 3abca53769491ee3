"""Presigned object URLs of folder replicas over HTTP."""

import pytest
from werkzeug.test import create_environ

from api.http.responses import force_attachment
from api.objects import parse_range
from storage.blobs.folder import FolderBlobs
from storage.model import REPLICAS

pytestmark = pytest.mark.spec("FIL-36")

DATA = bytes(range(256)) * 40
KEY = "blobs/aa/object"


@pytest.fixture
def url(stores) -> str:
    stores.replicas["aws"].put(KEY, DATA, content_type="text/html")
    return stores.replicas["aws"].sign(KEY, expires_s=60, content_type="text/html; charset=utf-8")


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        (None, 10, (0, 10)),
        ("bytes=0-", 10, (0, 10)),
        ("bytes=2-5", 10, (2, 4)),
        ("bytes=2-500", 10, (2, 8)),
        ("bytes=-3", 10, (7, 3)),
        ("bytes=-30", 10, (0, 10)),
        ("bytes=9-9", 10, (9, 1)),
        ("bytes=10-", 10, None),
        ("bytes=-0", 10, None),
        ("bytes=0-", 0, None),
        ("bytes=-5", 0, (0, 0)),
        ("bytes=5-2", 10, (0, 10)),
        ("bytes=1-2,4-5", 10, (0, 10)),
        ("lines=1-2", 10, (0, 10)),
        ("bytes=-", 10, (0, 10)),
    ],
)
def test_ranges_follow_rfc_9110(header, size, expected) -> None:
    assert parse_range(header, size) == expected


def test_served_content_cannot_run_scripts(client, url) -> None:
    answer = client.get(url)
    assert (answer.status_code, answer.data) == (200, DATA)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Disposition"] == "attachment"
    assert answer.headers["Content-Length"] == str(len(DATA))


def test_serves_single_range(client, url) -> None:
    answer = client.get(url, headers={"Range": "bytes=256-258"})
    assert (answer.status_code, answer.data) == (206, b"\x00\x01\x02")
    assert answer.headers["Content-Range"] == f"bytes 256-258/{len(DATA)}"


@pytest.mark.spec("ERR-33")
def test_a_range_outside_is_416_with_the_size(client, url) -> None:
    answer = client.get(url, headers={"Range": f"bytes={len(DATA)}-"})
    assert (answer.status_code, answer.json["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == f"bytes */{len(DATA)}"


@pytest.mark.spec("CON-17")
def test_head_has_the_same_headers_and_no_body(client, url) -> None:
    answer = client.head(url)
    assert (answer.status_code, answer.data) == (200, b"")
    assert answer.headers["Content-Length"] == str(len(DATA))


@pytest.mark.parametrize("changed", ["blobs/aa/other", "blobs/aa/object%2F..%2Fx"])
def test_signature_is_valid_for_its_key_only(client, url, changed) -> None:
    answer = client.get(url.replace(KEY, changed))
    assert (answer.status_code, answer.json["code"]) == (403, "forbidden")


@pytest.mark.spec("BUN-15", "ERR-18")
def test_unsigned_forged_and_expired_urls_are_403(client, url, stores) -> None:
    assert client.get(url.partition("?")[0]).status_code == 403
    assert client.get(url[:-1] + ("0" if url[-1] != "0" else "1")).status_code == 403
    expired = stores.replicas["aws"].sign(KEY, expires_s=-1)
    assert client.get(expired).status_code == 403
    other = url.replace("/objects/aws/", "/objects/gcp/")
    assert client.get(other).status_code == 403


@pytest.mark.spec("ERR-19")
def test_an_absent_bucket_and_an_absent_object_are_404(client, url, stores) -> None:
    assert client.get(url.replace("/objects/aws/", "/objects/nowhere/")).status_code == 404
    absent = stores.replicas["aws"].sign("blobs/aa/absent", expires_s=60)
    assert client.get(absent).status_code == 404


def test_every_replica_is_served(client, stores) -> None:
    for replica in REPLICAS:
        stores.replicas[replica].put("k", replica.encode())
        served = client.get(stores.replicas[replica].sign("k", expires_s=60))
        assert served.data == replica.encode()


def test_abandoned_response_closes_file(client, url, monkeypatch) -> None:
    payload = FolderBlobs.open_payload
    files = []

    def opened(self, key):
        found = payload(self, key)
        files.append(found[0])
        return found

    monkeypatch.setattr(FolderBlobs, "open_payload", opened)
    # As a server calls an application whose client has gone before the first byte.
    body = client.application.wsgi_app(create_environ(url), lambda status, headers: None)
    body.close()
    assert [file.closed for file in files] == [True]


def test_a_server_with_means_of_its_own_is_handed_the_file(client, url) -> None:
    handed = []

    def wrapper(file, size):
        handed.append(file.read(3))
        file.close()
        return iter(handed)

    answer = client.get(
        url, headers={"Range": "bytes=1-3"}, environ_overrides={"wsgi.file_wrapper": wrapper}
    )
    assert answer.data == b"\x01\x02\x03"
    assert len(handed) == 1


@pytest.mark.spec("FIL-33")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (None, "attachment"),
        ("", "attachment"),
        ("attachment", "attachment"),
        ('ATTACHMENT; filename="a b"', 'attachment; filename="a b"'),
        (
            "attachment; filename=a; filename*=UTF-8''a",
            "attachment; filename=a; filename*=UTF-8''a",
        ),
        ("inline", "attachment"),
        (" InLine ; filename=a.html", "attachment; filename=a.html"),
        ("; filename=a.html", "attachment"),
        ("inline, attachment", "attachment"),
        ("attachment, inline; filename=a", "attachment"),
        ('"inline"', "attachment"),
        ("shown", "attachment"),
    ],
)
def test_serves_attachments_under_requested_name(asked, told) -> None:
    assert force_attachment(asked) == told


@pytest.mark.spec("FIL-33")
def test_a_url_that_was_signed_for_inline_serves_an_attachment(client, stores) -> None:
    aws = stores.replicas["aws"]
    aws.put(KEY, b"<script>", content_type="text/html")
    url = aws.sign(KEY, expires_s=60, content_type="text/html", disposition="inline; filename=a")
    answer = client.get(url)
    assert (answer.status_code, answer.data) == (200, b"<script>")
    assert answer.headers["Content-Disposition"] == "attachment; filename=a"
    assert client.head(url).headers["Content-Disposition"] == "attachment; filename=a"
