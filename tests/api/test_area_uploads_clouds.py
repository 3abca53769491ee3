"""Multipart uploads into areas in cloud buckets, through the API and by presigned URLs."""

import os
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask.testing import FlaskClient

from api.app import create_app
from config import Settings
from pipelines.formats import version_from_us
from storage import crc32c
from storage.errors import Unavailable
from storage.stores import Stores
from tests.api.builders import AREA, INGEST
from tests.api.conftest import verify
from tests.conftest import Outbox, draining
from tests.storage.blobs.test_contract import BACKENDS

CLOUDS = [name for name in BACKENDS if name != "local"]
STEP = 64 * 1024**2
BEGIN = f"/v1/area/{AREA}/uploads/deep/er.bin"
COMPLETE = f"/v1/area/{AREA}/complete/deep/er.bin"
FILES = f"/v1/area/{AREA}/files/signed.json"


@pytest.fixture(params=CLOUDS)
def cloudy(request: pytest.FixtureRequest, tmp_path: Path, stores: Stores) -> Iterator[Stores]:
    """A store whose upload areas lie in a cloud."""
    with BACKENDS[request.param](tmp_path) as backend:
        yield replace(stores, areas=backend.area or backend.store)


@pytest.fixture
def client(settings: Settings, cloudy: Stores, job_queue: Outbox) -> FlaskClient:
    client = create_app(settings, cloudy, job_queue=job_queue, verify=verify).test_client()
    assert client.post(f"/v1/area/{AREA}", headers=INGEST).status_code == 201
    return client


def listed(client: FlaskClient) -> list[Any]:
    files: list[Any] = client.get(f"/v1/area/{AREA}", headers=INGEST).json["files"]
    return [(one["name"], one["size"], one["status"], one["validation"]) for one in files]


@pytest.mark.spec("ARU-05")
def test_parts_become_a_file_in_a_clouds_bucket(
    client: FlaskClient, cloudy: Stores, job_queue: Outbox
) -> None:
    data = os.urandom(1024) * (64 * 1024) + b"the last part"
    begun = client.post(BEGIN, headers=INGEST, json={"size": len(data), "content_type": "a/b"})
    where = {"upload_id": begun.json["upload_id"]}
    for number in (2, 1, 2):
        part = data[(number - 1) * STEP : number * STEP]
        put = client.put(BEGIN, headers=INGEST, query_string=where | {"part": number}, data=part)
        assert put.status_code == 200, put.text
        standing = client.get(BEGIN, headers=INGEST, query_string=where).json
        assert standing["parts"] == ([2] if number == 2 and not standing["parts"][1:] else [1, 2])
    done = [client.post(COMPLETE, headers=INGEST, json=where) for _ in range(2)]
    assert [one.status_code for one in done] == [202, 202]
    assert done[0].json == done[1].json
    draining(cloudy, job_queue)()
    assert listed(client) == [("deep/er.bin", len(data), "CHECKSUMMED", "VALIDATED")]
    info = cloudy.areas.head(f"areas/{AREA}/deep/er.bin")
    assert (info.size, info.content_type) == (len(data), "a/b")
    assert info.metadata["store-s3_etag"].endswith("-2")


@pytest.mark.spec("ARU-05")
def test_an_aborted_upload_leaves_nothing_in_a_clouds_bucket(
    client: FlaskClient, cloudy: Stores
) -> None:
    where = {"upload_id": client.post(BEGIN, headers=INGEST, json={"size": 5}).json["upload_id"]}
    client.put(BEGIN, headers=INGEST, query_string=where | {"part": 1}, data=b"small")
    for _ in range(2):
        assert client.delete(BEGIN, headers=INGEST, query_string=where).status_code == 200
    gone = client.put(BEGIN, headers=INGEST, query_string=where | {"part": 1}, data=b"small")
    assert gone.status_code == 404
    assert cloudy.areas.sweep_temporaries(-3600, now=2**31) == 0


