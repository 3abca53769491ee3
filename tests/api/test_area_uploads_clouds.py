"""Multipart uploads into areas in cloud buckets, through the API and by presigned URLs."""

import os
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from api.app import create_app
from config import Settings
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
