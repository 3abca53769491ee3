"""Multipart uploads into areas over HTTP, in any order and resumable."""

import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import event, text
from werkzeug.test import TestResponse

from api.app import create_app
from pipelines import area_uploads
from pipelines.area_uploads import AreaUploadRef
from pipelines.checksums import ChecksumHasher
from storage.catalog import areas
from storage.errors import NotFoundError
from storage.stores import Stores
from tests.api.builders import AREA, INGEST
from tests.api.conftest import verify
from tests.pipelines.test_area_files import with_areas

OTHER = {"Authorization": "Bearer other"}
NAME = "deep/er.bin"
BEGIN = f"/v1/area/{AREA}/uploads/{NAME}"
COMPLETE = f"/v1/area/{AREA}/complete/{NAME}"
KEY = f"areas/{AREA}/{NAME}"
STEP = 64 * 1024**2
DATA = os.urandom(1024) * (64 * 1024) + b"the last part"


@pytest.fixture(autouse=True)
def _area(client: FlaskClient) -> None:
    assert client.post(f"/v1/area/{AREA}", headers=INGEST).status_code == 201


def begun(client: FlaskClient, size: int = len(DATA), **more: Any) -> str:
    answer = client.post(BEGIN, headers=INGEST, json={"size": size, **more})
    assert answer.status_code == 201, answer.text
    upload_id: str = answer.json["upload_id"]
    return upload_id


def part_of(data: bytes, number: int) -> bytes:
    return data[(number - 1) * STEP : number * STEP]


def put(client: FlaskClient, upload_id: str, number: int, data: bytes, **more: Any) -> TestResponse:
    where = {"upload_id": upload_id, "part": number}
    return client.put(BEGIN, headers=INGEST, query_string=where, data=data, **more)


def completed(client: FlaskClient, upload_id: str, **said: Any) -> TestResponse:
    return client.post(COMPLETE, headers=INGEST, json={"upload_id": upload_id, **said})


def standing(client: FlaskClient, upload_id: str) -> TestResponse:
    return client.get(BEGIN, headers=INGEST, query_string={"upload_id": upload_id})


def content(stores: Stores) -> bytes:
    return b"".join(stores.areas.read(KEY))


def sent(client: FlaskClient, data: bytes = b"small") -> str:
    """An upload of which everything has come."""
    upload_id = begun(client, len(data))
    assert put(client, upload_id, 1, data).status_code == 200
    return upload_id


def rows(stores: Stores) -> list[Any]:
    with stores.catalog.read() as tx:
        return list(areas.list_uploads(tx, AREA))


@pytest.mark.spec("ARU-01", "ARU-06", "ARU-07", "ARU-09")
def test_parts_in_any_order_become_a_validated_file(
    client: FlaskClient, stores: Stores, drain: Callable[[], int]
) -> None:
    upload_id = begun(client, content_type="text/csv")
    shown = standing(client, upload_id).json
    assert (shown["part_size"], shown["part_count"], shown["parts"]) == (STEP, 2, [])
    for number in (2, 1, 2):
        answer = put(client, upload_id, number, part_of(DATA, number))
        assert answer.status_code == 200, answer.text
        own = hashlib.md5(part_of(DATA, number), usedforsecurity=False).hexdigest()
        assert answer.json == {"part": number, "size": len(part_of(DATA, number)), "md5": own}
    with pytest.raises(NotFoundError):
        stores.areas.head(KEY)
    hashing = ChecksumHasher(len(DATA))
    list(hashing.hash_blocks([DATA]))
    sums = hashing.result().checksums
    said = {"sha256": sums.sha256.upper(), "s3_etag": sums.s3_etag}
    done = completed(client, upload_id, checksums=said)
    assert (done.status_code, done.json["size"]) == (202, len(DATA))
    assert stores.sources.resolve_area_key(done.json["url"]) == KEY
    assert content(stores) == DATA
    assert stores.areas.head(KEY).content_type == "text/csv"
    drain()
    asked = client.get(f"/v1/area/{AREA}/checksum", headers=INGEST, query_string={"filename": NAME})
    assert (asked.json["status"], asked.json["checksums"]["s3_etag"]) == (
        "CHECKSUMMED",
        sums.s3_etag,
    )