@pytest.mark.spec("ARU-14")
def test_presigned_cloud_upload_is_validated_when_reported(
    client: FlaskClient, cloudy: Stores, job_queue: Outbox
) -> None:
    given = client.post(
        f"/v1/area/{AREA}/credentials", headers=INGEST, json={"filenames": ["signed.json"]}
    ).json
    headers = {**given["headers"], "Content-Type": "application/json"}
    url = given["urls"]["signed.json"]
    asked = urllib.request.Request(url, b'{"a": 1}', headers, method=given["method"])
    with urllib.request.urlopen(asked) as answer:
        assert answer.status == 200
    assert listed(client) == [("signed.json", 8, "UNSCHEDULED", "UNSCHEDULED")]
    said = client.post(FILES, headers=INGEST, json={"size": 8})
    assert said.status_code == 202, said.text
    draining(cloudy, job_queue)()
    assert listed(client) == [("signed.json", 8, "CHECKSUMMED", "VALIDATED")]


PARTS = f"/v1/area/{AREA}/parts/deep/er.bin"


@pytest.mark.spec("ARU-48", "ARU-49")
def test_parts_go_straight_to_a_clouds_bucket(
    client: FlaskClient, cloudy: Stores, job_queue: Outbox
) -> None:
    data = os.urandom(1024) * (64 * 1024) + b"the last part"
    begun = client.post(BEGIN, headers=INGEST, json={"size": len(data)}).json
    for number in (2, 1):
        part = data[(number - 1) * STEP : number * STEP]
        checksum = f"{crc32c.extend(0, part):08X}"
        wanted = {"upload_id": begun["upload_id"], "part": number, "crc32c": checksum}
        told = client.post(PARTS, headers=INGEST, json=wanted).json
        assert (told["part"], told["size"], told["direct"]) == (number, len(part), True)
        assert version_from_us(now_us()) < told["expires"] < version_from_us(now_us(910))
        sent = httpx.request(
            told["method"],
            told["url"],
            headers=told["headers"],
            content=part,
            timeout=60,
            trust_env=False,
        )
        assert sent.status_code == 200, sent.text
    standing = client.get(BEGIN, headers=INGEST, query_string={"upload_id": begun["upload_id"]})
    assert standing.json["parts"] == [1, 2]
    done = client.post(COMPLETE, headers=INGEST, json={"upload_id": begun["upload_id"]})
    assert done.status_code == 202, done.text
    draining(cloudy, job_queue)()
    assert listed(client) == [("deep/er.bin", len(data), "CHECKSUMMED", "VALIDATED")]


def now_us(after_s: float = 0) -> int:
    return int((time.time() + after_s) * 1e6)


@pytest.mark.spec("ARU-50")
def test_part_url_outlives_its_area_without_effect(
    client: FlaskClient, cloudy: Stores, job_queue: Outbox
) -> None:
    begun = client.post(BEGIN, headers=INGEST, json={"size": 5}).json
    checksum = f"{crc32c.extend(0, b'small'):08x}"
    wanted = {"upload_id": begun["upload_id"], "part": 1, "crc32c": checksum}
    told = client.post(PARTS, headers=INGEST, json=wanted).json
    assert client.delete(f"/v1/area/{AREA}", headers=INGEST).status_code == 202
    draining(cloudy, job_queue)()
    httpx.put(told["url"], headers=told["headers"], content=b"small", trust_env=False)
    cloudy.areas.sweep_temporaries(-3600, now=2**31)
    assert list(cloudy.areas.list("")) == []
    assert cloudy.areas.sweep_temporaries(-3600, now=2**31) == 0


class Unsigned:
    """An upload, or a bucket of such, whose credentials sign nothing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def upload(self, *given: Any, **more: Any) -> Any:
        return Unsigned(self._inner.upload(*given, **more))

    def sign_part(self, *_: Any, **__: Any) -> None:
        raise Unavailable("no service account is configured that could sign URLs")


@pytest.mark.spec("ARU-48")
def test_parts_go_to_the_store_while_the_bucket_signs_nothing(
    settings: Settings, cloudy: Stores, job_queue: Outbox
) -> None:
    bucket: Any = Unsigned(cloudy.areas)
    changed = replace(cloudy, areas=bucket)
    client = create_app(settings, changed, job_queue=job_queue, verify=verify).test_client()
    assert client.post(f"/v1/area/{AREA}", headers=INGEST).status_code == 201
    begun = client.post(BEGIN, headers=INGEST, json={"size": 5}).json
    wanted = {"upload_id": begun["upload_id"], "part": 1, "crc32c": "4f1dab61"}
    told = client.post(PARTS, headers=INGEST, json=wanted).json
    assert (told["direct"], told["headers"]) == (False, {})
    assert client.put(told["url"], headers=INGEST, data=b"small").status_code == 200
