"""A full disk shows in /health, and the store recovers when there is room."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from api.app import create_app
from config import Settings
from storage.catalog import Catalog, migrate
from storage.connect import connect
from storage.pubsub import MemoryPubSub
from tests.api.builders import INGEST, Depositor, uuid_of
from tests.api.conftest import verify
from tests.conftest import Outbox, draining
from tests.waiting import until

pytestmark = pytest.mark.spec("OPS-28")

SIZE = 12 * 1024 * 1024


def mounted(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or not mounted(folder):
        pytest.skip("needs root and the right to mount: the disk is a tmpfs of 12 MB")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def open_app(settings: Settings) -> tuple[Flask, Callable[[], int]]:
    settings.home.mkdir(exist_ok=True)
    migrated = Catalog(settings.catalog)
    migrate.upgrade(migrated)
    migrated.close()
    stores, job_queue = connect(settings, notices=MemoryPubSub()), Outbox()
    return create_app(settings, stores, job_queue=job_queue, verify=verify), draining(
        stores, job_queue
    )


def fill(disk: Path) -> Path:
    """Take all room, to the last byte."""
    path = disk / "fill"
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return path


def disk_part(app: Flask) -> tuple[int, Any]:
    answer = app.test_client().get("/health")
    return answer.status_code, answer.json["parts"]["disk"]


def test_full_disk_is_503_until_there_is_space(settings: Settings, disk: Path) -> None:
    app, drain = open_app(replace(settings, home=disk / "home"))
    depositor = Depositor(app.test_client(), drain)
    depositor.bundle(1)
    assert disk_part(app)[1]["status"] == "ok"

    filling = fill(disk)
    began = time.monotonic()
    until(lambda: disk_part(app)[0] == 503)
    assert time.monotonic() - began < 5
    status, part = disk_part(app)
    assert (status, part["status"]) == (503, "failed")
    assert f"disk {disk}: No space left on device" in part["reason"]
    folders = {"home", "areas", "bucket.aws", "bucket.gcp", "search", "catalog's folder"}
    assert folders <= set(part["places"])
    area = f"/v1/area/{uuid_of(77)}"
    assert app.test_client().post(area, headers=INGEST).status_code == 503

    filling.unlink()
    began = time.monotonic()
    until(lambda: disk_part(app)[1]["status"] == "ok")
    assert time.monotonic() - began < 5
    depositor.bundle(2)
    drain()
    query = {"es_query": {"query": {"match_all": {}}}}
    for replica in ("aws", "gcp"):
        found = app.test_client().post(f"/v1/search?replica={replica}", json=query)
        assert found.json["total_hits"] == 2


def test_unwritable_folder_is_503_until_it_is_writable(settings: Settings) -> None:
    app, _ = open_app(settings)
    away = settings.home / "areas.away"
    (settings.home / "areas").rename(away)
    until(lambda: disk_part(app)[0] == 503)
    assert disk_part(app)[1]["places"] == ["areas"]
    away.rename(settings.home / "areas")
    until(lambda: disk_part(app)[1]["status"] == "ok")
