"""Files of upload areas over HTTP: put, register, list, delete."""

import hashlib
import io
from dataclasses import replace

import httpx
import pytest

from api.app import create_app
from storage import keys
from tests.api.builders import AREA, INGEST, VERSION, uuid_of
from tests.api.conftest import verify

OTHER = {"Authorization": "Bearer other"}
PATH = f"/v1/area/{AREA}"
FILES = f"{PATH}/files"


@pytest.fixture(autouse=True)
def _area(client) -> None:
    assert client.post(PATH, headers=INGEST).status_code == 201


@pytest.fixture
def past(stores):
    """Lays a file into the area past the API."""

    def lay(name: str, data: bytes, **more) -> None:
        stores.areas.put(keys.area_file_key(AREA, name), data, replace=True, **more)

    return lay


def asked(client, what: str, name: str) -> dict:
    answer = client.get(f"{PATH}/{what}", query_string={"filename": name}, headers=INGEST)
    assert answer.status_code == 200, answer.text
    return answer.json


@pytest.mark.spec("ARE-02")
def test_stores_file_with_checksums(client, stores) -> None:
    data = b"x" * 100_000
    kept = client.put(f"{FILES}/deep/er.bin", data=data, headers=INGEST)
    assert kept.status_code == 201
    assert kept.json["size"] == len(data)
    assert kept.json["checksums"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert stores.sources.resolve_area_key(kept.json["url"]) == f"areas/{AREA}/deep/er.bin"


@pytest.mark.spec("ARE-02")
def test_an_empty_file_is_a_file(client) -> None:
    kept = client.put(f"{FILES}/empty", data=b"", headers=INGEST)
    assert (kept.status_code, kept.json["size"]) == (201, 0)


@pytest.mark.spec("ARE-02")
def test_missing_body_is_an_empty_file(client) -> None:
    kept = client.put(f"{FILES}/none", headers=INGEST)
    assert (kept.status_code, kept.json["size"]) == (201, 0)
    paths = client.get("/v1/swagger.json").json["paths"]
    assert not paths["/area/{uuid}/files/{filename}"]["put"]["requestBody"]["required"]


def put_form(client, *files: tuple[str, bytes, str], headers=INGEST, path: str = FILES):
    form = httpx.Request("PUT", "http://store/", files=[("file", file) for file in files])
    kind = form.headers.get("Content-Type")
    return client.put(path, data=form.read(), content_type=kind, headers=headers)


@pytest.mark.spec("ARE-47")
def test_stores_several_files_of_a_form_as_put_area_file_does(client, stores) -> None:
    data = b"x" * 100_000
    kept = put_form(client, ("deep/er.bin", data, "x/y"), ("é.json", b"{}", "application/json"))
    assert kept.status_code == 201, kept.text
    first, second = kept.json["files"]
    alone = client.put(f"{FILES}/alone", data=data, content_type="x/y", headers=INGEST).json
    assert (first["name"], second["name"]) == ("deep/er.bin", "é.json")
    assert (first["size"], first["checksums"]) == (alone["size"], alone["checksums"])
    assert stores.sources.resolve_area_key(first["url"]) == f"areas/{AREA}/deep/er.bin"
    assert asked(client, "checksum", "deep/er.bin")["status"] == "CHECKSUMMED"
    assert asked(client, "validate", "deep/er.bin")["status"] == "VALIDATED"
    assert asked(client, "validate", "é.json")["status"] == "VALIDATING"
    info = stores.areas.head(keys.area_file_key(AREA, "deep/er.bin"))
    assert info.content_type == "x/y"
    assert info.metadata["store-sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.spec("ARE-48")
@pytest.mark.parametrize("names", [("a", "../up"), ("a", "b", "a"), ("a", "b" * 858)])
def test_keeps_no_file_of_a_form_with_a_refused_name(client, stores, names) -> None:
    answer = put_form(client, *[(name, b"a", "x/y") for name in names])
    assert answer.status_code == 400, answer.text
    assert "filename" in answer.json["errors"]
    assert list(stores.areas.list(keys.area_prefix(AREA))) == []
    assert client.get(PATH, headers=INGEST).json["files"] == []


@pytest.mark.spec("ARE-48")
def test_refuses_forms_beyond_the_limits(client, stores) -> None:
    most = [(f"{number}", b"x", "x/y") for number in range(100)]
    large = [(f"{number}", b"x" * 2**20, "x/y") for number in range(9)]
    for files, status in ((large, 413), ([*most, ("more", b"x", "x/y")], 413), ((), 415)):
        assert put_form(client, *files).status_code == status
    form = httpx.Request("PUT", "http://store/", files=[("file", file) for file in large])
    chunked = {**INGEST, "Transfer-Encoding": "chunked"}
    answer = client.put(
        FILES,
        input_stream=io.BytesIO(form.read()),
        content_type=form.headers["Content-Type"],
        environ_base={"wsgi.input_terminated": True},
        headers=chunked,
    )
    assert answer.status_code == 413
    json = client.put(FILES, json={}, headers=INGEST)
    assert json.status_code == 415
    empty = b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n--b--\r\n'
    for body in (b"", b"--b", empty, empty[:-9]):
        answer = client.put(
            FILES, data=body, content_type="multipart/form-data; boundary=b", headers=INGEST
        )
        assert answer.status_code == 400, body
    assert list(stores.areas.list(keys.area_prefix(AREA))) == []
    assert put_form(client, *most).status_code == 201


@pytest.mark.spec("ARE-48", "ERR-31")
def test_keeps_no_file_of_a_form_with_one_above_the_setting(settings, stores, job_queue) -> None:
    app = create_app(
        replace(settings, max_upload_bytes=1000), stores, job_queue=job_queue, verify=verify
    )
    files = [("a", b"x", "x/y"), ("b", b"x" * 1001, "x/y"), ("c", b"x", "x/y")]
    assert put_form(app.test_client(), *files).status_code == 413
    assert list(stores.areas.list(keys.area_prefix(AREA))) == []


@pytest.mark.spec("ARE-47", "ARE-12")
def test_file_of_a_form_that_comes_again_is_another_file(client) -> None:
    for data in (b"old", b"new"):
        assert put_form(client, ("a", data, "x/y"), ("b", b"b", "x/y")).status_code == 201
    assert asked(client, "checksum", "a")["checksums"]["sha1"] == hashlib.sha1(b"new").hexdigest()


@pytest.mark.spec("ARE-03")
def test_rejects_other_owners(client) -> None:
    assert client.put(f"{FILES}/a", data=b"a", headers=OTHER).status_code == 403


@pytest.mark.spec("ARE-03")
@pytest.mark.parametrize(
    "name", ["../up", "a/../b", "./a", "a%00b", "a%0Ab", "~/a", "a%5Cb", "a//b", "a%FFb"]
)
def test_rejects_unsafe_names(client, name) -> None:
    answer = client.put(f"{FILES}/{name}", data=b"a", headers=INGEST)
    assert answer.status_code in (400, 404), answer.text


@pytest.mark.spec("ARU-46")
def test_rejects_too_long_name_before_reading_body(client) -> None:
    most, more = "ü" * 428 + "x", "ü" * 429
    assert client.put(f"{FILES}/{most}", data=b"a", headers=INGEST).status_code == 201
    said = ["In an upload area a name has at most 857 bytes."]
    for method, path, body, where in (
        ("PUT", f"files/{more}", None, "filename"),
        ("POST", f"files/{more}", {}, "filename"),
        ("GET", f"checksum?filename={more}", None, "filename"),
        ("POST", f"uploads/{more}", {"size": 1}, "filename"),
        ("POST", "credentials", {"filenames": ["a", more]}, "/filenames/1"),
    ):
        answer = client.open(f"{PATH}/{path}", method=method, json=body, headers=INGEST)
        assert answer.status_code == 400
        assert answer.json["errors"] == {where: said}, path


@pytest.mark.spec("ERR-31", "ARE-03")
def test_rejects_too_large_bodies(settings, stores, job_queue) -> None:
    small = replace(settings, max_upload_bytes=1000)
    app = create_app(small, stores, job_queue=job_queue, verify=verify)
    chunked = {"Transfer-Encoding": "chunked"}
    for size, more, status in (
        (1000, {}, 201),
        (1001, {}, 413),
        (1000, chunked, 201),
        (1001, chunked, 413),
        (9000, chunked, 413),
    ):
        answer = app.test_client().put(
            f"{FILES}/a",
            input_stream=io.BytesIO(b"x" * size),
            headers={**INGEST, **more} if more else {**INGEST, "Content-Length": str(size)},
            environ_overrides={"wsgi.input_terminated": True},
        )
        assert answer.status_code == status, (size, more)


@pytest.mark.spec("ARE-06", "ARE-17")
def test_uploaded_file_is_validated_at_once(client, job_queue) -> None:
    put = client.put(f"{FILES}/a b/ü.txt", data=b"abc", headers=INGEST)
    sums = put.json["checksums"]
    told = {"status": "CHECKSUMMED", "checksums": sums, "cause": None}
    assert asked(client, "checksum", "a b/ü.txt") == told
    assert asked(client, "validate", "a b/ü.txt") == {"status": "VALIDATED", "cause": None}
    assert job_queue.sent == []
    (listed,) = client.get(PATH, headers=INGEST).json["files"]
    assert listed == {
        "name": "a b/ü.txt",
        "url": put.json["url"],
        "size": 3,
        "content_type": "application/octet-stream",
        "checksums": sums,
        "status": "CHECKSUMMED",
        "validation": "VALIDATED",
        "cause": None,
    }


@pytest.mark.spec("ARE-11")
def test_uploaded_json_is_validated_by_worker(client, job_queue, drain) -> None:
    kind = "application/json"
    client.put(f"{FILES}/a", data=b"{", content_type=kind, headers=INGEST)
    assert [row.step for row, _ in job_queue.sent] == ["area_checksum"]
    assert asked(client, "validate", "a") == {"status": "VALIDATING", "cause": None}
    drain()
    told = asked(client, "validate", "a")
    assert told["status"] == "INVALID"
    assert "not JSON" in told["cause"]
    assert asked(client, "checksum", "a")["cause"] is None


@pytest.mark.spec("ARE-13", "ARE-17")
def test_directly_uploaded_file_is_checksummed_when_reported(
    client, past, job_queue, drain
) -> None:
    past("deep/a.json", b"{}", content_type="application/json")
    assert asked(client, "checksum", "deep/a.json")["status"] == "UNSCHEDULED"
    assert asked(client, "validate", "deep/a.json")["status"] == "UNSCHEDULED"
    said = client.post(f"{FILES}/deep/a.json", headers=INGEST)
    assert (said.status_code, said.json) == (202, {"status": "SCHEDULED"})
    assert [row.ref for row, _ in job_queue.sent] == [f"{AREA}/deep/a.json"]
    pending = {"status": "SCHEDULED", "checksums": None, "cause": None}
    assert asked(client, "checksum", "deep/a.json") == pending
    drain()
    told = asked(client, "checksum", "deep/a.json")
    assert told["checksums"]["sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert asked(client, "validate", "deep/a.json")["status"] == "VALIDATED"
    again = client.post(f"{FILES}/deep/a.json", headers=INGEST)
    assert (again.status_code, again.json) == (202, {"status": "CHECKSUMMED"})


@pytest.mark.spec("ARE-13")
def test_checksummed_file_is_a_source(client, past, drain) -> None:
    past("a.txt", b"abc")
    client.post(f"{FILES}/a.txt", headers=INGEST)
    drain()
    (listed,) = client.get(PATH, headers=INGEST).json["files"]
    body = {"source_url": listed["url"], "creator_uid": 7}
    url = f"/v1/files/{uuid_of(1)}?version={VERSION}"
    assert client.put(url, json=body, headers=INGEST).status_code == 202
    drain()
    assert client.put(url, json=body, headers=INGEST).status_code == 200


@pytest.mark.spec("ARE-14")
def test_compares_declared_checksums(client, past, drain) -> None:
    for name, said, status in (
        ("a", {"size": 3, "content_type": "x/y"}, "VALIDATED"),
        ("b", {"size": 4}, "INVALID"),
        ("c", {"content_type": "x/z"}, "INVALID"),
        ("d", {"checksums": {"sha1": hashlib.sha1(b"abc").hexdigest().upper()}}, "VALIDATED"),
        ("e", {"checksums": {"sha1": "0" * 40}}, "INVALID"),
        ("f", {"size": None, "checksums": {}}, "VALIDATED"),
    ):
        past(name, b"abc", content_type="x/y")
        said = client.post(f"{FILES}/{name}", json=said, headers=INGEST)
        assert said.status_code == 202, said.text
        drain()
        assert asked(client, "validate", name)["status"] == status, name


@pytest.mark.spec("ARE-14")
@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"size": -1}, "/size"),
        ({"size": 2**63}, "/size"),
        ({"size": "3"}, "/size"),
        ({"content_type": "é"}, "/content_type"),
        ({"checksums": []}, "/checksums"),
        ({"checksums": {"md5": "0" * 32}}, "/checksums/md5"),
        ({"checksums": {"sha1": "0" * 39}}, "/checksums/sha1"),
        ({"checksums": {"sha1": 5}}, "/checksums/sha1"),
        ({"other": 1}, "/other"),
    ],
)
def test_rejects_invalid_declarations(client, past, body, where) -> None:
    past("a", b"abc")
    refused = client.post(f"{FILES}/a", json=body, headers=INGEST)
    assert refused.status_code == 400
    assert where in refused.json["errors"]


