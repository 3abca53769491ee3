import hashlib
import io
from dataclasses import replace

import pytest

from api.app import create_app
from tests.api.builders import AREA, INGEST
from tests.api.conftest import verify

OTHER = {"Authorization": "Bearer other"}
FILES = f"/v1/area/{AREA}/files"


@pytest.fixture(autouse=True)
def _area(client) -> None:
    assert client.post(f"/v1/area/{AREA}", headers=INGEST).status_code == 201


def test_opening_it_again_is_200_and_anothers_409(client) -> None:
    again = client.post(f"/v1/area/{AREA}", headers=INGEST)
    assert (again.status_code, again.json["uri"]) == (200, f"http://localhost/v1/area/{AREA}/")
    taken = client.post(f"/v1/area/{AREA}", headers=OTHER)
    assert (taken.status_code, taken.json["code"]) == (409, "already_exists")


def test_a_file_is_kept_with_the_checksums_of_what_arrived(client, stores) -> None:
    data = b"x" * 100_000
    kept = client.put(f"{FILES}/deep/er.bin", data=data, headers=INGEST)
    assert kept.status_code == 201
    assert kept.json["size"] == len(data)
    assert kept.json["checksums"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert stores.sources.area_key(kept.json["url"]) == f"areas/{AREA}/deep/er.bin"


def test_an_empty_file_is_a_file(client) -> None:
    kept = client.put(f"{FILES}/empty", data=b"", headers=INGEST)
    assert (kept.status_code, kept.json["size"]) == (201, 0)


def test_no_body_is_an_empty_file_too_and_the_definition_says_so(client) -> None:
    kept = client.put(f"{FILES}/none", headers=INGEST)
    assert (kept.status_code, kept.json["size"]) == (201, 0)
    paths = client.get("/v1/swagger.json").json["paths"]
    assert not paths["/area/{uuid}/files/{filename}"]["put"]["requestBody"]["required"]


def test_another_owner_may_not_write(client) -> None:
    assert client.put(f"{FILES}/a", data=b"a", headers=OTHER).status_code == 403


@pytest.mark.parametrize(
    "name", ["../up", "a/../b", "./a", "a%00b", "a%0Ab", "~/a", "a%5Cb", "a//b", "a%FFb"]
)
def test_names_that_could_lead_elsewhere_are_refused(client, name) -> None:
    answer = client.put(f"{FILES}/{name}", data=b"a", headers=INGEST)
    assert answer.status_code in (400, 404), answer.text


def test_more_bytes_than_allowed_are_413_however_they_come(settings, stores, chains) -> None:
    small = replace(settings, max_upload_bytes=1000)
    app = create_app(small, stores, chains=chains, verify=verify)
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


def test_an_absent_area_is_404(client) -> None:
    path = "/v1/area/00000000-0000-0000-0000-0000000000ff/files/a"
    assert client.put(path, data=b"a", headers=INGEST).status_code == 404


def test_a_locked_area_takes_nothing(client, stores) -> None:
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE areas SET state = 'LOCKED'")
    refused = client.put(f"{FILES}/a", data=b"a", headers=INGEST)
    assert (refused.status_code, refused.json["code"]) == (409, "area_locked")