@pytest.mark.spec("ARU-09")
def test_mismatch_with_declaration_is_invalid(
    client: FlaskClient, drain: Callable[[], int]
) -> None:
    done = completed(client, sent(client), checksums={"sha256": "0" * 64})
    assert done.status_code == 202
    drain()
    asked = client.get(f"/v1/area/{AREA}/validate", headers=INGEST, query_string={"filename": NAME})
    assert asked.json["status"] == "INVALID"


@pytest.mark.spec("ARU-01", "ARU-08")
def test_resumes_interrupted_upload(client: FlaskClient, stores: Stores) -> None:
    upload_id = begun(client)
    assert put(client, upload_id, 2, part_of(DATA, 2)).status_code == 200
    broken = put(
        client,
        upload_id,
        1,
        b"",
        input_stream=io.BytesIO(part_of(DATA, 1)[:1000]),
        environ_overrides={"CONTENT_LENGTH": str(STEP)},
    )
    assert broken.status_code == 400
    again = client.post(BEGIN, headers=INGEST, json={"size": len(DATA), "upload_id": upload_id})
    assert (again.status_code, again.json["parts"]) == (200, [2])
    assert again.json["upload_id"] == upload_id
    assert put(client, upload_id, 1, part_of(DATA, 1)).status_code == 200
    assert completed(client, upload_id).status_code == 202
    assert content(stores) == DATA


@pytest.mark.spec("ARU-07")
def test_a_part_that_is_put_again_and_breaks_is_to_be_put_once_more(client: FlaskClient) -> None:
    upload_id = sent(client)
    cut = {"input_stream": io.BytesIO(b"sm"), "environ_overrides": {"CONTENT_LENGTH": "5"}}
    broken = put(client, upload_id, 1, b"", **cut)
    assert broken.status_code == 400
    assert completed(client, upload_id).status_code == 400
    assert put(client, upload_id, 1, b"small").status_code == 200
    assert completed(client, upload_id).status_code == 202


@pytest.mark.spec("ARU-08")
@pytest.mark.parametrize(
    ("number", "data", "more"),
    [
        (0, b"small", {}),
        (2, b"small", {}),
        (1, b"smal", {}),
        (1, b"small!", {}),
        (1, b"far too large", {}),
        (1, b"", {}),
        (1, b"small", {"headers": {**INGEST, "Transfer-Encoding": "chunked"}}),
    ],
)
def test_rejects_part_of_wrong_number_or_size(
    client: FlaskClient, number: int, data: bytes, more: dict[str, Any]
) -> None:
    upload_id = begun(client, 5)
    chunked = {"environ_overrides": {"wsgi.input_terminated": True}} if more else {}
    where = {"upload_id": upload_id, "part": number}
    asked = {"headers": INGEST, **more, **chunked}
    given = {"input_stream": io.BytesIO(data)} if more else {"data": data}
    answer = client.put(BEGIN, query_string=where, **asked, **given)
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    assert standing(client, upload_id).json["parts"] == []


@pytest.mark.spec("ARU-10")
def test_a_completion_names_the_parts_that_are_missing(client: FlaskClient) -> None:
    upload_id = begun(client)
    put(client, upload_id, 2, part_of(DATA, 2))
    refused = completed(client, upload_id)
    assert refused.status_code == 400
    assert refused.json["errors"] == {"/parts": ["Parts are missing or incomplete: 1."]}
    many = completed(client, begun(client, 30 * STEP))
    assert many.json["errors"]["/parts"][0].endswith("19, 20, ….")


@pytest.mark.spec("ARU-02")
def test_a_file_without_bytes_has_no_parts(client: FlaskClient, stores: Stores) -> None:
    upload_id = begun(client, 0)
    shown = standing(client, upload_id).json
    assert (shown["part_count"], shown["parts"]) == (0, [])
    assert put(client, upload_id, 1, b"").status_code == 400
    assert completed(client, upload_id).json["size"] == 0
    assert content(stores) == b""


@pytest.mark.spec("ARU-10")
def test_repeated_completion_gets_same_answer(
    client: FlaskClient, stores: Stores, drain: Callable[[], int]
) -> None:
    upload_id = sent(client)
    first = completed(client, upload_id)
    drain()
    client.put(f"/v1/area/{AREA}/files/{NAME}", headers=INGEST, data=b"other")
    again = completed(client, upload_id)
    assert (first.status_code, first.json) == (again.status_code, again.json)
    assert content(stores) == b"other"
    assert rows(stores) == []


