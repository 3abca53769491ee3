"""Stateful property test: every acknowledged byte reads back.

A machine deposits, honestly and not, writes, patches, buries and purges bundles, lets the clock
sweep, scrub and collect garbage, damages single copies, and crashes between any two calls to a
bucket or to the catalog. `make drill DEEP=1` runs more of it; `--hypothesis-seed=<n>` repeats one.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from config import Settings
from pipelines import (
    areas,
    bundles,
    checksums,
    copies,
    files,
    garbage_collection,
    ingest,
    purges,
    scrub,
    sweeps,
)
from pipelines.bundles import BundleDraft, BundlePatch, NewEntry
from pipelines.flow import Step
from pipelines.ingest import IngestRequest
from storage import keys
from storage.blobs.folder import FolderBlobs
from storage.catalog import jobs
from storage.connect import connect
from storage.errors import DamagedObjectError, DomainError, NotFoundError
from storage.model import CHECKSUM_NAMES, FQID, REPLICAS, Checksums, Job, Replica
from storage.protocols import BlobStore
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests import scrubs
from tests.catalogs import Spares
from tests.damage import HEADER, KINDS, damage_file
from tests.pipelines.bundle_events import Silent
from tests.pipelines.crashes import Crashed, crashing
from tests.property_depth import DEEP
from tests.storage.blobs import backend_s3
from workers.actors import BATCH_FUNCTIONS, STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

OWNER = "depositor@example.org"
INLINE = 600
"""Bytes up to which an object counts as small here: both ways of storing one are taken."""
CONTENTS = (b"", b"a", b'{"a": 1}', b"c" * 700, b"d" * 700)
LIES = ("sha1", "crc32c", "s3_etag", "sha256", "other bytes", "all of another")

Opening = Callable[[Path], AbstractContextManager[Stores]]
crash_points = st.none() | st.integers(0, 60)
replica_names = st.sampled_from(REPLICAS)


@dataclass
class Written:
    """A bundle that was acknowledged."""

    fqid: FQID
    files: set[FQID]
    buried: set[str] = field(default_factory=set)
    """What a purge may be ordered of: the version, or "" for the whole uuid."""
    purged: bool = False


class StoredBytes(RuleBasedStateMachine):
    """The store as its users, its operator, its disks and its power supply see it."""

    opening: Opening

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        home = Path(self.stack.enter_context(TemporaryDirectory(prefix="stored-bytes-")))
        self.stores = self.stack.enter_context(type(self).opening(home))
        self.count = 0
        self.pending: dict[str, tuple[FQID, bytes | None]] = {}
        self.staged: dict[str, str] = {}
        self.removed: set[str] = set()
        self.stored: dict[FQID, bytes] = {}
        self.written: list[Written] = []
        self.named: dict[str, set[FQID]] = {}
        self.doomed: set[FQID] = set()
        self.intact: set[tuple[Replica, bytes]] = set()
        self.whole = True

    # What is done, and where it crashes

    def act(self, crash: int | None, do: Callable[[Stores], Any]) -> Any:
        """Return what an action returns; None if it was refused, or the process crashed."""
        with suppress(Crashed, DomainError):
            return do(crashing(self.stores, crash))
        return None

    def new_id(self) -> str:
        self.count += 1
        return f"{self.count:08x}-0000-4000-8000-000000000000"

    def new_version(self) -> FQID:
        return FQID(self.new_id(), "2026-01-01T000000.000000Z")

    def stage(self, content: bytes, declared: Checksums) -> tuple[str, str]:
        """A staged file's area and URL."""
        area = self.new_id()
        areas.create(self.stores, area, OWNER)
        key = keys.area_file_key(area, "a.json")
        metadata = {f"store-{field}": getattr(declared, field) for field in CHECKSUM_NAMES}
        self.stores.areas.put(key, content, metadata=metadata)
        return area, self.stores.areas.direct_url(key)

    def deposit(
        self, content: bytes, declared: Checksums, replica: Replica, crash: int | None
    ) -> None:
        area, url = self.stage(content, declared)
        fqid = self.new_version()
        new = IngestRequest(fqid, replica, url, 1)
        done = self.act(crash, lambda stores: ingest.start_task(stores, new, OWNER))
        honest = declared == sums_of(content)
        if done is not None and done.task_id is not None:
            self.pending[done.task_id] = (fqid, content if honest else None)
            self.staged[done.task_id] = area

    @initialize(content=st.sampled_from(CONTENTS), replica=replica_names)
    def store_a_file(self, content: bytes, replica: Replica) -> None:
        self.deposit(content, sums_of(content), replica, None)
        self.run_jobs(None)

    @rule(content=st.sampled_from(CONTENTS), replica=replica_names, crash=crash_points)
    def deposit_honestly(self, content: bytes, replica: Replica, crash: int | None) -> None:
        self.deposit(content, sums_of(content), replica, crash)

    @precondition(lambda self: self.stored)
    @rule(
        place=st.integers(0, 99),
        other=st.sampled_from(CONTENTS),
        lie=st.sampled_from(LIES),
        replica=replica_names,
        crash=crash_points,
    )
    def deposit_lying(
        self, place: int, other: bytes, lie: str, replica: Replica, crash: int | None
    ) -> None:
        """Name the bytes of another's file; it is looked at once, or later."""
        victim = chosen(sorted(self.stored.values()), place)
        true = sums_of(victim)
        if lie == "all of another":
            self.deposit(other, true, replica, None)
        elif lie == "other bytes":
            self.deposit(other, changed(sums_of(other), sha256=true.sha256), replica, None)
        else:
            wrong = "0" * len(getattr(true, lie))
            self.deposit(victim, changed(true, **{lie: wrong}), replica, None)
        self.run_jobs(crash)

    @precondition(lambda self: self.staged)
    @rule(place=st.integers(0, 99), crash=crash_points)
    def remove_area(self, place: int, crash: int | None) -> None:
        area = chosen(sorted(self.staged.values()), place)
        self.removed.add(area)
        self.act(crash, lambda stores: areas.delete(stores, area, OWNER))

    @precondition(lambda self: self.stored)
    @rule(
        places=st.lists(st.integers(0, 99), min_size=1, max_size=3),
        replica=replica_names,
        crash=crash_points,
    )
    def write_bundle(self, places: list[int], replica: Replica, crash: int | None) -> None:
        fqid, wanted = self.new_version(), {chosen(sorted(self.stored), place) for place in places}
        self.named[fqid.uuid] = set(wanted)
        entries = [NewEntry(f"{file.uuid}.json", file, True) for file in sorted(wanted)]
        new = BundleDraft(fqid, replica, 1, entries)
        if self.act(crash, lambda stores: bundles.put(stores, new, OWNER)):
            self.written.append(Written(fqid, wanted))

    @precondition(lambda self: self.written)
    @rule(
        bundle=st.integers(0, 99),
        file=st.integers(0, 99),
        replica=replica_names,
        crash=crash_points,
    )
    def patch_bundle(self, bundle: int, file: int, replica: Replica, crash: int | None) -> None:
        old, added = chosen(self.written, bundle), chosen(sorted(self.stored), file)
        self.named[old.fqid.uuid].add(added)
        patch = BundlePatch(old.fqid, replica, [NewEntry(self.new_id(), added, False)], ())
        done = self.act(crash, lambda stores: bundles.patch_bundle(stores, patch, OWNER))
        if done is not None:
            self.written.append(Written(done.fqid, old.files | {added}))

    @precondition(lambda self: self.written)
    @rule(place=st.integers(0, 99), whole=st.booleans(), crash=crash_points)
    def bury(self, place: int, whole: bool, crash: int | None) -> None:
        one = chosen(self.written, place)
        version = None if whole else one.fqid.version
        done = self.act(
            crash,
            lambda stores: bundles.delete(
                stores, "aws", one.fqid.uuid, version, reason="wrong", author=OWNER
            ),
        )
        if done is not None:
            one.buried.add(version or "")

    @precondition(lambda self: any(one.buried for one in self.written))
    @rule(place=st.integers(0, 99), crash=crash_points)
    def purge(self, place: int, crash: int | None) -> None:
        one = chosen([one for one in self.written if one.buried], place)
        version = None if "" in one.buried else one.fqid.version
        for other in self.written:
            if other.fqid == one.fqid or (version is None and other.fqid.uuid == one.fqid.uuid):
                other.purged = True
                self.doomed |= other.files
        if version is None:
            self.doomed |= self.named[one.fqid.uuid]
        self.act(
            crash,
            lambda stores: purges.order_purge(
                stores, one.fqid.uuid, version, reason="wrong", author=OWNER
            ),
        )

    # What goes on by itself

    @rule(crash=crash_points)
    def jobs_run(self, crash: int | None) -> None:
        self.run_jobs(crash)

    def run_jobs(self, crash: int | None) -> None:
        self.act(crash, self.run_all_jobs)

    def run_all_jobs(self, stores: Stores) -> None:
        """Every row once: a restart after the leases of the dead, and all delays, ran out."""
        sender: Any = Silent()
        for row in self.rows():
            with self.stores.catalog.write() as tx:
                jobs.insert(tx, [row])
            run_job(
                WorkerContext(stores, sender, STEP_FUNCTIONS, 99, Random(0), BATCH_FUNCTIONS), row
            )

    def rows(self) -> list[Job]:
        query = "SELECT step, replica, ref FROM todo ORDER BY born_us, step, replica, ref"
        with self.stores.catalog.read() as tx:
            return [Job(*row) for row in tx.execute(text(query))]

    @rule(crash=crash_points)
    def sweep(self, crash: int | None) -> None:
        self.act(crash, sweep_all)

    @rule(crash=crash_points)
    def collect_garbage(self, crash: int | None) -> None:
        self.act(crash, reap_all)

    @rule(crash=crash_points, days=st.sampled_from([0.0, 16.0]))
    def scrub(self, crash: int | None, days: float) -> None:
        """A turn of the scrub, after so many days; it is due after 15."""
        scrubs.age(self.stores, days)
        self.act(crash, scrubs.run)

    @precondition(lambda self: self.stored)
    @rule(place=st.integers(0, 99), kind=st.sampled_from(sorted(KINDS)), replica=replica_names)
    def damage(self, place: int, kind: str, replica: Replica) -> None:
        """One copy of what is whole in the other replica."""
        content = chosen(sorted(self.stored.values()), place)
        sha256 = sums_of(content).sha256
        other = next(name for name in REPLICAS if name != replica)
        if all(is_intact(self.stores.replicas[name], sha256) for name in (replica, other)):
            damage(self.stores.replicas[replica], keys.blob_key(sha256), kind)
            self.intact.discard((replica, content))

    # What has to hold

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        """Some copy is there of all that may not go; and what was intact in a replica still is,
        unless a disk damaged it."""
        self.whole = False
        self.look_at_tasks()
        contents = {self.stored[fqid] for fqid in self.protected()}
        intact = {
            (replica, content)
            for content in contents
            for replica, blobs in self.stores.replicas.items()
            if is_intact(blobs, sums_of(content).sha256)
        }
        assert {content for _, content in intact} == contents
        assert {one for one in self.intact - intact if one[1] in contents} == set()
        self.intact, self.whole = intact, True

    def look_at_tasks(self) -> None:
        """Keep what was acknowledged since; nothing that was declared falsely ever is."""
        for ident, (fqid, content) in list(self.pending.items()):
            task = ingest.get_task(self.stores, ident)
            if task.state == "SUCCEEDED":
                assert content is not None, "a false declaration was accepted"
                self.stored[fqid] = content
            elif task.state == "FAILED":
                assert content is None or self.staged[ident] in self.removed, task.cause
            else:
                continue
            del self.pending[ident], self.staged[ident]

    def protected(self) -> set[FQID]:
        """Files that no purge may take: those of none, and those that another bundle names."""
        kept = [one.files for one in self.written if not one.purged]
        return set(self.stored) - (self.doomed - set().union(*kept))

    def teardown(self) -> None:
        with self.stack:
            # What is lost already is told, and not what follows from it.
            if self.whole:
                self.settle()
                self.look_at_tasks()
                self.read_all()

    def read_all(self) -> None:
        for fqid in sorted(self.protected()):
            for replica in REPLICAS:
                assert files.locate(self.stores, replica, *fqid).state == "here"
                assert self.read(replica, fqid) == self.stored[fqid]

    def read(self, replica: Replica, fqid: FQID) -> bytes:
        key = keys.blob_key(sums_of(self.stored[fqid]).sha256)
        return b"".join(self.stores.replicas[replica].read(key))

    def settle(self) -> None:
        """Let a day pass on which nothing crashes."""
        for _ in range(8):
            self.run_all_jobs(self.stores)
            sweep_all(self.stores)
            for replica in REPLICAS:
                scrub.verify_replica(self.stores, replica, rng=Random(0), repair=True)
            reap_all(self.stores)
            if not self.open_rows():
                return
        raise AssertionError(f"work is left: {self.open_rows()}")

    def open_rows(self) -> list[Job]:
        """All but the last look into removed areas, which is due after a day."""
        return [row for row in self.rows() if row.step != Step.AREA_REMOVE]


