"""`/livez` and `/readyz` of both HTTP services."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import text

from api.app import create_app
from api.authz.app import create_auth_app
from api.http.probes import Readiness
from api.http.responses import STOPPING_KEY
from ops import ports, procfile
from storage.catalog import Catalog, revisions
from tests.api import servers
from tests.api.conftest import verify
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.spec("OPS-01")


@pytest.fixture(params=["store", "authorization"])
def service(request, settings, stores, job_queue) -> Flask:
    if request.param == "store":
        return create_app(settings, stores, job_queue=job_queue, verify=verify)
    return create_auth_app(settings, stores.catalog, verify=verify)


def test_live_and_ready_service_is_200_without_token(service) -> None:
    for path in ("/livez", "/readyz"):
        answer = service.test_client().get(path, headers={"Authorization": "Bearer bad"})
        assert (answer.status_code, answer.json) == (200, {"status": "ok"})
        assert answer.headers["Cache-Control"] == "no-store"


def test_stopping_process_is_live_but_not_ready(service) -> None:
    client = service.test_client()
    stopping = {STOPPING_KEY: True}
    assert client.get("/livez", environ_overrides=stopping).status_code == 200
    answer = client.get("/readyz", environ_overrides=stopping)
    assert answer.status_code == 503
    assert answer.json == {"status": "failed", "reason": "the process is stopping"}


def set_revision(catalog: Catalog, revision: str) -> None:
    with catalog.write() as tx:
        tx.execute(text("UPDATE alembic_version SET version_num = :name"), {"name": revision})


def test_old_tables_are_not_ready_but_newer_ones_are(service, stores) -> None:
    expected = revisions.expected_revision()
    try:
        set_revision(stores.catalog, "0001")
        answer = service.test_client().get("/readyz")
        assert answer.status_code == 503
        reason = "the catalog is not migrated to this release"
        assert answer.json == {"status": "failed", "reason": reason}
        assert service.test_client().get("/livez").status_code == 200
        set_revision(stores.catalog, "9999")
        assert Readiness(stores.catalog).find_obstacle() is None
    finally:
        set_revision(stores.catalog, expected)


def test_unreachable_catalog_is_not_ready_and_not_named() -> None:
    away = Catalog(f"postgresql+psycopg://user:secret@127.0.0.1:{ports.find_free_port()}/store")
    assert Readiness(away).find_obstacle() == "the catalog cannot be reached"


def test_result_is_reused_for_a_second(stores) -> None:
    now = [100.0]
    readiness, expected = Readiness(stores.catalog, lambda: now[0]), revisions.expected_revision()
    assert readiness.find_obstacle() is None
    try:
        set_revision(stores.catalog, "0001")
        now[0] += 0.9
        assert readiness.find_obstacle() is None
        now[0] += 0.1
        assert readiness.find_obstacle() is not None
    finally:
        set_revision(stores.catalog, expected)


def test_operators_port_serves_probes(settings, stores, job_queue) -> None:
    own = replace(settings, ops_port=9999)
    client = create_app(own, stores, job_queue=job_queue, verify=verify).test_client()
    for path in ("/livez", "/readyz"):
        assert client.get(path, environ_overrides={"SERVER_PORT": "9999"}).status_code == 200


def test_successful_probes_are_not_logged(service, caplog) -> None:
    client = service.test_client()
    with caplog.at_level("INFO", logger="api.requests"):
        for path in ("/livez", "/readyz", "/health"):
            assert client.get(path).status_code == 200
        client.get("/readyz", environ_overrides={STOPPING_KEY: True})
    lines = [vars(one) for one in caplog.records if one.name == "api.requests"]
    assert [(line["path"], line["status"]) for line in lines] == [("/readyz", 503)]


@contextmanager
def running_auth(home: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    (line,) = (line for line in procfile.read_procfile() if line.name == "auth")
    process = subprocess.Popen(
        (sys.executable, "-m", *line.command),
        cwd=procfile.ROOT,
        env=servers.environ(home, port),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        servers.wait_for(port + 1, process)
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_server_that_stops_answers_503_on_open_connections(tmp_path: Path) -> None:
    port = ports.find_free_port_pair()
    with running_auth(servers.migrated(tmp_path), port) as process:
        connection = HTTPConnection("127.0.0.1", port + 1, timeout=PATIENCE_S)

        def probe() -> tuple[int, object]:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            return response.status, json.loads(response.read())

        assert probe() == (200, {"status": "ok"})
        process.send_signal(signal.SIGTERM)
        while (answer := probe())[0] == 200:
            pass
        assert answer == (503, {"status": "failed", "reason": "the process is stopping"})
        connection.close()
        assert process.wait(PATIENCE_S) == 0