@pytest.mark.spec("ARU-10")
def test_completion_after_crash_before_commit_is_repeatable(
    client: FlaskClient, stores: Stores
) -> None:
    upload_id = sent(client)
    (row,) = rows(stores)
    stores.areas.upload(KEY, part_size=STEP, content_type="", token=row.token).complete(
        replace=True
    )
    done = completed(client, upload_id)
    assert (done.status_code, done.json["status"]) == (202, "SCHEDULED")
    assert rows(stores) == []


@pytest.mark.spec("ARU-10")
def test_completion_after_crash_does_not_adopt_another_file(
    client: FlaskClient, stores: Stores
) -> None:
    upload_id = sent(client)
    (row,) = rows(stores)
    stores.areas.upload(KEY, part_size=STEP, content_type="", token=row.token).abort()
    client.put(f"/v1/area/{AREA}/files/{NAME}", headers=INGEST, data=b"small")
    assert completed(client, upload_id).status_code == 404


@pytest.mark.spec("ARU-01")
def test_the_same_name_again_replaces_the_file(client: FlaskClient, stores: Stores) -> None:
    for data in (b"first", b"2nd"):
        assert completed(client, sent(client, data)).status_code == 202
        assert content(stores) == data


@pytest.mark.spec("ARU-06", "ARU-11")
def test_abort_is_repeatable(client: FlaskClient, stores: Stores) -> None:
    upload_id = sent(client)
    for _ in range(2):
        gone = client.delete(BEGIN, headers=INGEST, query_string={"upload_id": upload_id})
        assert (gone.status_code, gone.json) == (200, {})
    assert put(client, upload_id, 1, b"small").status_code == 404
    assert standing(client, upload_id).status_code == 404
    assert completed(client, upload_id).status_code == 404
    assert rows(stores) == []


@pytest.mark.spec("ARU-03")
def test_an_id_is_of_one_area_one_name_one_size_and_one_person(
    client: FlaskClient, stores: Stores
) -> None:
    upload_id = sent(client)
    where = {"upload_id": upload_id, "part": 1}
    elsewhere = BEGIN.replace("er.bin", "er.txt")
    for path, headers, status in (
        (elsewhere, INGEST, 400),
        (BEGIN, OTHER, 403),
        (BEGIN.replace(AREA, "00000000-0000-0000-0000-0000000000ff"), INGEST, 404),
    ):
        refused = client.put(path, headers=headers, query_string=where, data=b"small")
        assert refused.status_code == status
        if status == 400:
            assert refused.json["code"] == "illegal_token"
    larger = client.post(BEGIN, headers=INGEST, json={"size": 6, "upload_id": upload_id})
    assert (larger.status_code, larger.json["code"]) == (400, "illegal_token")


@pytest.mark.spec("ARU-03")
@pytest.mark.parametrize("changed", ["x", "é", "A" * 60, "A" * 401, "", "====", "a+/b"])
def test_rejects_invalid_upload_id(client: FlaskClient, changed: str) -> None:
    begun(client)
    assert standing(client, changed).status_code == 400
    assert completed(client, changed).status_code == 400


@pytest.mark.spec("ARU-42")
def test_invalid_upload_id_is_named_as_field(client: FlaskClient) -> None:
    for answer, where in (
        (client.post(BEGIN, headers=INGEST, json={"size": 5, "upload_id": "x"}), "/upload_id"),
        (completed(client, "x"), "/upload_id"),
        (standing(client, "x"), "upload_id"),
    ):
        assert list(answer.json["errors"]) == [where]


@pytest.mark.spec("ARU-03")
def test_rejects_upload_id_with_any_bit_changed(client: FlaskClient) -> None:
    upload_id = sent(client)
    last = "B" if upload_id[10] == "A" else "A"
    forged = upload_id[:10] + last + upload_id[11:]
    assert completed(client, forged).json["code"] == "illegal_token"


