"""Backups restore what no bucket can, once, and only into their own store."""

import gzip
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from sqlalchemy import Table

from pipelines import (
    area_files,
    areas,
    bundles,
    checkouts,
    checksums,
    deposits,
    events,
    ingest,
    subscriptions,
)
from pipelines.checkouts import CheckoutRequest
from pipelines.deposits import ChosenFile, DepositRequest
from pipelines.events import EventWindow
from pipelines.flow import Step
from pipelines.ingest import IngestRequest
from pipelines.recovery import backups, rebuild, reconcile
from pipelines.recovery.backups import RestoredTable
from pipelines.subscriptions import SECRET_PURPOSE, NewSubscription, secret_context
from storage import keys
from storage.catalog import Catalog, Tx, accounts, audit, deliveries, idempotency, jobs
from storage.catalog import areas as area_rows
from storage.catalog import backups as catalog_backups
from storage.catalog import subscriptions as rows
from storage.catalog.accounts import AccountKey, Membership
from storage.catalog.areas import Area
from storage.catalog.audit import AuditChange
from storage.catalog.deliveries import AttemptResult
from storage.catalog.idempotency import StoredResponse
from storage.catalog.tables import accounts as account_tables
from storage.encryption import SecretBox, derive_key
from storage.errors import ConflictError, DamagedObjectError, DomainError
from storage.model import CHECKSUM_NAMES, FQID, Job
from storage.stores import Stores
from tests.builders import SECRET, make_file, new_uuid, version
from tests.catalogs import ENGINES, Spares
from tests.pipelines.bundle_events import Silent, tend
from tests.pipelines.lost_catalog import AUTHOR, lost, write
from workers.actors import STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

pytestmark = pytest.mark.spec("OPS-16")

KEY = "aabb"
Drain = Callable[[], int]
SEALER = SecretBox(derive_key(SECRET.encode(), SECRET_PURPOSE))


def subscribe(stores: Stores, **given: Any) -> rows.Subscription:
    new = NewSubscription("https://receiver.example/hook", "aws", **given)
    return subscriptions.create_subscription(
        stores,
        new,
        "me@example.org",
        uuid=new_uuid(),
        seal=SEALER.seal,
        limit=9,
        allow_private=True,
    )


def saved(stores: Stores) -> bytes:
    target = io.BytesIO()
    backups.write_backup(stores, target, key=KEY)
    return target.getvalue()


def restored(stores: Stores, data: bytes, *, key: str = KEY) -> dict[str, RestoredTable]:
    found = backups.restore_backup(stores.catalog, io.BytesIO(data), key=key)
    return {one.table: one for one in found}


def kept(catalog: Catalog) -> list[tuple[str, dict[str, Any]]]:
    with catalog.read() as tx:
        return list(catalog_backups.read_rows(tx))


def staged(stores: Stores, content: bytes) -> str:
    """A file that waits to be verified; its task."""
    area = new_uuid()
    areas.create(stores, area, AUTHOR)
    hashed = checksums.compute_checksums([content], len(content)).checksums
    metadata = {f"store-{name}": getattr(hashed, name) for name in CHECKSUM_NAMES}
    key = keys.area_file_key(area, "a.txt")
    stores.areas.put(key, content, metadata=metadata)
    new = IngestRequest(FQID(new_uuid(), version()), "aws", stores.areas.direct_url(key), 1)
    task = ingest.start_task(stores, new, AUTHOR).task_id
    assert task is not None
    return task


def half_way(stores: Stores) -> None:
    """A file to be checksummed, in an area, an area to be removed, and a bundle to be made."""
    area, gone = new_uuid(), new_uuid()
    for uuid in (area, gone):
        areas.create(stores, uuid, AUTHOR)
    stores.areas.put(keys.area_file_key(area, "b.txt"), b"past us")
    area_files.register_upload(stores, area, "b.txt", {"size": 7}, request_id="r2")
    areas.delete(stores, gone, AUTHOR, request_id="r3")
    chosen = [ChosenFile("c.txt", "c.txt", False)]
    new = DepositRequest(area, "aws", new_uuid(), 7, chosen)
    deposits.start(stores, deposits.plan(stores, new, AUTHOR), request_id="r4")


