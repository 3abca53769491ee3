"""Reads from a streaming replica of the catalog: what may be old, how old, and what never is."""

import logging
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import create_engine, text

from api.app import OPERATIONS, SERVICES_KEY, create_app
from api.service import list_checks
from auth import accounts
from auth.accounts import NewAccount
from auth.policies.grammar import parse_policy
from config import Settings, SettingsError
from storage.catalog import Catalog, migrate
from storage.catalog.accounts import AccountKey
from storage.connect import connect
from storage.metrics import REGISTRY
from storage.stores import Stores
from tests.api.builders import ADMIN, READER, VERSION, Depositor
from tests.api.conftest import PEOPLE, verify
from tests.auth.accounts.builders import BY
from tests.auth.policies.builders import document, statement
from tests.catalogs import POSTGRES
from tests.conftest import MemoryPubSub, Outbox, keyed
from tests.engines import postgres
from tests.engines.engine import Running
from tests.waiting import PATIENCE_S, until
from tests.web.conftest import Visitor
from web.app import create_site_app
from web.pages import list_pages

DEPLOYMENT = Path(__file__).resolve().parents[2] / "docs/deployment.md"
UNBOUNDED_S = 3_600.0
"""A lag that no test reaches: the standby is read although it stands still."""
UNSYNCED = {"fsync": "off", "shared_buffers": "32MB", "max_connections": "60"}


class Server:
    """A database server that a test asks directly."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._engine = create_engine(running.url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    @property
    def url(self) -> str:
        """Where the store finds it."""
        return self.running.url

    def ask(self, query: str) -> Any:
        """The first value of the answer."""
        with self._engine.connect() as connection:
            return connection.execute(text(query)).scalar()

    def pause(self) -> None:
        """Replay nothing from now on."""
        self.ask("SELECT pg_wal_replay_pause()")
        until(lambda: self.ask("SELECT pg_get_wal_replay_pause_state()") == "paused")

    def resume(self) -> None:
        """Replay again."""
        self.ask("SELECT pg_wal_replay_resume()")

    def close(self) -> None:
        """Close the connections of the test."""
        self._engine.dispose()


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """A folder for servers that run as another user: each start of pytest closes its own ones."""
    with tempfile.TemporaryDirectory(prefix="standby-") as name:
        yield Path(name)


@pytest.fixture(scope="module", params=["own"] if POSTGRES and postgres.missing() is None else [])
def servers() -> Iterator[tuple[Server, Server]]:
    """A migrated primary and its standby."""
    with (
        reachable_folder() as home,
        postgres.running(home, **UNSYNCED) as first,
        postgres.standby(home, first.url, **UNSYNCED) as second,
    ):
        migrated = Catalog(first.url)
        migrate.upgrade(migrated)
        migrated.close()
        primary, standby = Server(first), Server(second)
        yield primary, standby
        primary.close()
        standby.close()


@pytest.fixture
def standby(servers: tuple[Server, Server]) -> Iterator[Server]:
    """The standby, which replays again after the test."""
    yield servers[1]
    servers[1].resume()


@pytest.fixture
def lag_s() -> float:
    """The allowed lag."""
    return UNBOUNDED_S


@pytest.fixture
def stores(
    settings: Settings, servers: tuple[Server, Server], standby: Server, lag_s: float
) -> Iterator[Stores]:
    """Stores that read from the standby already, and have nothing to do."""
    primary = servers[0]
    primary.ask("DELETE FROM todo RETURNING step")
    changed = replace(
        settings,
        catalog_url=primary.url,
        catalog_read_url=standby.url,
        catalog_read_max_lag_s=lag_s,
    )
    opened = connect(changed, notices=MemoryPubSub())
    assert opened.catalog.standby
    until(opened.catalog.standby.is_usable)
    yield opened
    opened.catalog.close()


@pytest.fixture
def site(settings: Settings, signing_file: Path, stores: Stores, job_queue: Outbox) -> Flask:
    """The web pages."""
    keyed(settings.home, signing_file)
    return create_site_app(
        settings, stores, job_queue=job_queue, verify=verify, auth=None, post_form=dict
    )


def listing(client: FlaskClient, uuid: str, **headers: str) -> list[str]:
    """The uuids of a listing that begin so."""
    answer = client.get(f"/v1/bundles/all?replica=aws&prefix={uuid}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [row["uuid"] for row in answer.get_json()["bundles"]]


def reads(server: str) -> float:
    """How many requests were answered by the primary, the standby, or both."""
    return REGISTRY.get_sample_value("store_catalog_reads_total", {"server": server}) or 0.0


def deposit(depositor: Depositor) -> str:
    """A bundle without files of another's name, whose uuid no other test has."""
    uuid, file = str(uuid4()), str(uuid4())
    assert depositor.put_file(file).status_code in (200, 202)
    depositor.drain()
    entry = {"uuid": file, "version": VERSION, "name": "a.txt", "indexed": False}
    assert depositor.put_bundle(uuid, [entry]).status_code == 201
    depositor.drain()
    return uuid