@pytest.mark.spec("ARU-04", "ARU-11")
def test_locked_area_rejects_parts_and_completion_but_allows_abort(
    client: FlaskClient,
) -> None:
    upload_id = sent(client)
    locked = client.patch(f"/v1/area/{AREA}", headers=INGEST, json={"state": "LOCKED"})
    assert locked.status_code == 200
    for answer in (
        client.post(BEGIN, headers=INGEST, json={"size": 5}),
        put(client, upload_id, 1, b"small"),
        standing(client, upload_id),
        completed(client, upload_id),
    ):
        assert (answer.status_code, answer.json["code"]) == (409, "area_locked")
    gone = client.delete(BEGIN, headers=INGEST, query_string={"upload_id": upload_id})
    assert gone.status_code == 200


@pytest.mark.spec("ARU-04")
def test_deleted_area_drops_unfinished_uploads(
    client: FlaskClient, stores: Stores, drain: Callable[[], int]
) -> None:
    upload_id = sent(client)
    assert client.delete(f"/v1/area/{AREA}", headers=INGEST).status_code == 202
    assert put(client, upload_id, 1, b"small").status_code in (404, 409)
    drain()
    assert rows(stores) == []
    assert completed(client, upload_id).status_code == 404


@pytest.mark.spec("ARU-02")
def test_rejects_impossible_sizes_before_reading_body(
    client: FlaskClient, settings: Any, stores: Stores, job_queue: Any
) -> None:
    small = create_app(
        replace(settings, max_upload_bytes=1000), stores, job_queue=job_queue, verify=verify
    ).test_client()
    assert small.post(BEGIN, headers=INGEST, json={"size": 1001}).status_code == 413
    assert small.post(BEGIN, headers=INGEST, json={"size": 1000}).status_code == 201
    for size in (-1, 2**63, 1.5, "5", None):
        assert client.post(BEGIN, headers=INGEST, json={"size": size}).status_code == 400
    assert client.post(BEGIN, headers=INGEST, json={}).status_code == 400


@pytest.mark.spec("ARU-02")
@pytest.mark.parametrize("name", ["../up", "a/../b", "a%0Ab", "~/a", "a%5Cb", "a//b"])
def test_rejects_unsafe_names(client: FlaskClient, name: str) -> None:
    answer = client.post(f"/v1/area/{AREA}/uploads/{name}", headers=INGEST, json={"size": 1})
    assert answer.status_code in (400, 404), answer.text


@pytest.mark.spec("ARU-04")
def test_expires_abandoned_uploads(client: FlaskClient, stores: Stores) -> None:
    upload_id = sent(client)
    assert area_uploads.abort_stale(stores, older_than_s=60) == 0
    assert area_uploads.abort_stale(stores, older_than_s=-1) == 1
    assert rows(stores) == []
    assert put(client, upload_id, 1, b"small").status_code == 404
    assert stores.areas.sweep_temporaries(-60, now=2**33) == 0


@pytest.mark.spec("ARU-10")
def test_concurrent_completions_are_one(client: FlaskClient, stores: Stores) -> None:
    """The second one had looked before the first one ended."""
    sent(client)
    (row,) = rows(stores)
    named = AreaUploadRef(AREA, NAME, row.id)
    with stores.catalog.write() as tx:
        areas.delete_upload(tx, row.id)
    with pytest.raises(NotFoundError):
        area_uploads.complete(stores, named, "ingest@example.org")
    with stores.catalog.write() as tx:
        areas.insert_upload(tx, row)
    one = area_uploads.complete(stores, named, "ingest@example.org")
    with stores.catalog.write() as tx:
        areas.insert_upload(tx, row)
    two = area_uploads.complete(stores, named, "ingest@example.org")
    assert (one.size, one.status) == (two.size, two.status)


@pytest.mark.spec("ARU-45")
def test_completion_metadata_never_applies_to_a_replaced_file(
    client: FlaskClient, stores: Stores, drain: Callable[[], int]
) -> None:
    sent(client)
    (row,) = rows(stores)

    def put_another() -> None:
        put_file = client.put(f"/v1/area/{AREA}/files/{NAME}", data=b"another", headers=INGEST)
        assert put_file.status_code == 201

    replaced = with_areas(stores, "head", put_another)
    area_uploads.complete(replaced, AreaUploadRef(AREA, NAME, row.id), "ingest@example.org")
    drain()
    shown = client.get(f"/v1/area/{AREA}", headers=INGEST).json["files"]
    assert [(one["size"], one["validation"], one["cause"]) for one in shown] == [
        (7, "VALIDATED", None)
    ]