@pytest.fixture
def used(stores: Stores, drain: Drain) -> FQID:
    """Every table has something; a bundle of which somebody is to be told."""
    signed = subscribe(stores, hmac_secret_key="a secret of theirs", hmac_key_id="k")
    attached = {"n": {"type": "jmespath", "expression": "bundle_info.uuid"}}
    subscribe(stores, jmespath_query="event_type=='CREATE'", attachments=attached)
    with stores.catalog.write() as tx:
        rows.rotate_secret(
            tx, signed, secret=SEALER.seal(b"next", b"c"), key_id="k2", until_us=2**52
        )
    fqid = write(stores, make_file(stores, b"x", everywhere=True))
    staged(stores, b"done")
    drain()
    checkouts.create(
        stores, CheckoutRequest("aws", *fqid, email="me@example.org"), "me", request_id="r1"
    )
    staged(stores, b"open")
    half_way(stores)
    with stores.catalog.write() as tx:
        ident = tx.exec_driver_sql("SELECT min(id) FROM deliveries").scalar_one()
        deliveries.record_attempts(
            tx, [AttemptResult(ident, 5, 0.5, 503, None, "no", "pending", 2**50, None)]
        )
        idempotency.insert(tx, "me", "k", StoredResponse("d", "{}"))
    events.request_replay(
        stores, signed, EventWindow(None, None), ident=new_uuid(), repeatable=None
    )
    with stores.catalog.write() as tx:
        rows.pause(tx, signed.id)
    with stores.catalog.write() as tx:
        identities(tx)
    return fqid


def identities(tx: Tx) -> None:
    """Somebody with all that anybody may have."""
    user, group = AccountKey("user", "me@example.org"), AccountKey("group", "team")
    accounts.lock_all(tx)
    for name in (user, group):
        accounts.insert(tx, name, "{}")
    accounts.insert_memberships(tx, [Membership(user, group)])
    accounts.count_change(tx)
    audit.append(tx, AuditChange("me", "w", "user/me@example.org", None, "{}", "r1"))
    made: list[tuple[Table, dict[str, Any]]] = [
        (account_tables.passwords, {"email": "me@example.org", "hash": "h", "changed_us": 1}),
        (
            account_tables.clients,
            {"id": "c", "name": "C", "redirect_uris": "[]", "first_party": False},
        ),
        (
            account_tables.consents,
            {"email": "me@example.org", "client": "c", "scope": "s", "at_us": 1},
        ),
        (account_tables.service_keys, {"email": "robot@example.org", "kid": "1", "jwk": "{}"}),
        (account_tables.quotas, {"kind": "group", "name": "team", "bytes": 5}),
    ]
    for table, row in made:
        times = {"created_us": 1} if "created_us" in table.columns else {}
        tx.execute(table.insert().values(**row, **times))


def test_restored_accounts_change_policy_version(
    used: FQID, stores: Stores, spares: Spares, tmp_path: Path
) -> None:
    data = saved(stores)
    with lost(stores, spares, tmp_path / "lost") as fresh:
        counted = []
        for _ in range(2):
            restored(fresh, data)
            with fresh.catalog.read() as tx:
                counted.append(accounts.read_change_count(tx))
    assert (min(counted) > 0, len(set(counted))) == (True, 1)
    assert used


@pytest.mark.parametrize("engine", ENGINES)
def test_every_row_is_there_again_in_a_catalog_of_either_engine(
    engine: str, used: FQID, stores: Stores, spares: Spares, tmp_path: Path
) -> None:
    data, before = saved(stores), kept(stores.catalog)
    assert {table for table, _ in before} == {one.name for one in catalog_backups.BACKUP_TABLES}
    with lost(stores, spares, tmp_path / "lost", engine=engine) as fresh:
        done = restored(fresh, data)
        assert sum(one.added for one in done.values()) == len(before)
        assert kept(fresh.catalog) == before
        again = restored(fresh, data)
        assert {one.added for one in again.values()} == {0}
        assert kept(fresh.catalog) == before
    assert used