@pytest.mark.spec("SBY-01", "SBY-02")
def test_listing_is_read_from_the_standby_unless_no_cache_is_asked(
    client: FlaskClient, depositor: Depositor, standby: Server
) -> None:
    before = deposit(depositor)
    until(lambda: listing(client, before))
    standby.pause()
    uuid = deposit(depositor)
    counted = reads("standby")
    assert listing(client, before) == [before]
    assert listing(client, uuid) == [], "the standby cannot have it yet"
    assert reads("standby") == counted + 2
    assert listing(client, uuid, **{"Cache-Control": "no-cache"}) == [uuid]
    assert reads("standby") == counted + 2
    standby.resume()
    until(lambda: listing(client, uuid) == [uuid])


@pytest.mark.spec("SBY-03")
def test_writer_reads_what_it_wrote(
    client: FlaskClient, depositor: Depositor, standby: Server
) -> None:
    standby.pause()
    uuid = deposit(depositor)
    bundle = client.get(f"/v1/bundles/{uuid}?replica=aws")
    assert bundle.status_code == 200
    (file,) = bundle.get_json()["bundle"]["files"]
    named = f"{file['uuid']}?replica=aws&version={file['version']}"
    for path in (
        f"/v1/bundles/{uuid}?replica=aws&version={VERSION}",
        f"/v1/files/{file['uuid']}/bundles?replica=aws",
        f"/v1/ga4gh/drs/v1/objects/{uuid}.{VERSION}",
        f"/v1/ga4gh/drs/v1/objects/{file['uuid']}.{file['version']}",
        f"/v1/ga4gh/drs/v1/objects/{file['uuid']}.{file['version']}/access/aws",
        f"/v1/events/{uuid}?replica=aws&version={VERSION}",
    ):
        assert client.get(path).status_code == 200, path
    assert client.head(f"/v1/files/{named}").status_code == 200
    assert client.get(f"/v1/files/{named}").status_code == 302
    again = depositor.put_bundle(uuid, [{**entry_of(file), "indexed": False}])
    assert again.status_code == 200, "the same content is already stored"