@pytest.mark.spec("ARU-10")
def test_interleaved_completions_get_the_same_answer(client: FlaskClient, stores: Stores) -> None:
    upload_id = begun(client)
    for number in (1, 2):
        put(client, upload_id, number, part_of(DATA, number))
    others: list[TestResponse] = []
    asked: list[str] = []

    @event.listens_for(stores.catalog.engine, "after_cursor_execute")
    def complete_meanwhile(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if "FROM answers" in statement and not asked:
            asked.append(statement)
            others.append(completed(client.application.test_client(), upload_id))

    answer = completed(client, upload_id)
    assert [other.status_code for other in others] == [answer.status_code] == [202]
    assert others[0].data == answer.data


@pytest.mark.spec("ARU-07")
def test_parts_and_completions_run_concurrently(client: FlaskClient, stores: Stores) -> None:
    upload_id = begun(client)
    app = client.application
    with ThreadPoolExecutor(4) as pool:
        put_all = [
            pool.submit(put, app.test_client(), upload_id, number, part_of(DATA, number))
            for number in (1, 2, 2)
        ]
        assert {one.result().status_code for one in put_all} == {200}
        done = [pool.submit(completed, app.test_client(), upload_id) for _ in range(4)]
        answers = [one.result() for one in done]
    assert [one.status_code for one in answers] == [202] * 4
    assert len({one.data for one in answers}) == 1
    assert content(stores) == DATA
    assert rows(stores) == []


PARTS = f"/v1/area/{AREA}/parts/{NAME}"


def signed(client: FlaskClient, upload_id: str, changed: Any = None) -> TestResponse:
    wanted = {"upload_id": upload_id, "part": 1, "crc32c": "4F1DAB61", **(changed or {})}
    return client.post(PARTS, headers=INGEST, json=wanted)


@pytest.mark.spec("ARU-48")
def test_parts_of_a_folder_go_to_the_store(client: FlaskClient, stores: Stores) -> None:
    upload_id = begun(client, 5)
    answer = signed(client, upload_id)
    told = answer.json
    url = told.pop("url")
    assert answer.headers["Cache-Control"] == "no-store"
    assert told == {"part": 1, "size": 5, "direct": False, "method": "PUT", "headers": {}}
    assert client.put(url, data=b"small").status_code == 401
    assert client.put(url, headers=INGEST, data=b"small").status_code == 200
    assert completed(client, upload_id).status_code == 202
    assert content(stores) == b"small"


@pytest.mark.spec("ARU-48")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"part": 0}, "/part"),
        ({"part": 3}, "/part"),
        ({"part": "1"}, "/part"),
        ({"crc32c": "4f1dab6"}, "/crc32c"),
        ({"crc32c": "4f1dab6g"}, "/crc32c"),
        ({"crc32c": None}, "/crc32c"),
        ({"upload_id": "none"}, "/upload_id"),
    ],
)
def test_rejects_impossible_parts_to_sign(
    client: FlaskClient, change: dict[str, Any], field: str
) -> None:
    refused = signed(client, begun(client), change)
    assert refused.status_code == 400
    assert [name.lstrip("/") for name in refused.json["errors"]] == [field.lstrip("/")]


@pytest.mark.spec("ARU-51")
def test_signs_parts_only_for_owner_of_unlocked_area(client: FlaskClient, stores: Stores) -> None:
    upload_id = begun(client, 5)
    wanted = {"upload_id": upload_id, "part": 1, "crc32c": "4f1dab61"}
    assert client.post(PARTS, headers=OTHER, json=wanted).status_code == 403
    client.patch(f"/v1/area/{AREA}", headers=INGEST, json={"state": "LOCKED"})
    locked = signed(client, upload_id)
    assert (locked.status_code, locked.json["code"]) == (409, "area_locked")
    client.delete(f"/v1/area/{AREA}", headers=INGEST)
    assert signed(client, upload_id).status_code == 409


@pytest.mark.spec("ARU-48")
def test_signing_a_part_keeps_an_upload_from_expiring(client: FlaskClient, stores: Stores) -> None:
    upload_id = begun(client, 5)
    with stores.catalog.write() as tx:
        tx.execute(text("UPDATE area_uploads SET at_us = 1"))
    assert signed(client, upload_id).status_code == 200
    assert area_uploads.abort_stale(stores, older_than_s=86_400) == 0
    assert len(rows(stores)) == 1