def test_pending_work_continues_without_repeats(
    used: FQID, stores: Stores, spares: Spares, tmp_path: Path
) -> None:
    data = saved(stores)
    with lost(stores, spares, tmp_path / "lost") as fresh:
        rebuilding_of(fresh)
        restored(fresh, data)
        with fresh.catalog.read() as tx:
            steps = {step for step, _ in jobs.count_open(tx)}
        assert {"verify", "checkout", "replay", "area_checksum", "area_remove", "deposit"} <= steps
        do_all(fresh)
        restored(fresh, data)
        with fresh.catalog.read() as tx:
            # It is looked once more at an area that went, in a day.
            assert jobs.count_open(tx) == {(Step.AREA_REMOVE, "aws"): 1}
            states = tx.exec_driver_sql("SELECT state FROM tasks").scalars().all()
            assert tx.exec_driver_sql("SELECT state FROM checkouts").scalar_one() == "SUCCEEDED"
        assert states == ["SUCCEEDED", "SUCCEEDED"]
    assert used


def rebuilding_of(stores: Stores) -> None:
    list(rebuild.rebuild_catalog(stores, "aws", token=new_uuid()))
    reconcile.reconcile_catalog(stores)


def do_all(stores: Stores) -> None:
    job_queue: Any = Silent()
    working = WorkerContext(stores, job_queue, STEP_FUNCTIONS, 5, Random(0))
    while rows_due := _due(stores):
        for row in rows_due:
            run_job(working, row)


def _due(stores: Stores) -> list[Job]:
    with stores.catalog.write() as tx:
        return [row for step in Step for row, *_ in jobs.take_due(tx, step, limit=100, resend=True)]


def test_secrets_and_schedules_survive(
    stores: Stores, drain: Drain, spares: Spares, tmp_path: Path
) -> None:
    made = subscribe(stores, hmac_secret_key="a secret of theirs")
    write(stores, make_file(stores, b"x", everywhere=True))
    drain()
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE deliveries SET due_us = 77, attempts = 3")
    with lost(stores, spares, tmp_path / "lost") as fresh:
        restored(fresh, saved(stores))
        with fresh.catalog.read() as tx:
            found = rows.find(tx, made.uuid)
            assert found is not None
            assert found.hmac_secret is not None
            plain = SEALER.open(bytes(found.hmac_secret), secret_context(made.uuid))
            due = deliveries.list_due(tx, found.endpoint_id, limit=9)
        assert plain == b"a secret of theirs"
        assert [one.attempts for one in due] == [3]


def test_outdated_deliveries_are_superseded(
    used: FQID, stores: Stores, drain: Drain, spares: Spares, tmp_path: Path
) -> None:
    data = saved(stores)
    bundles.delete(stores, "aws", *used, reason="r", author=AUTHOR)
    drain()
    tend(stores)
    with lost(stores, spares, tmp_path / "lost") as fresh:
        rebuilding_of(fresh)
        restored(fresh, data)
        with fresh.catalog.read() as tx:
            found = tx.exec_driver_sql("SELECT state FROM deliveries").scalars().all()
        assert found == ["superseded", "superseded"]


def test_restored_subscriptions_match(stores: Stores, spares: Spares, tmp_path: Path) -> None:
    subscribe(stores)
    with lost(stores, spares, tmp_path / "lost") as fresh:
        write(fresh, make_file(fresh, b"before", everywhere=True))
        do_all(fresh)
        restored(fresh, saved(stores))
        write(fresh, make_file(fresh, b"after", everywhere=True))
        do_all(fresh)
        with fresh.catalog.read() as tx:
            assert tx.exec_driver_sql("SELECT count(*) FROM deliveries").scalar_one() == 1


def test_task_of_purged_file_is_not_restored(
    used: FQID, stores: Stores, spares: Spares, tmp_path: Path
) -> None:
    data = saved(stores)
    with lost(stores, spares, tmp_path / "lost") as fresh:
        with stores.catalog.read() as tx:
            uuid, at = tx.exec_driver_sql("SELECT uuid, version FROM tasks LIMIT 1").one()
        with fresh.catalog.write() as tx:
            tx.exec_driver_sql(
                "INSERT INTO purges (kind, uuid, version, reason, author, origin, digest,"
                f" event_id, created_us) VALUES ('file', '{uuid}', '{at}', '', '', 'aws', '', '',"
                " 1)"
            )
        done = restored(fresh, data)
        assert (done["tasks"].rows, done["tasks"].added) == (2, 1)
    assert used


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_file_changes_nothing(
    seed: int, used: FQID, stores: Stores, spares: Spares, tmp_path: Path
) -> None:
    rng, data = Random(seed), bytearray(saved(stores))
    if seed % 2:
        data = data[: rng.randrange(len(data))]
    else:
        # Not the header's time and system, which say nothing.
        data[rng.randrange(10, len(data))] ^= 1 << rng.randrange(8)
    with lost(stores, spares, tmp_path / "lost") as fresh:
        with pytest.raises(DamagedObjectError):
            restored(fresh, bytes(data))
        assert kept(fresh.catalog) == []
    assert used


