"""Recovery from loss and damage on real engines."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from config import load_settings
from examples.webhooks import Notification, Receiver, running_receiver
from pipelines import bundles
from storage import keys
from storage.connect import connect
from storage.model import FQID, REPLICAS, Replica
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.builders import SECRET, make_file
from tests.catalogs import PGBOUNCER, POSTGRES, fresh
from tests.engines import packages
from tests.live.api import MATCH_ALL
from tests.pipelines.lost_catalog import AUTHOR, do_all, write
from tests.real import engines, sample_store
from tests.real.sample_store import KEY, Filled, fingerprint, operate, playing, settled, told
from tests.waiting import until

pytestmark = [
    pytest.mark.skipif(not engines.ENOUGH, reason="STORE_TEST_* name too few engines"),
    pytest.mark.parametrize("clouds", [engines.FURTHEST]),
]

AWAY = "s3://nobody?endpoint=http://127.0.0.1:1"
REBUILT_ON: dict[Replica, str] = {"aws": POSTGRES, "gcp": PGBOUNCER or POSTGRES}
"""A pooler hands connections on between transactions: a rebuild's lease must outlast that."""
BUCKETS: dict[Replica, str] = {"aws": "STORE_REPLICA_AWS", "gcp": "STORE_REPLICA_GCP"}
OFTEN = {"STORE_DELIVERY_DELAYS_S": "0" + ",2" * 200, "STORE_JOURNAL_S": "0.5"}


@contextmanager
def rebuilt(home: Path, given: Mapping[str, str], replica: Replica) -> Iterator[dict[str, str]]:
    """The same store with a catalog that was made of one bucket while the other one was away."""
    other = BUCKETS["gcp" if replica == "aws" else "aws"]
    with fresh(REBUILT_ON[replica]) as url:
        environ = {**given, "STORE_CATALOG_URL": url}
        assert "read-only" in operate(home, environ, "migrate")
        operate(home, {**environ, other: AWAY}, "rebuild", "catalog", "--from", replica)
        yield environ


def used(home: Path, given: Mapping[str, str], callbacks: str, inbox: Receiver) -> Filled:
    """Everything is done to a store, and it is stopped when nothing is left to do."""
    filled = Filled()
    with (
        playing(home, given) as service,
        sample_store.looking(given["STORE_CATALOG_URL"]) as catalog,
    ):
        sample_store.subscribe(service, f"{callbacks}/j", "aws")
        sample_store.subscribe(service, f"{callbacks}/e", "gcp", es_query=MATCH_ALL)
        sample_store.deposit(service, filled, {"gcp": 4})
        with sample_store.depositing(service, filled, {"aws": 8}):
            shown = operate(home, given, "rebuild", "index")
        assert shown.count("the new index is searched") == len(REPLICAS)
        settled(service, catalog, filled)
        sample_store.change(service, filled)
        settled(service, catalog, filled)
        purge(home, given, filled)
        settled(service, catalog, filled)
        sample_store.heard(inbox, "/j", filled)
        until(lambda: inbox.rejected)
    return filled


def purge(home: Path, given: Mapping[str, str], filled: Filled) -> None:
    doomed = filled.deposited[4].fqid
    assert "Ordered" in operate(home, given, "purge", doomed, "--reason", "r", "--force", "--yes")
    filled.gone.add(doomed)


@pytest.mark.spec("OPS-15", "OPS-16")
def test_rebuilds_catalog_from_either_bucket(clouds: str, tmp_path: Path) -> None:
    home, kept, closed = tmp_path / "home", tmp_path / "night.backup", [True]
    home.mkdir()

    def accept(notice: Notification) -> bool:
        return not closed[0] or notice.path != "/e"

    with (
        running_receiver(KEY, accept=accept) as inbox,
        engines.settings(gcp=engines.CLOUDS[clouds](), **OFTEN) as given,
    ):
        filled = used(home, given, inbox.url, inbox)
        standing = told(given["STORE_CATALOG_URL"])
        before = fingerprint(home, given)
        assert [line for line in before if line.split("\t")[2] == "0"] == []
        operate(home, given, "backup", str(kept))
        for replica in REPLICAS:
            with rebuilt(home, given, replica) as environ:
                assert of(fingerprint(home, environ), replica) == of(before, replica)
                operate(home, environ, "restore", str(kept))
                assert told(environ["STORE_CATALOG_URL"]) == standing
                if replica == "aws":
                    adds_to_it(home, environ, before)
                else:
                    closed[0] = False
                    works_on(home, environ, inbox, filled)


def of(printed: set[str], replica: Replica) -> set[str]:
    return {line for line in printed if line.startswith(replica)}


