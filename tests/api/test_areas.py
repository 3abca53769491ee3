"""Upload areas over HTTP: create, read, lock, delete, ownership."""

from dataclasses import replace

import pytest

from api.app import create_app
from storage import keys
from storage.model import Principal
from tests.api.builders import AREA, INGEST, READER, uuid_of
from tests.api.conftest import verify

OTHER = {"Authorization": "Bearer other"}
ADMIN = {"Authorization": "Bearer admin"}
PATH = f"/v1/area/{AREA}"
FILES = f"{PATH}/files"


@pytest.fixture(autouse=True)
def _area(client) -> None:
    assert client.post(PATH, headers=INGEST).status_code == 201


@pytest.mark.spec("ERR-28", "ARE-01")
def test_reopening_own_area_is_200_and_foreign_area_409(client) -> None:
    again = client.post(PATH, headers=INGEST)
    assert (again.status_code, again.json["uri"]) == (200, f"http://localhost/v1/area/{AREA}/")
    taken = client.post(PATH, headers=OTHER)
    assert (taken.status_code, taken.json["code"]) == (409, "already_exists")


@pytest.mark.spec("ARE-03")
def test_an_absent_area_is_404(client) -> None:
    path = "/v1/area/00000000-0000-0000-0000-0000000000ff/files/a"
    assert client.put(path, data=b"a", headers=INGEST).status_code == 404


@pytest.mark.spec("ERR-30", "ARE-07")
def test_locked_area_rejects_files(client, stores) -> None:
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE areas SET state = 'LOCKED'")
    refused = client.put(f"{FILES}/a", data=b"a", headers=INGEST)
    assert (refused.status_code, refused.json["code"]) == (409, "area_locked")


@pytest.mark.spec("ARE-05")
def test_head_has_owner_and_state(client) -> None:
    answer = client.head(PATH, headers=INGEST)
    assert answer.status_code == 200
    assert answer.headers["X-STORE-STATE"] == "UNLOCKED"
    assert answer.headers["X-STORE-OWNER"] == "ingest@example.org"
    assert client.head(f"/v1/area/{uuid_of(9)}", headers=INGEST).status_code == 404


@pytest.mark.spec("ARU-41")
def test_owner_header_is_percent_encoded(settings, stores, job_queue) -> None:
    owner = Principal("\u0141ukasz+100%@\u4f8b.example", frozenset({"store_ingest"}))
    app = create_app(settings, stores, job_queue=job_queue, verify=lambda _: owner)
    client = app.test_client()
    path = f"/v1/area/{uuid_of(9)}"
    assert client.post(path, headers=INGEST).status_code == 201
    told = client.head(path, headers=INGEST).headers["X-STORE-OWNER"]
    assert told.encode("latin-1") == b"%C5%81ukasz+100%25@%E4%BE%8B.example"


@pytest.mark.spec("ARE-04")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("HEAD", "", None),
        ("GET", "", None),
        ("PATCH", "", {"state": "LOCKED"}),
        ("DELETE", "", None),
        ("POST", "/files/a", {}),
        ("GET", "/checksum?filename=a", None),
        ("GET", "/validate?filename=a", None),
        ("GET", "/checksums", None),
        ("GET", "/validations", None),
    ],
)
def test_area_is_403_for_others_and_404_if_absent(client, method, path, body) -> None:
    client.put(f"{FILES}/a", data=b"a", headers=INGEST)
    for who in (OTHER, ADMIN):
        refused = client.open(PATH + path, method=method, json=body, headers=who)
        assert refused.status_code == 403
    assert client.open(PATH + path, method=method, json=body, headers=READER).status_code == 403
    assert client.open(PATH + path, method=method, json=body).status_code == 401
    absent = f"/v1/area/{uuid_of(9)}{path}"
    assert client.open(absent, method=method, json=body, headers=INGEST).status_code == 404


@pytest.mark.spec("ARE-07")
def test_owner_locks_and_unlocks(client) -> None:
    for state, status in (("LOCKED", 409), ("LOCKED", 409), ("UNLOCKED", 201)):
        answer = client.patch(PATH, json={"state": state}, headers=INGEST)
        assert (answer.status_code, answer.json) == (200, {"state": state})
        put = client.put(f"{FILES}/a", data=b"a", headers=INGEST)
        assert put.status_code == status
        if status == 409:
            assert put.json["code"] == "area_locked"
            said = client.post(f"{FILES}/a", headers=INGEST)
            assert (said.status_code, said.json["code"]) == (409, "area_locked")
            assert client.get(PATH, headers=INGEST).json["state"] == state