def packed(*lines: Any) -> bytes:
    return gzip.compress(b"".join(orjson.dumps(line) + b"\n" for line in lines))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "checksum"),
        (b"hello", "no backup"),
        (gzip.compress(b"hello\n"), "no backup"),
        (packed([1, 2]), "no backup"),
        (packed({"format": "store-backup/2"}), "store-backup/1"),
        (packed({"format": backups.FORMAT}), "header"),
    ],
    ids=["empty", "text", "lines", "list", "later", "bare"],
)
def test_rejects_invalid_backup_with_reason(data: bytes, said: str, stores: Stores) -> None:
    with pytest.raises(DomainError, match=said):
        restored(stores, data)


@pytest.mark.parametrize(
    "row",
    [
        [1],
        ["areas", 1],
        [["areas"], 1],
        ["areas", {"uuid": {"x": 1}}],
        ["areas", {"uuid": {backups.BYTES_MEMBER: "!"}}],
        ["areas", {"uuid": 1}],
        ["subscriptions", {"uuid": "x", "address": "of no endpoint"}],
        ["tasks", {}],
    ],
    ids=str,
)
def test_rejects_backup_with_invalid_rows(
    row: Any, stores: Stores, spares: Spares, tmp_path: Path
) -> None:
    header = orjson.loads(gzip.decompress(saved(stores)).splitlines()[0])
    told = b"".join(orjson.dumps(line) + b"\n" for line in (header, row))
    data = packed(header, row, {"rows": 1, "sha256": hashlib.sha256(told).hexdigest()})
    with lost(stores, spares, tmp_path / "lost") as fresh:
        with pytest.raises(DamagedObjectError):
            restored(fresh, data)
        assert kept(fresh.catalog) == []


def test_rejects_backup_of_other_secret(used: FQID, stores: Stores) -> None:
    with pytest.raises(ConflictError, match="STORE_SECRET_KEY"):
        restored(stores, saved(stores), key="ccdd")
    assert used


@pytest.mark.spec("OPS-43")
def test_accepts_backup_of_former_secret(used: FQID, stores: Stores) -> None:
    source = io.BytesIO(saved(stores))
    assert backups.check_backup(source, key="ccdd", former=[KEY]).key == KEY
    assert list(backups.restore_backup(stores.catalog, source, key="ccdd", former=[KEY]))
    assert used


def test_rejects_backup_of_later_version(used: FQID, stores: Stores) -> None:
    lines = [orjson.loads(line) for line in gzip.decompress(saved(stores)).splitlines()]
    later = {**lines[0], "revision": "9999"}
    with pytest.raises(ConflictError, match="later version"):
        restored(stores, packed(later, *lines[1:]))
    assert used


def test_a_backup_is_one_state_of_the_catalog(used: FQID, stores: Stores) -> None:
    class Meddling(io.BytesIO):
        """Somebody makes an area and is answered, at once, whenever a bit of the file is written;
        one is the first table of the file, the other a later one."""

        def write(self, data: Any) -> int:
            with stores.catalog.write() as tx:
                assert area_rows.insert_area(tx, Area(new_uuid(), "late", "UNLOCKED"))
                assert idempotency.insert(tx, "late", new_uuid(), StoredResponse("d", "{}"))
            return super().write(data)

    before = kept(stores.catalog)
    target = Meddling()
    counts = backups.write_backup(stores, target, key=KEY)
    late = {name: counts[name] - [table for table, _ in before].count(name) for name in counts}
    assert late["areas"] == late["answers"]
    assert {late[name] for name in counts if name not in ("areas", "answers")} == {0}
    assert used
