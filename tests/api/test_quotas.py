"""Deposits beyond a quota over HTTP."""

import io
from pathlib import Path

import pytest

from config import Settings
from pipelines import quotas
from pipelines.quotas import LAST_COUNT_KEY
from storage.catalog import store_state
from storage.stores import Stores
from tests.api.builders import AREA, INGEST, Depositor, uuid_of

FILES = f"/v1/area/{AREA}/files"
OWNER = "ingest@example.org"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    secret = "a secret for tests only"
    return Settings(home=tmp_path / "home", secret_key=secret, wait_s=0.0, quota_bytes=20)


@pytest.mark.spec("ERR-49")
def test_problem_says_what_is_left(depositor: Depositor) -> None:
    source = depositor.stage(b"content")
    assert depositor.put_file(uuid_of(1), source=source).status_code == 202
    refused = depositor.put_file(uuid_of(2), source=source)
    assert refused.status_code == 413
    assert refused.json["code"] == "quota_exceeded"
    assert refused.json["detail"] == (
        f"The quota of user {OWNER} is 20 bytes: 6 are left, and this needs 7."
    )
    quota = {"kind": "user", "name": OWNER, "unit": "bytes", "limit": 20}
    assert refused.json["quota"] == {**quota, "used": 14, "left": 6, "requested": 7}
    assert "Retry-After" not in refused.headers
    assert depositor.client.head(f"/v1/files/{uuid_of(2)}?replica=aws").status_code == 404


@pytest.mark.spec("ERR-49", "FIL-42")
def test_each_file_of_a_request_is_held_to_the_quota(depositor: Depositor) -> None:
    source = depositor.stage(b"content")
    answer = depositor.put_files({uuid_of(1): source, uuid_of(2): source})
    taken, refused = answer.json["files"]
    assert "task_id" in taken
    assert (refused["status"], refused["code"]) == (413, "quota_exceeded")
    assert refused["quota"]["left"] == 6
    assert "task_id" not in refused


@pytest.mark.spec("ERR-49")
def test_an_upload_beyond_the_quota_is_refused_before_its_bytes(depositor: Depositor) -> None:
    client = depositor.client
    depositor.stage(b"content")
    body = io.BytesIO(bytes(14))
    refused = client.put(f"{FILES}/b", input_stream=body, content_length=14, headers=INGEST)
    assert (refused.status_code, refused.json["code"]) == (413, "quota_exceeded")
    begun = client.post(
        f"/v1/area/{AREA}/uploads/c",
        json={"size": 14, "content_type": "text/plain"},
        headers=INGEST,
    )
    assert (begun.status_code, begun.json["code"]) == (413, "quota_exceeded")
    listed = client.get(f"/v1/area/{AREA}", headers=INGEST).json["files"]
    assert [file["name"] for file in listed] == ["a.txt"]
    assert client.put(f"{FILES}/b", data=bytes(13), headers=INGEST).status_code == 201


@pytest.mark.spec("ERR-49", "OPS-45")
def test_deposits_wait_for_the_first_count(depositor: Depositor, stores: Stores) -> None:
    client, source = depositor.client, depositor.stage(b"content")
    with stores.catalog.write() as tx:
        store_state.write_value(tx, LAST_COUNT_KEY, None)
    upload = {"size": 1, "content_type": "text/plain"}
    for refused in (
        depositor.put_file(uuid_of(1), source=source),
        client.put(f"{FILES}/b", data=b"1", headers=INGEST),
        client.put(f"{FILES}/b", input_stream=io.BytesIO(b"1"), headers=INGEST),
        client.post(f"/v1/area/{AREA}/uploads/b", json=upload, headers=INGEST),
    ):
        assert refused.status_code == 503
        assert refused.mimetype == "application/problem+json"
        assert "Usage is being counted" in refused.json["detail"]
        assert refused.headers["Retry-After"] == "5"
    assert client.get("/livez").status_code == 200
    listed = client.get(f"/v1/area/{AREA}", headers=INGEST).json["files"]
    assert [file["name"] for file in listed] == ["a.txt"]
    assert quotas.count_if_due(stores)
    assert depositor.put_file(uuid_of(1), source=source).status_code == 202