@pytest.mark.spec("ARE-14")
def test_absent_file_is_404_and_invalid_name_400(client) -> None:
    assert client.post(f"{FILES}/none", headers=INGEST).status_code == 404
    for what in ("checksum", "validate"):
        absent = client.get(f"{PATH}/{what}?filename=none", headers=INGEST)
        assert absent.status_code == 404
        for name in ("../up", "/a", "a%0Ab", ""):
            refused = client.get(f"{PATH}/{what}?filename={name}", headers=INGEST)
            assert refused.status_code == 400, name
        missing = client.get(f"{PATH}/{what}", headers=INGEST)
        assert missing.json["detail"] == "Missing query parameter 'filename'"


@pytest.mark.spec("ARE-20")
def test_files_are_counted_by_their_states(client, past, drain) -> None:
    client.put(f"{FILES}/a", data=b"a", headers=INGEST)
    past("b", b"b")
    client.post(f"{FILES}/b", json={"size": 2}, headers=INGEST)
    past("unsaid", b"c")
    none = dict.fromkeys(("UNSCHEDULED", "SCHEDULED", "CHECKSUMMING", "CHECKSUMMED", "FAILED"), 0)
    counted = client.get(f"{PATH}/checksums", headers=INGEST).json
    assert counted == {"total": 2, "states": {**none, "CHECKSUMMED": 1, "SCHEDULED": 1}}
    drain()
    counted = client.get(f"{PATH}/validations", headers=INGEST).json
    assert counted == {
        "total": 2,
        "states": {"UNSCHEDULED": 0, "VALIDATING": 0, "VALIDATED": 1, "INVALID": 1},
    }


@pytest.mark.spec("ARE-11")
def test_a_file_that_is_put_again_is_another(client, drain) -> None:
    client.put(f"{FILES}/a.json", data=b"{", headers=INGEST)
    drain()
    client.put(f"{FILES}/a.json", data=b"{}", headers=INGEST)
    assert asked(client, "validate", "a.json") == {"status": "VALIDATING", "cause": None}
    drain()
    assert asked(client, "validate", "a.json") == {"status": "VALIDATED", "cause": None}