@pytest.mark.spec("SBY-03")
def test_verified_file_is_not_pending_any_more(
    client: FlaskClient, depositor: Depositor, servers: tuple[Server, Server], standby: Server
) -> None:
    uuid = str(uuid4())
    path = f"/v1/ga4gh/drs/v1/objects/{uuid}.{VERSION}"
    assert depositor.put_file(uuid).status_code == 202
    reached = servers[0].ask("SELECT pg_current_wal_flush_lsn()")
    until(lambda: standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{reached}'"))
    standby.pause()
    assert client.get(path).status_code == 202
    depositor.drain()
    assert client.get(path).status_code == 200


def entry_of(file: dict[str, Any]) -> dict[str, Any]:
    """A file of a bundle as its PUT names it."""
    return {name: file[name] for name in ("uuid", "version", "name")}


@pytest.mark.spec("SBY-03")
def test_deleted_bundle_is_gone_at_once(
    site: Flask, client: FlaskClient, depositor: Depositor, standby: Server
) -> None:
    uuid = deposit(depositor)
    until(lambda: listing(client, uuid) == [uuid])
    page, drs = f"/bundles/{uuid}?replica=aws", f"/v1/ga4gh/drs/v1/objects/{uuid}.{VERSION}"
    shown = Visitor(site).get(page)
    assert (shown.status_code, client.get(drs).status_code) == (200, 200)
    standby.pause()
    gone = client.delete(f"/v1/bundles/{uuid}?replica=aws", json={"reason": "test"}, headers=ADMIN)
    assert gone.status_code == 200, gone.text
    assert listing(client, uuid) == [uuid], "the standby still has it"
    assert client.get(f"/v1/bundles/{uuid}?replica=aws").status_code == 404
    assert client.get(drs).status_code == 404
    assert Visitor(site).get(page).status_code == 410
    standby.resume()
    until(lambda: listing(client, uuid) == [])


@pytest.mark.spec("SBY-04")
def test_absent_object_is_not_found(client: FlaskClient, stores: Stores) -> None:
    counted = reads("both")
    assert client.get(f"/v1/files/{uuid4()}/bundles?replica=aws").status_code == 404
    assert reads("both") == counted + 1


@pytest.mark.spec("SBY-05")
@pytest.mark.parametrize("lag_s", [10.0])
def test_standby_that_is_too_far_behind_is_not_read(
    app: Flask,
    client: FlaskClient,
    depositor: Depositor,
    standby: Server,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "storage.catalog.standby")
    standby.pause()
    uuid = deposit(depositor)
    until(lambda: listing(client, uuid) == [uuid])
    assert standby.ask("SELECT pg_get_wal_replay_pause_state()") == "paused"
    assert not standby.ask(f"SELECT count(*) FROM bundles WHERE uuid = '{uuid}'")
    assert health(app)["status"] == "warning"
    assert health(app)["lag_s"] > 10
    assert "not read, the primary is: it may be" in caplog.text
    caplog.clear()
    standby.resume()
    until(lambda: health(app)["status"] == "ok")
    assert "standby is read" in caplog.text


def health(app: Flask) -> dict[str, Any]:
    """What `/health` says of the standby."""
    return list_checks(app.extensions[SERVICES_KEY], lambda: False)["catalog.standby"]()


@pytest.mark.spec("SBY-06")
def test_answers_go_on_without_the_standby(
    app: Flask, client: FlaskClient, depositor: Depositor, standby: Server, stores: Stores
) -> None:
    before = deposit(depositor)
    until(lambda: listing(client, before) == [before])
    os.kill(standby.running.pid, signal.SIGKILL)
    try:
        uuid = deposit(depositor)
        assert listing(client, uuid) == [uuid]
        assert listing(client, before) == [before]
        until(lambda: health(app)["reason"] == "it cannot be reached")
    finally:
        standby.running.restart()
    assert stores.catalog.standby
    until(stores.catalog.standby.is_usable)


def is_answered_by_the_primary(client: FlaskClient, uuid: str) -> bool:
    """Whether a listing does not even try the standby."""
    counted = reads("primary")
    assert listing(client, uuid) == [uuid]
    return reads("primary") == counted + 1


@contextmanager
def hanging(server: Server) -> Iterator[None]:
    """Stop all processes of the server, as a frozen machine does; TCP connections stay open."""
    backends = server.ask("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity")
    pids = [server.running.pid, *map(int, backends.split())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.spec("SBY-06")
def test_requests_to_a_hanging_standby_are_answered_by_the_primary(
    app: Flask, depositor: Depositor, standby: Server, stores: Stores
) -> None:
    uuid = deposit(depositor)
    until(lambda: listing(app.test_client(), uuid) == [uuid])
    assert stores.catalog.standby
    stores.catalog.standby.measure()
    with ThreadPoolExecutor(4) as pool, hanging(standby):
        counted = reads("both")
        waiting = [pool.submit(listing, app.test_client(), uuid) for _ in range(4)]
        assert [one.result(PATIENCE_S) for one in waiting] == [[uuid]] * 4
        assert reads("both") > counted, "none of them waited for the standby"
        until(lambda: is_answered_by_the_primary(app.test_client(), uuid))
    until(stores.catalog.standby.is_usable)


@pytest.mark.spec("SBY-06")
def test_read_that_takes_too_long_is_asked_on_the_primary(
    stores: Stores, standby: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.catalog.standby.READ_LIMIT_S", 1.0)
    query = text("SELECT CASE WHEN pg_is_in_recovery() THEN pg_sleep(600)::text ELSE 'primary' END")

    def ask(catalog: Catalog) -> str:
        with catalog.read() as tx:
            return str(tx.execute(query).scalar_one())

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(stores.catalog.read_stale, ask, is_complete=bool)
        assert answer.result(PATIENCE_S) == "primary"
    # Its snapshot would keep the standby from replaying what other tests remove.
    standby.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    )
    assert stores.catalog.standby
    until(lambda: "longer" in stores.catalog.standby.measure().reason)


@pytest.mark.spec("SBY-07")
def test_permissions_are_never_old(
    settings: Settings, depositor: Depositor, stores: Stores, standby: Server, job_queue: Outbox
) -> None:
    uuid = deposit(depositor)
    closed = replace(settings, closed_operations=("*",))
    client = create_app(closed, stores, job_queue=job_queue, verify=verify).test_client()
    path = f"/v1/bundles/all?replica=aws&prefix={uuid}"
    until(lambda: listing(client, uuid, **READER) == [uuid])
    standby.pause()
    denied = parse_policy(document(statement("Deny", Action="store:*", Resource="*")))
    user = AccountKey("user", PEOPLE["reader"].email)
    assert client.get(path, headers=READER).status_code == 200
    accounts.create_account(stores.catalog, NewAccount(user, denied), BY)
    assert client.get(path, headers=READER).status_code == 403


@pytest.mark.spec("SBY-08")
def test_pages_are_old_for_visitors_only(
    site: Flask, depositor: Depositor, standby: Server
) -> None:
    standby.pause()
    uuid = deposit(depositor)
    assert uuid not in Visitor(site).get("/feed.atom").text
    assert uuid in Visitor(site, "reader").get("/feed.atom").text
    assert uuid in Visitor(site).get("/feed.atom", Authorization="Bearer reader").text
    page = Visitor(site).get(f"/bundles/{uuid}?replica=aws")
    assert (page.status_code, uuid in page.text) == (200, True)


@pytest.mark.spec("SBY-09")
def test_only_a_standby_of_the_catalog_is_read(
    servers: tuple[Server, Server], standby: Server
) -> None:
    primary, _ = servers

    def wait_for_refusal(url: str, read_url: str, reason: str) -> None:
        catalog = Catalog(url, read_url=read_url)
        try:
            assert catalog.standby
            measure = catalog.standby.measure
            # On a busy machine a measurement may fail first.
            until(lambda: reason in measure().reason)
            assert not measure().is_usable
        finally:
            catalog.close()

    wait_for_refusal(POSTGRES, standby.url, "it is a standby of another database server")
    with (
        reachable_folder() as home,
        postgres.standby(home, primary.url, **UNSYNCED) as other,
    ):
        promoted = Server(other)
        assert promoted.ask("SELECT pg_promote()")
        wait_for_refusal(primary.url, promoted.url, "it is not a standby")
        wait_for_refusal(promoted.url, standby.url, "last failover")
        promoted.close()


@pytest.mark.spec("SBY-01")
def test_documentation_lists_what_may_be_old() -> None:
    page = DEPLOYMENT.read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| read from the standby |")]
    named = set(re.findall(r"`([^`]+)`", rows[0]))
    operations = {one.name for one in OPERATIONS if one.may_lag}
    assert named == operations | {one.path for one in list_pages() if one.may_lag}


STANDBY_URL = "postgresql+psycopg://me:hush@db/store"


@pytest.mark.spec("SBY-10")
@pytest.mark.parametrize(
    ("catalog_url", "read_url"),
    [
        ("", STANDBY_URL),
        ("sqlite:////tmp/x.sqlite", STANDBY_URL),
        ("postgresql+psycopg://store@db/store", "foo:hush"),
        ("postgresql+psycopg://store@db/store", "postgres://me:hush@db/store"),
    ],
)
def test_settings_refuse_a_url_that_is_no_standby(
    settings: Settings, catalog_url: str, read_url: str
) -> None:
    with pytest.raises(SettingsError, match="STORE_CATALOG_READ_URL") as caught:
        replace(settings, catalog_url=catalog_url, catalog_read_url=read_url)
    assert "hush" not in str(caught.value)


@pytest.mark.spec("SBY-10")
def test_url_of_the_standby_is_checked_and_not_repeated() -> None:
    with pytest.raises(SettingsError, match="STORE_CATALOG_READ_URL") as caught:
        Catalog("postgresql+psycopg://store@db/store", read_url="postgres://me:hush@host/db")
    assert "hush" not in str(caught.value)