@pytest.mark.spec("ARE-07")
@pytest.mark.parametrize(
    "body", [{}, {"state": "DELETED"}, {"state": 1}, {"state": "LOCKED", "x": 1}]
)
def test_rejects_other_states(client, body) -> None:
    assert client.patch(PATH, json=body, headers=INGEST).status_code == 400


@pytest.mark.spec("ARE-08")
def test_deleted_area_is_removed_and_never_reopened(client, stores, drain, job_queue) -> None:
    client.put(f"{FILES}/deep/a", data=b"a", headers=INGEST)
    for _ in range(2):
        answer = client.delete(PATH, headers=INGEST)
        assert (answer.status_code, answer.json) == (202, {"state": "DELETING"})
    assert [row.step for row, _ in job_queue.sent] == ["area_remove"]
    assert client.head(PATH, headers=INGEST).headers["X-STORE-STATE"] == "DELETING"
    locked = client.put(f"{FILES}/b", data=b"b", headers=INGEST)
    assert (locked.status_code, locked.json["code"]) == (409, "area_locked")
    assert client.patch(PATH, json={"state": "UNLOCKED"}, headers=INGEST).status_code == 409
    drain()
    for method in ("HEAD", "GET", "DELETE"):
        assert client.open(PATH, method=method, headers=INGEST).status_code == 404
    assert client.put(f"{FILES}/b", data=b"b", headers=INGEST).status_code == 404
    again = client.post(PATH, headers=INGEST)
    assert (again.status_code, again.json["code"]) == (409, "already_exists")
    assert list(stores.areas.list(keys.area_prefix(AREA))) == []


@pytest.mark.spec("ARE-06")
def test_files_are_paged_by_name(client, stores) -> None:
    names = sorted([f"deep/{n}.txt" for n in range(7)] + ["é.txt", "Z", "a b?"], key=str.encode)
    for name in names:
        stores.areas.put(keys.area_file_key(AREA, name), name.encode(), content_type="text/plain")
    seen, url, statuses = [], f"{PATH}?per_page=3", []
    while url:
        answer = client.get(url, headers=INGEST)
        statuses.append(answer.status_code)
        assert answer.headers["X-OpenAPI-Paginated-Content-Key"] == "files"
        assert answer.json["uuid"] == AREA
        assert answer.json["uri"] == f"http://localhost/v1/area/{AREA}/"
        seen += [file["name"] for file in answer.json["files"]]
        link = answer.headers.get("Link", "")
        url = link.partition(">")[0].removeprefix("<http://localhost") if link else ""
    assert (seen, statuses) == (names, [206, 206, 206, 200])


@pytest.mark.spec("ARE-06")
def test_page_ending_with_last_file_is_last(client, stores) -> None:
    for name in ("a", "b"):
        stores.areas.put(keys.area_file_key(AREA, name), b"x")
    assert client.get(f"{PATH}?per_page=2", headers=INGEST).status_code == 200
    empty = f"/v1/area/{uuid_of(5)}"
    client.post(empty, headers=INGEST)
    answer = client.get(empty, headers=INGEST)
    assert (answer.status_code, answer.json["files"]) == (200, [])


@pytest.mark.spec("ARE-06")
def test_page_token_is_valid_for_its_area_only(client, stores) -> None:
    for name in ("a", "b"):
        stores.areas.put(keys.area_file_key(AREA, name), b"x")
    link = client.get(f"{PATH}?per_page=1", headers=INGEST).headers["Link"]
    query = link.partition("?")[2].partition(">")[0]
    other = f"/v1/area/{uuid_of(5)}"
    client.post(other, headers=INGEST)
    for url in (f"{other}?{query}", f"{PATH}?start_at=abc"):
        refused = client.get(url, headers=INGEST)
        assert (refused.status_code, refused.json["code"]) == (400, "illegal_token")


@pytest.mark.spec("ARE-01")
def test_cloud_areas_have_bucket_urls(settings, stores, job_queue) -> None:
    class Cloud:
        def __getattr__(self, verb):
            return getattr(stores.areas, verb)

        def direct_url(self, key: str) -> str:
            return f"s3://areas/{key}"

    there = replace(stores, areas=Cloud())
    client = create_app(settings, there, job_queue=job_queue, verify=verify).test_client()
    uri = f"s3://areas/areas/{AREA}/"
    assert client.post(PATH, headers=INGEST).json["uri"] == uri
    client.put(f"{FILES}/a b", data=b"a", headers=INGEST)
    listing = client.get(PATH, headers=INGEST).json
    assert (listing["uri"], listing["files"][0]["url"]) == (uri, f"{uri}a b")
