"""The whole store on real engines."""

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from ops import demo, local_store
from pipelines.checksums import compute_checksums
from storage.model import CHECKSUM_NAMES
from store_client import create_version
from tests.live.api import ApiClient
from tests.real import engines
from tests.storage.blobs import backend_gcs
from tests.waiting import until

pytestmark = pytest.mark.skipif(not engines.ENOUGH, reason="STORE_TEST_* name too few engines")

DESTINATION = "lab-"


@dataclass(frozen=True)
class Running:
    """A store and its client."""

    store: local_store.LocalStore
    service: ApiClient


@pytest.fixture(scope="module", params=engines.CLOUDS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    more = {"STORE_CHECKOUT_DESTINATIONS": f"{DESTINATION}*"}
    with ExitStack() as stack:
        given = stack.enter_context(engines.settings(gcp=engines.CLOUDS[request.param](), **more))
        # Depositors' clouds are those of the machine, whichever the store's own are.
        ambient = stack.enter_context(pytest.MonkeyPatch.context())
        ambient.setenv("AWS_ENDPOINT_URL_S3", engines.endpoint("S3"))
        if engines.GCS:
            ambient.setenv("STORAGE_EMULATOR_HOST", engines.endpoint("GCS"))
            # GCS's server believes anybody; only who signs URLs must be somebody.
            stack.enter_context(backend_gcs.running(tmp_path_factory.mktemp("account")))
        home = tmp_path_factory.mktemp("home")
        store = stack.enter_context(local_store.running_store(home, given))
        service = ApiClient.open(store.api, store.token)
        stack.callback(service.http.close)
        yield Running(store, service)


@pytest.mark.spec("SVC-12", "OPS-17", "OPS-18")
def test_tour_holds(running: Running, tmp_path: Path) -> None:
    demo.write_bundles(tmp_path, None, None)
    assert demo.run_tour(running.store, tmp_path), running.store.read_warnings()


def declared(content: bytes) -> dict[str, str]:
    sums = compute_checksums([content], len(content)).checksums
    return {f"store-{field}": str(getattr(sums, field)) for field in CHECKSUM_NAMES}


def in_metadata(content: bytes) -> str:
    """A depositor's object in S3 that declares its checksums in its metadata."""
    bucket = engines.name_of(engines.s3_bucket())
    engines.s3().put_object(
        Bucket=bucket, Key="run 1/ä.json", Body=content, Metadata=declared(content),
        ContentType="application/json",
    )  # fmt: skip
    return f"s3://{bucket}/run 1/ä.json"


def in_tags(content: bytes) -> str:
    """The same in its tags."""
    bucket = engines.name_of(engines.s3_bucket())
    engines.s3().put_object(
        Bucket=bucket, Key="a.json", Body=content, ContentType="application/json"
    )
    tags = [{"Key": name, "Value": value} for name, value in declared(content).items()]
    engines.s3().put_object_tagging(Bucket=bucket, Key="a.json", Tagging={"TagSet": tags})
    return f"s3://{bucket}/a.json"


def in_gcs(content: bytes) -> str:
    """A depositor's object in Google's cloud."""
    bucket = engines.name_of(engines.gcs_bucket())
    kind = "application/json"
    head = json.dumps({"name": "a.json", "contentType": kind, "metadata": declared(content)})
    body = b"".join(
        (
            b"--x\r\nContent-Type: application/json\r\n\r\n" + head.encode(),
            b"\r\n--x\r\nContent-Type: application/json\r\n\r\n" + content,
            b"\r\n--x--\r\n",
        )
    )
    sent = httpx.post(
        f"{engines.endpoint('GCS')}/upload/storage/v1/b/{bucket}/o?uploadType=multipart",
        content=body,
        headers={"Content-Type": "multipart/related; boundary=x"},
        trust_env=False,
    )
    sent.raise_for_status()
    return f"gs://{bucket}/a.json"


def deposit(running: Running, url: str) -> tuple[str, str]:
    ident, version = str(uuid.uuid4()), create_version()
    params = {"version": version, "replica": "aws"}
    body = {"source_url": url, "creator_uid": 1}
    running.service.call("PUT", f"/files/{ident}", params=params, json=body)
    return ident, version


def bundle_of(running: Running, **files: tuple[str, str]) -> tuple[str, str]:
    ident, version = str(uuid.uuid4()), create_version()
    lines = [
        {"name": name, "uuid": file, "version": at, "indexed": False}
        for name, (file, at) in files.items()
    ]
    running.service.call(
        "PUT",
        f"/bundles/{ident}",
        params={"version": version, "replica": "aws"},
        json={"creator_uid": 1, "files": lines},
    )
    params = {"replica": "gcp"}
    until(lambda: status(running, f"/bundles/{ident}", params) == 200)
    return ident, version


def status(running: Running, path: str, params: dict[str, str]) -> int:
    return running.service.send_once("GET", path, params=params).status_code


STAGED = [in_metadata, in_tags, *([in_gcs] if engines.GCS else [])]


@pytest.mark.spec("SVC-02", "FIL-07", "FIL-17")
@pytest.mark.parametrize("stage_it", STAGED)
def test_staged_object_is_ingested_from_either_cloud(running: Running, stage_it: Any) -> None:
    content = f'{{"n": "{uuid.uuid4()}"}}'.encode()
    ident, version = deposit(running, stage_it(content))
    bundle_of(running, one=(ident, version))
    for replica in ("aws", "gcp"):
        assert running.service.read_file(replica, ident, version) == content


@pytest.mark.spec("ERR-36")
def test_wrong_checksum_leaves_nothing(running: Running) -> None:
    bucket = engines.name_of(engines.s3_bucket())
    wrong = declared(b"something else") | {"store-sha256": "0" * 64}
    engines.s3().put_object(Bucket=bucket, Key="k", Body=b"something", Metadata=wrong)
    params = {"version": create_version(), "replica": "aws"}
    body = {"source_url": f"s3://{bucket}/k", "creator_uid": 1}
    path = f"/files/{uuid.uuid4()}"
    answer = running.service.send_once("PUT", path, params=params, json=body)
    until(lambda: status(running, path, params) == 422)
    assert answer.status_code in (202, 422)


@pytest.mark.spec("FIL-28")
def test_signed_url_has_content_type_of_file(running: Running) -> None:
    content = b"<p>" + uuid.uuid4().hex.encode()
    ident, version = deposit(running, in_metadata(content))
    bundle_of(running, page=(ident, version))
    for replica in ("aws", "gcp"):
        params = {"replica": replica, "version": version}
        moved = running.service.send_once("GET", f"/files/{ident}", params=params)
        assert moved.status_code == 302
        assert moved.headers["X-STORE-SHA256"] == hashlib.sha256(content).hexdigest()
        got = httpx.get(moved.headers["Location"], trust_env=False)
        assert (got.status_code, got.content) == (200, content)
        assert got.headers["Content-Type"] == "application/json"


def checked_out(running: Running, bundle: str, replica: str, **body: str) -> str:
    """Where a checkout put its copies, once it has."""
    params = {"replica": replica}
    started = running.service.call("POST", f"/bundles/{bundle}/checkout", params=params, json=body)
    path = f"/bundles/checkout/{started.json()['checkout_job_id']}"
    told: dict[str, Any] = {}

    def ended() -> bool:
        told.update(running.service.call("GET", path, params=params).json())
        return bool(told["status"] != "RUNNING")

    until(ended)
    assert told["status"] == "SUCCEEDED", told
    return str(told["location"])


def copied_to(location: str) -> dict[str, bytes]:
    """What lies under a place in S3, by names below it."""
    place = urlsplit(location)
    prefix = unquote(place.path).strip("/") + "/"
    listed = engines.s3().list_objects_v2(Bucket=place.netloc, Prefix=prefix)["Contents"]
    return {
        item["Key"].removeprefix(prefix): engines.s3()
        .get_object(Bucket=place.netloc, Key=item["Key"])["Body"]
        .read()
        for item in listed
    }


def two_files(running: Running) -> tuple[str, dict[str, bytes]]:
    """A bundle and what it holds."""
    contents = {name: uuid.uuid4().hex.encode() for name in ("one.bin", "deep/er/two é.bin")}
    files = {name: deposit(running, in_metadata(content)) for name, content in contents.items()}
    return bundle_of(running, **files)[0], contents


@pytest.mark.spec("CHK-02")
def test_checkout_goes_to_own_bucket(running: Running) -> None:
    name = f"{DESTINATION}{uuid.uuid4()}"
    engines.s3().create_bucket(Bucket=name)
    bundle, contents = two_files(running)
    location = checked_out(running, bundle, "aws", destination=name)
    assert location.startswith(f"s3://{name}/")
    assert copied_to(location) == contents


@pytest.mark.spec("CHK-05")
def test_a_checkout_without_a_destination_goes_to_the_area_of_its_replica(running: Running) -> None:
    bundle, contents = two_files(running)
    assert copied_to(checked_out(running, bundle, "aws")) == contents


@pytest.mark.spec("OPS-01")
def test_an_operator_sees_every_engine(running: Running) -> None:
    found = httpx.get(f"{running.store.api}/health", trust_env=False)
    parts = found.json()["parts"]
    assert found.status_code == 200, parts
    told = json.dumps(parts)
    assert "OpenSearch 2." in told
    assert "SQLite" not in told


@pytest.mark.spec("OPS-18")
def test_no_work_is_left(running: Running) -> None:
    headers = {"Authorization": f"Bearer {running.store.token}"}

    def done() -> bool:
        page = httpx.get(f"{running.store.api}/metrics", headers=headers, trust_env=False).text
        lines = [line for line in page.splitlines() if line.startswith("store_backlog")]
        return all(line.endswith((" 0", " 0.0")) for line in lines)

    until(done)