def adds_to_it(home: Path, environ: Mapping[str, str], before: set[str]) -> None:
    """The other bucket, and reconciling, change nothing of what the first one gave."""
    operate(home, environ, "rebuild", "catalog", "--from", "gcp")
    shown = operate(home, environ, "reconcile").splitlines()
    counted = [line.split("\t") for line in shown if line.count("\t") == 4][1:]
    assert {(taken, refused) for *_, taken, refused in counted} == {("0", "0")}
    assert fingerprint(home, environ) == before


def works_on(home: Path, environ: Mapping[str, str], inbox: Receiver, filled: Filled) -> None:
    """It takes more in; who was told is not told again, who was not is."""
    operate(home, environ, "reconcile")
    already = [notice.id for notice in inbox.accepted]
    with playing(home, environ) as service:
        with sample_store.looking(environ["STORE_CATALOG_URL"]) as catalog:
            sample_store.deposit(service, filled, {"gcp": 1, "aws": 1})
            settled(service, catalog, filled)
        sample_store.heard(inbox, "/j", filled)
        sample_store.heard(inbox, "/e", filled)
    assert not inbox.invalid()
    idents = [notice.id for notice in inbox.accepted]
    assert len({*idents}) == len(idents)
    assert idents[: len(already)] == already
    assert "Damaged" not in operate(home, environ, "verify")


# Without processes ----------------------------------------------------------------------------


@contextmanager
def opened(given: Mapping[str, str], home: Path) -> Iterator[Stores]:
    settings = load_settings({**given, "STORE_HOME": str(home)})
    stores = connect(settings, notices=MemoryPubSub())
    try:
        yield stores
    finally:
        stores.catalog.close()


def a_bundle(stores: Stores, content: bytes) -> FQID:
    return write(stores, make_file(stores, content, everywhere=True))


@pytest.mark.spec("OPS-14")
def test_reports_damage_and_repairs_from_other_bucket(clouds: str, tmp_path: Path) -> None:
    wrong = "its bytes differ from its key"
    with engines.settings(gcp=engines.CLOUDS[clouds](), STORE_SECRET_KEY=SECRET) as given:
        operate(tmp_path, given, "migrate")
        with opened(given, tmp_path) as stores:
            for content in (b"content", b"CONTENT"):
                a_bundle(stores, content)
            blobs = dict(zip(REPLICAS, stores.replicas["aws"].list(keys.BLOBS), strict=True))
            for replica, blob in blobs.items():
                stores.replicas[replica].put(blob.key, b"c0ntent", replace=True)
        found = operate(tmp_path, given, "verify", code=1)
        mended = operate(tmp_path, given, "verify", "--repair")
        for replica, blob in blobs.items():
            assert f"{blob.key}\t{replica}\t{wrong}\tno" in found
            assert f"{blob.key}\t{replica}\t{wrong}\tyes" in mended
        assert "Damaged" not in operate(tmp_path, given, "verify")


def copied(source: str, target: str) -> None:
    """A dump of a database, and what an operator makes of it."""
    one, two = (url.replace("+psycopg", "") for url in (source, target))
    dump = subprocess.run(
        [packages.found("pg_dump"), "--no-owner", one], capture_output=True, check=True
    )
    load = [packages.found("psql"), "-q", "-v", "ON_ERROR_STOP=1", two]
    subprocess.run(load, input=dump.stdout, capture_output=True, check=True)


def seen(stores: Stores, replica: Replica) -> set[FQID]:
    return {*bundles.list_versions(stores, replica, "", None, 9)}


@pytest.mark.spec("OPS-13")
def test_catalog_from_dump_takes_in_later_objects(clouds: str, tmp_path: Path) -> None:
    with (
        engines.settings(gcp=engines.CLOUDS[clouds](), STORE_SECRET_KEY=SECRET) as given,
        fresh(POSTGRES) as older,
    ):
        operate(tmp_path, given, "migrate")
        with opened(given, tmp_path) as stores:
            kept, gone = (a_bundle(stores, content) for content in (b"kept", b"gone"))
            do_all(stores)
        copied(given["STORE_CATALOG_URL"], older)
        operate(tmp_path, given, "backup", str(tmp_path / "night.backup"))
        with opened(given, tmp_path) as stores:
            late = a_bundle(stores, b"late")
            bundles.delete(stores, "aws", *gone, reason="wrong", author=AUTHOR)
            do_all(stores)
        given["STORE_CATALOG_URL"] = older
        assert "read-only" in operate(tmp_path, given, "migrate")
        assert "bundle\taws\t2\t1\t0" in operate(tmp_path, given, "reconcile")
        with opened(given, tmp_path) as stores:
            assert seen(stores, "aws") == {kept, late}
        assert "of one epoch" in operate(tmp_path, given, "reconcile", "--dry-run")
