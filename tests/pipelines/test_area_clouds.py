"""Upload areas in cloud buckets: metadata of direct uploads, and areas as sources."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from pipelines import area_files, areas, ingest
from pipelines.areas import IncomingFile
from pipelines.ingest import IngestRequest
from storage import keys
from storage.blobs.sources import SourceSettings, UrlSources
from storage.model import FQID
from storage.stores import Stores
from tests.builders import new_uuid, version
from tests.conftest import Outbox, draining
from tests.storage.blobs import backend_gcs, backend_s3
from tests.storage.contracts.blob_store import Backend

ME = "me@example.org"
LARGE = Random(1).randbytes(9 * 1024 * 1024)
"""More than is held in memory: on S3 it comes in parts, and its metadata as tags."""

CLOUDS: dict[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "s3": backend_s3.simulated,
    "s3-versioned": partial(backend_s3.simulated, versioned=True),
    **backend_s3.SERVERS,
    **backend_gcs.GCS,
}
"""Simulated ones, and the servers that the environment names."""


@pytest.fixture(params=CLOUDS)
def clouded(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[Stores]:
    with CLOUDS[request.param](tmp_path) as backend:
        bucket = backend.area or backend.store
        own = tuple(stores.replicas.values())
        yield replace(
            stores, areas=bucket, sources=UrlSources(SourceSettings(areas=bucket, own_buckets=own))
        )


def opened(stores: Stores) -> str:
    uuid = new_uuid()
    areas.create(stores, uuid, ME)
    return uuid


def taken_in(stores: Stores, area: str, name: str) -> str:
    url = stores.areas.direct_url(keys.area_file_key(area, name))
    task = ingest.start_task(
        stores, IngestRequest(FQID(new_uuid(), version()), "aws", url, 1), ME
    ).task_id
    draining(stores, Outbox())()
    assert task is not None
    return ingest.get_task(stores, task).state


def put(stores: Stores, area: str, name: str, data: bytes) -> None:
    areas.receive_file(stores, IncomingFile(area, name, "x/y", iter([data]), len(data), 2**30), ME)


@pytest.mark.spec("ARE-21")
def test_file_uploaded_through_api_is_a_source(clouded: Stores) -> None:
    area = opened(clouded)
    for name, data in (("small", b"abc"), ("large", LARGE)):
        put(clouded, area, name, data)
        assert area_files.get_file(clouded, area, name).validation == "VALIDATED"
        assert taken_in(clouded, area, name) == "SUCCEEDED"


@pytest.mark.spec("ARE-21")
def test_directly_uploaded_file_is_a_source_once_checksummed(clouded: Stores) -> None:
    area = opened(clouded)
    for name, data in (("a.json", b"{}"), ("deep/large", LARGE)):
        key = keys.area_file_key(area, name)
        clouded.areas.put(key, data, content_type="x/y", metadata={"own": "1"})
        assert area_files.get_file(clouded, area, name).status == "UNSCHEDULED"
        area_files.register_upload(clouded, area, name, {"size": len(data), "content_type": "x/y"})
        draining(clouded, Outbox())()
        assert area_files.get_file(clouded, area, name).validation == "VALIDATED"
        assert clouded.areas.head(key).metadata["own"] == "1"
        assert taken_in(clouded, area, name) == "SUCCEEDED"


@pytest.mark.spec("ARE-21")
def test_replaced_file_loses_its_checksums(
    clouded: Stores,
) -> None:
    area = opened(clouded)
    key = keys.area_file_key(area, "a")
    for turn in (b"1st", b"2nd"):
        clouded.areas.put(key, turn, replace=True)
        assert area_files.get_file(clouded, area, "a").status == "UNSCHEDULED"
        assert "store-sha1" not in clouded.areas.head(key).metadata
        assert area_files.register_upload(clouded, area, "a").status == "SCHEDULED"
        draining(clouded, Outbox())()
        assert area_files.get_file(clouded, area, "a").status == "CHECKSUMMED"
    assert taken_in(clouded, area, "a") == "SUCCEEDED"


@pytest.mark.spec("ARE-21")
def test_an_area_is_listed_and_removed(clouded: Stores) -> None:
    area, other = opened(clouded), opened(clouded)
    # No name is another's folder: servers that keep objects as files take no such two.
    names = ["Z", "a", "b/c", "é"]
    for name in reversed(names):
        put(clouded, area, name, b"x")
        put(clouded, other, name, b"x")
    listed = area_files.list_files(clouded, area, "", 9)
    assert [(file.name, file.status) for file in listed] == [(n, "CHECKSUMMED") for n in names]
    assert [file.name for file in area_files.list_files(clouded, area, "a", 1)] == ["b/c"]
    areas.delete(clouded, area, ME)
    draining(clouded, Outbox())()
    assert list(clouded.areas.list(keys.area_prefix(area))) == []
    assert len(list(clouded.areas.list(keys.area_prefix(other)))) == 4