def chosen(some: list[Any], place: int) -> Any:
    return some[place % len(some)]


def sums_of(content: bytes) -> Checksums:
    return checksums.compute_checksums([content], len(content)).checksums


def sweep_all(stores: Stores) -> None:
    sweeps.sweep_replicas(stores)
    sweeps.enqueue_reservations(stores, grace_s=-1)
    sweeps.abort_stale_uploads(stores, older_than_s=-1)


def reap_all(stores: Stores) -> None:
    garbage_collection.condemn_orphans(stores)
    garbage_collection.delete_expired(stores, grace_s=-1)


def is_intact(blobs: BlobStore, sha256: str) -> bool:
    try:
        data = b"".join(blobs.read(keys.blob_key(sha256)))
    except (NotFoundError, DamagedObjectError):
        return False
    return hashlib.sha256(data).hexdigest() == sha256


def damage(blobs: BlobStore, key: str, kind: str) -> None:
    """Damage a folder's file, header included; in a cloud, the bytes of the object."""
    if isinstance(blobs, FolderBlobs):
        damage_file(blobs, key, kind)
        return
    data = b"".join(blobs.read(key))
    changed = KINDS[kind if len(data) > HEADER or kind == "removed" else "extended"](data)
    if changed is None:
        blobs.delete(key)
    else:
        blobs.put(key, changed, replace=True)


@contextmanager
def folders(spares: Spares, home: Path) -> Iterator[Stores]:
    with spares.lend("sqlite", home) as url:
        settings = Settings(home=home / "home", secret_key="a secret for tests only", wait_s=0.0)
        opened = connect(changed(settings, catalog_url=url), notices=MemoryPubSub())
        try:
            yield opened
        finally:
            opened.catalog.close()


@contextmanager
def s3_buckets(spares: Spares, opening: backend_s3.Opening, home: Path) -> Iterator[Stores]:
    """Both replicas in buckets of S3."""
    with folders(spares, home) as stores, opening(home) as backend:
        yield changed(stores, replicas={"aws": backend.store, "gcp": backend.other})


ENGINES: dict[str, backend_s3.Opening | None] = {
    "folders": None,
    **backend_s3.S3,
    **backend_s3.SERVERS,
}
STEPS_OF_ONE = 60 if DEEP else 30
PHASES = tuple(Phase) if DEEP else (Phase.explicit, Phase.reuse, Phase.generate)
"""In CI a failure is told as it was found: to make it smaller takes minutes."""


@pytest.mark.spec("FIL-40")
@pytest.mark.hypothesis
@pytest.mark.parametrize("engine", ENGINES)
def test_every_acknowledged_byte_reads_back(
    engine: str, spares: Spares, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ingest, copies):
        monkeypatch.setattr(module, "INLINE_BYTES", INLINE)
    monkeypatch.setattr(sweeps, "SETTLED_US", -1)
    opening = ENGINES[engine]

    class Machine(StoredBytes):
        @staticmethod
        def opening(home: Path) -> AbstractContextManager[Stores]:
            return folders(spares, home) if opening is None else s3_buckets(spares, opening, home)

    count = EXAMPLES["folders" if opening is None else "s3"][DEEP]
    run_state_machine_as_test(
        Machine,
        settings=hypothesis_settings(
            max_examples=count, stateful_step_count=STEPS_OF_ONE, phases=PHASES
        ),
    )


EXAMPLES = {"folders": (10, 500), "s3": (2, 50)}
"""How many runs of the machine are made in CI, and in a deep run."""
