"""The causes of alerts in a running store: each block begins with the cause, and mends it."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg

from config import Settings
from config.process import bind_command_to_parent
from config.settings import FILE_VARIABLE
from examples.webhooks import running_receiver
from ops.commands import read_secret_key
from ops.local_store import CommandError, LocalStore
from ops.procfile import ROOT
from pipelines import mirrors, records
from storage import keys
from storage.catalog import store_state
from storage.catalog.sql import execute
from storage.heartbeats import read_heartbeats
from storage.model import FQID, REPLICAS
from storage.stores import Stores
from store_client import create_version
from tests.damage import flip, other_record, path_of
from tests.drill import environment
from tests.drill.fault_proxy import Mode
from tests.live.api import MATCH_ALL, ApiClient
from tests.live.deposits import (
    CREATOR_UID,
    DepositedBundle,
    Depositor,
    SampleBundle,
    make_file,
    make_metadata_file,
    random_bytes,
)
from tests.scrubs import age
from tests.waiting import PATIENCE_S, until

SETTINGS_FILE = "[metadata]\nsearch_fields = {fields}\n"
FEW_FIELDS, ENOUGH_FIELDS = 5, 10_000
"""Fields of a document that search takes: fewer than each has, and the default."""
HOUR_US = 3_600_000_000
READERS = 12
"""Clients that read at the same time."""
LOST_JOBS, FILE_BYTES = 8, 1 << 22
"""Jobs that a worker has claimed when it is stopped (the alert needs more than 5), and the size of
their files."""
STAGGER_S = 17.0
"""From one worker that is stopped to the next: half of what others wait to take its jobs."""
MOMENT_S = 0.1
"""How long a worker goes on until its claims are counted."""
LOCK_LIMIT_S = 0.2
"""A transaction that is idle for longer is that of a stopped process."""
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WAIT_FOR_THREADS = 0x4000_0000
"""__WALL of waitpid."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class AlertFixture:
    """A running store, the address of its metrics, and the engines under it."""

    store: LocalStore
    service: ApiClient
    target: str
    backend: environment.Stand
    mirrored: "MirroredStore | None" = None
    """The store that this one mirrors."""

    @contextmanager
    def opened(self) -> Iterator[Stores]:
        """Open the store's own stores beside it."""
        with environment.opened(self.store, self.backend) as stores:
            yield stores

    def find_pid(self, name: str) -> int:
        """Return the id of a process of the store; 0 if it does not run now."""
        return int(self.store.read_processes()["processes"].get(name, {}).get("pid", 0))

    def wait_for_pid(self, name: str) -> int:
        """Return the id of a process of the store as soon as it runs, never 0."""
        pid = 0

        def find() -> int:
            nonlocal pid
            pid = self.find_pid(name)
            return pid

        until(find)
        return pid

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Stop a process of the store, with its children, until the block ends."""
        pid = self.wait_for_pid(name)
        try:
            os.killpg(pid, signal.SIGSTOP)
            yield
        finally:
            os.killpg(pid, signal.SIGCONT)

    def deposit(self, replica: str = "aws", **metadata: Any) -> DepositedBundle:
        """Deposit a bundle; it is in one replica afterwards."""
        depositor = Depositor(self.service, str(uuid.uuid4()), replica)
        depositor.create_area()
        return depositor.deposit(_make_bundle(metadata))

    def set_back(self, statement: str, **values: Any) -> None:
        """Change times in the catalog, as if they were longer ago."""
        with self.opened() as stores, stores.catalog.write() as tx:
            execute(tx, statement, values)

    @contextmanager
    def readers(self, method: str, path: str, **request: Any) -> Iterator[None]:
        """Let clients send the same request again and again, whatever the answer is."""
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                with suppress(httpx.TransportError):
                    self.service.send_once(method, path, timeout=60.0, **request)

        threads = [threading.Thread(target=read) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


@dataclass(frozen=True)
class MirroredStore:
    """A running store, and the process that copies it into another one."""

    fixture: AlertFixture
    mirror: "subprocess.Popen[bytes]"
    log: Path
    """The log of that process."""


def _make_bundle(metadata: dict[str, Any]) -> SampleBundle:
    label = str(uuid.uuid4())
    content = {"label": label, **metadata}
    files = make_metadata_file("a.json", content), make_file("b.txt", "text/plain", label.encode())
    return SampleBundle(label, files)


def _is_everywhere(fixture: AlertFixture, one: DepositedBundle) -> bool:
    return all(one.fqid in fixture.service.list_bundles(replica) for replica in REPLICAS)


# Backups and integrity ----------------------------------------------------------------------------


def _back_up(fixture: AlertFixture) -> None:
    fixture.store.run_command("backup", str(fixture.store.home.parent / f"{uuid.uuid4()}.backup"))


@contextmanager
def no_backup(fixture: AlertFixture) -> Iterator[None]:
    """A store that was never backed up, until it is."""
    yield
    _back_up(fixture)


@contextmanager
def old_backup(fixture: AlertFixture) -> Iterator[None]:
    """A backup that is 37 hours older than it was."""
    earlier = "UPDATE meta SET value = CAST(CAST(value AS bigint) - :past AS text)"
    fixture.set_back(f"{earlier} WHERE key = 'last_backup_us'", past=37 * HOUR_US)
    yield
    _back_up(fixture)


@contextmanager
def damaged_copies(fixture: AlertFixture) -> Iterator[None]:
    """Both copies of a file damaged, until one is put back."""
    with _damaged_in_both_buckets(fixture):
        with suppress(CommandError):  # it fails because damage is left
            fixture.store.run_command("verify", "--repair")
        yield
    fixture.store.run_command("verify", "--repair")


@contextmanager
def _damaged_in_both_buckets(fixture: AlertFixture) -> Iterator[None]:
    """Damage both copies of a new file; the one in the bucket aws is put back."""
    one = fixture.deposit()
    until(lambda: _is_everywhere(fixture, one))
    key = keys.blob_key(one.files[1].sha256)
    with fixture.opened() as stores:
        paths = [path_of(stores.replicas[replica], key) for replica in REPLICAS]
        until(lambda: all(path.exists() for path in paths))
        intact = [path.read_bytes() for path in paths]
        for path, data in zip(paths, intact, strict=True):
            path.write_bytes(flip(data, -1))
        yield
        paths[0].write_bytes(intact[0])


@contextmanager
def no_scrub(fixture: AlertFixture) -> Iterator[None]:
    """Objects that were verified 46 days ago."""
    with fixture.opened() as stores:
        age(stores, 46)
    yield
    fixture.store.run_command("verify")


@contextmanager
def other_record_in_bucket(fixture: AlertFixture) -> Iterator[None]:
    """A record that somebody else put into a bucket before the store did."""
    one = fixture.deposit()
    fqid = FQID(str(uuid.uuid4()), create_version())
    key = keys.record_key("bundle", fqid)
    with fixture.opened() as stores:
        row = orjson.loads(
            records.read_object(
                stores.replicas["aws"], keys.record_key("bundle", FQID.parse(one.fqid))
            )
        )
        files = [
            {name: line[name] for name in ("uuid", "version", "name", "indexed")}
            for line in row["manifest"]["files"]
        ]
        foreign = other_record(orjson.dumps({**row, **fqid._asdict()}))
        stores.replicas["gcp"].put(key, foreign, content_type=records.CONTENT_TYPE)
        fixture.service.call(
            "PUT",
            f"/bundles/{fqid.uuid}",
            params={"version": fqid.version, "replica": "aws"},
            json={"creator_uid": CREATOR_UID, "files": files},
        )
        yield
        right = records.read_object(stores.replicas["aws"], key)
        path_of(stores.replicas["gcp"], key).unlink()
        stores.replicas["gcp"].put(key, right, content_type=records.CONTENT_TYPE)


@contextmanager
def too_few_fields(fixture: AlertFixture) -> Iterator[None]:
    """Fewer fields than a document has, until more are allowed and the index is rebuilt."""
    fixture.deposit()
    yield
    file = Path(fixture.store.environ[FILE_VARIABLE])
    file.write_text(SETTINGS_FILE.format(fields=ENOUGH_FIELDS), encoding="utf-8")
    os.kill(fixture.wait_for_pid("worker"), signal.SIGTERM)
    until(lambda: fixture.store.read_processes()["processes"].get("worker", {}).get("starts") == 2)
    fixture.store.run_command("rebuild", "index")


@contextmanager
def damaged_before_its_copy(fixture: AlertFixture) -> Iterator[None]:
    """A file damaged while the other bucket is away, so that it cannot be copied there."""
    other = fixture.store.home / "replicas" / "gcp"
    with fixture.opened() as stores:  # which makes folders that are absent
        away = other.rename(other.with_name("gcp.away"))
        try:
            one = fixture.deposit()
            path = path_of(stores.replicas["aws"], keys.blob_key(one.files[1].sha256))
            intact = path.read_bytes()
            path.write_bytes(flip(intact, -1))
        finally:
            away.rename(other)
    yield
    path.write_bytes(intact)
    fixture.store.run_command("dead", "retry")


@contextmanager
def refusing_receiver(fixture: AlertFixture) -> Iterator[None]:
    """A receiver that refuses every notification, until it accepts them."""
    accepting = threading.Event()
    key = str(uuid.uuid4())
    with running_receiver(key, accept=lambda _: accepting.is_set()) as receiver:
        body = {"callback_url": f"{receiver.url}/refusing", "hmac_secret_key": key}
        fixture.service.call("PUT", "/subscriptions", params={"replica": "aws"}, json=body)
        for _ in range(3):
            fixture.deposit()
        until(lambda: receiver.rejected)
        yield
        accepting.set()
        until(lambda: receiver.accepted)


# The service --------------------------------------------------------------------------------------


@contextmanager
def folder_away(fixture: AlertFixture) -> Iterator[None]:
    """The folder of upload areas is gone, as when it is not mounted, while clients write."""
    folder, over, area = fixture.store.home / "areas", threading.Event(), uuid.uuid4()
    fixture.service.call("POST", f"/area/{area}")
    away = folder.rename(folder.with_name("areas.away"))

    def write() -> None:
        while not over.wait(0.2):
            fixture.service.send_once("PUT", f"/area/{area}/files/a.txt", content=b"a")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
        away.rename(folder)


@contextmanager
def stopped_api(fixture: AlertFixture) -> Iterator[None]:
    """An API that does not run."""
    with fixture.stopped("web"):
        yield


@contextmanager
def stopped_worker(fixture: AlertFixture) -> Iterator[None]:
    """A worker that does not run, with a job that has been due for 20 minutes."""
    depositor = Depositor(fixture.service, str(uuid.uuid4()))
    depositor.create_area()
    with fixture.stopped("worker"):
        depositor.upload(_make_bundle({}))
        fixture.set_back("UPDATE todo SET due_us = due_us - :past", past=HOUR_US // 3)
        yield


@contextmanager
def read_only(fixture: AlertFixture) -> Iterator[None]:
    """Read-only mode."""
    fixture.store.run_command("read-only", "on")
    yield
    fixture.store.run_command("read-only", "off")


# Mirrors ------------------------------------------------------------------------------------------


@contextmanager
def running_mirror(
    home: Path, mirrored: AlertFixture, environ: Mapping[str, str]
) -> Iterator[MirroredStore]:
    """Let a store with this home and environment follow another one."""
    path = home / "mirror.log"
    words = ("mirror", mirrored.store.api, "--token", mirrored.store.token, "--follow")
    with path.open("wb") as log:
        mirror = subprocess.Popen(
            bind_command_to_parent((sys.executable, "-m", "ops", *words)),
            cwd=ROOT,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield MirroredStore(mirrored, mirror, path)
        finally:
            mirror.kill()
            mirror.wait()


@contextmanager
def damaged_mirrored_file(fixture: AlertFixture) -> Iterator[None]:
    """A file that the mirrored store serves with wrong bytes, until it serves the right ones."""
    mirrored = fixture.mirrored
    assert mirrored is not None
    mirrored.mirror.send_signal(signal.SIGSTOP)  # until the file is damaged
    with ExitStack() as stack:
        try:
            stack.enter_context(_damaged_in_both_buckets(mirrored.fixture))
        finally:
            mirrored.mirror.send_signal(signal.SIGCONT)
        yield
    service = mirrored.fixture.store
    fixture.store.run_command("mirror", service.api, "--token", service.token, "--once")


@contextmanager
def stopped_mirrored_store(fixture: AlertFixture) -> Iterator[None]:
    """A mirrored store that does not answer, and last did two hours ago."""
    mirrored = fixture.mirrored
    assert mirrored is not None
    with mirrored.fixture.stopped("web"):
        # From the first failure on, no success replaces the earlier one.
        failures = _count_failures(mirrored)
        until(lambda: _count_failures(mirrored) > failures, 3 * PATIENCE_S)
        key = mirrors.state_key(mirrored.fixture.store.api)
        with fixture.opened() as stores, stores.catalog.write() as tx:
            states = orjson.loads(store_state.read_value(tx, key) or "{}")
            for state in states.values():
                state["success_us"] -= 2 * HOUR_US
            store_state.write_value(tx, key, orjson.dumps(states).decode())
        yield


def _count_failures(mirrored: MirroredStore) -> int:
    return mirrored.log.read_text(encoding="utf-8").count("; again in ")


# Engines ------------------------------------------------------------------------------------------


@contextmanager
def failing_bucket(fixture: AlertFixture) -> Iterator[None]:
    """A bucket that answers 503, and lacks a version that was deposited two hours ago."""
    proxy = fixture.backend.proxy
    assert proxy is not None
    proxy.only, proxy.mode = b"PUT /aws/", Mode.REFUSE
    try:
        fixture.deposit("gcp")
        proxy.only = b""
        back = "UPDATE todo SET born_us = born_us - :past WHERE step = 'sync' AND replica = 'aws'"
        fixture.set_back(back, past=2 * HOUR_US)
        yield
    finally:
        proxy.only, proxy.mode = b"", Mode.PASS


@contextmanager
def slow_bucket(fixture: AlertFixture) -> Iterator[None]:
    """A bucket that answers after 4 to 6 seconds."""
    proxy = fixture.backend.proxy
    assert proxy is not None
    proxy.slow_s, proxy.mode = (4.0, 6.0), Mode.SLOW
    try:
        yield
    finally:
        proxy.mode = Mode.PASS


@contextmanager
def stopped_search(fixture: AlertFixture) -> Iterator[None]:
    """A search engine that does not run, while clients search."""
    pid, query = fixture.backend.engines["opensearch"].pid, {"es_query": MATCH_ALL}
    with fixture.readers("POST", "/search", params={"replica": "aws"}, json=query):
        try:
            os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def slow_catalog(fixture: AlertFixture) -> Iterator[None]:
    """A session that locks bundles for 5 seconds, again and again, while clients read them."""
    with _locked(fixture, "bundles", for_s=5.0):
        yield


@contextmanager
def locked_catalog(fixture: AlertFixture) -> Iterator[None]:
    """A session that locks the tables of bundles and jobs, while clients read."""
    with _locked(fixture, "bundles, todo, meta", for_s=25.0):
        yield


@contextmanager
def _locked(fixture: AlertFixture, tables: str, *, for_s: float) -> Iterator[None]:
    one = fixture.deposit("gcp")
    over = threading.Event()

    def lock() -> None:
        url = fixture.backend.engines["postgres"].url.replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            while not over.is_set():
                with connection.transaction():
                    connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
                    over.wait(for_s)
                over.wait(0.1)

    fqid = FQID.parse(one.fqid)
    holder = threading.Thread(target=lock)
    params = {"version": fqid.version, "replica": "gcp"}
    with fixture.readers("GET", f"/bundles/{fqid.uuid}", params=params):
        holder.start()
        try:
            yield
        finally:
            over.set()
            holder.join()


# Workers ------------------------------------------------------------------------------------------

WorkerProcess = subprocess.Popen[bytes]
Catalog = psycopg.Connection[tuple[Any, ...]]
Claims = frozenset[tuple[str, str]]
"""References and tokens of claimed jobs."""


@contextmanager
def lost_claims(fixture: AlertFixture) -> Iterator[None]:
    """Two workers that are stopped with claimed jobs, until others have taken these."""
    over, lost = threading.Event(), threading.Event()
    with ExitStack() as stack:
        pids = [stack.enter_context(_running_worker(fixture)).pid for _ in range(2)]
        heartbeats = Settings(home=fixture.store.home).heartbeats_folder
        until(lambda: len(read_heartbeats(heartbeats, "verify")) == len(pids))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        losing = pool.submit(_lose_claims, fixture, pids, lost, over)
        try:
            until(lambda: lost.is_set() or losing.done(), 2 * PATIENCE_S)
            yield
        finally:
            over.set()
            losing.result()


@contextmanager
def _running_worker(fixture: AlertFixture) -> Iterator[WorkerProcess]:
    """Run one more worker of the queue `verify`."""
    home = fixture.store.home
    secret = read_secret_key(Settings(home=home))
    with (home / f"worker-{uuid.uuid4()}.log").open("wb") as log:
        worker = subprocess.Popen(
            bind_command_to_parent((sys.executable, "-m", "workers", "verify")),
            cwd=ROOT,
            env={**fixture.store.environ, "STORE_SECRET_KEY": secret},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
            worker.wait()


def _lose_claims(
    fixture: AlertFixture, pids: Sequence[int], lost: threading.Event, over: threading.Event
) -> None:
    """Stop the workers one after the other; each goes on when others have taken its jobs."""
    running, stopped = deque(pids), deque[tuple[int, Claims]]()
    url = fixture.backend.engines["postgres"].url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as catalog:
        while not over.is_set():
            pid = running.popleft()
            stopped.append((pid, _stop_with_claims(fixture, catalog, pid, running)))
            over.wait(STAGGER_S)
            if not running:
                pid, claims = stopped.popleft()
                until(lambda c=claims: over.is_set() or c.isdisjoint(_list_claims(catalog)))
                os.kill(pid, signal.SIGCONT)
                running.append(pid)
                lost.set()


def _stop_with_claims(
    fixture: AlertFixture, catalog: Catalog, pid: int, running: Sequence[int]
) -> Claims:
    """Let this worker alone claim jobs, a moment at a time, and stop it when it has enough."""
    claims: Claims = frozenset()

    def stop_with_claims() -> bool:
        nonlocal claims
        if _count_jobs(catalog) < len(before) + LOST_JOBS:
            depositor.upload(_make_many_files())
        os.kill(pid, signal.SIGCONT)
        time.sleep(MOMENT_S)
        is_stopped = _stop_outside_transaction(catalog, pid)
        claims = _list_claims(catalog) - before
        return is_stopped and len(claims) >= LOST_JOBS

    depositor = Depositor(fixture.service, str(uuid.uuid4()))
    depositor.create_area()
    others = [fixture.wait_for_pid("files"), *running]
    with ExitStack() as stack:
        for one in (*others, pid):
            if one != pid:
                stack.callback(os.kill, one, signal.SIGCONT)
            until(lambda one=one: _stop_outside_transaction(catalog, one))
        before = _list_claims(catalog)
        until(stop_with_claims, 2 * PATIENCE_S)
    return claims


def _stop_outside_transaction(catalog: Catalog, pid: int) -> bool:
    """Stop a process; it goes on if it is in a transaction, whose locks would stop others."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(LOCK_LIMIT_S)
    found = catalog.execute(
        "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
        " AND clock_timestamp() - state_change > %s * interval '1 second'",
        (LOCK_LIMIT_S,),
    ).fetchone()
    if found:
        os.kill(pid, signal.SIGCONT)
    return found is None


def _list_claims(catalog: Catalog) -> Claims:
    query = "SELECT ref, token FROM todo WHERE step = 'verify' AND token IS NOT NULL"
    return frozenset((ref, token) for ref, token in catalog.execute(query))


def _count_jobs(catalog: Catalog) -> int:
    ((count,),) = catalog.execute("SELECT count(*) FROM todo WHERE step = 'verify'")
    return int(count)


def _make_many_files() -> SampleBundle:
    label = str(uuid.uuid4())
    content = random_bytes(label, FILE_BYTES)
    files = (
        make_file(f"{number}.bin", "text/plain", b"%d" % number + content)
        for number in range(2 * LOST_JOBS)
    )
    return SampleBundle(label, tuple(files))


@contextmanager
def stuck_event_loop(fixture: AlertFixture) -> Iterator[None]:
    """The thread of the event loop of deliveries held by a tracer, as by a debugger.

    The process ends after 15 s and is restarted; then the loop of the new one is held.
    """
    over, held = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(_hold_event_loops, fixture, held, over)
        try:
            until(lambda: held.is_set() or holding.done())
            yield
        finally:
            over.set()
            holding.result()


def _hold_event_loops(fixture: AlertFixture, held: threading.Event, over: threading.Event) -> None:
    while not over.wait(0.1):
        pid = fixture.find_pid("deliver")
        thread = _find_event_loop(pid) if pid else None
        if thread:
            _hold_thread(thread, held, over)


def _find_event_loop(pid: int) -> int | None:
    """Return the thread of a process that waits in epoll; None while there is none."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if "epoll" in (thread / "wchan").read_text():
                return int(thread.name)
    return None


def _hold_thread(thread: int, held: threading.Event, over: threading.Event) -> None:
    """Stop a thread of another process, and only it, until it is over or the process has ended."""
    with suppress(ChildProcessError):  # it has ended, and nothing is left to wait for
        try:
            _trace(PTRACE_SEIZE, thread)
            _trace(PTRACE_INTERRUPT, thread)
            # Each stop and the end are waited for, else the process could not end.
            _, status = os.waitpid(thread, WAIT_FOR_THREADS)
            if not os.WIFSTOPPED(status):
                return
            held.set()
            while not over.wait(0.1):
                found, status = os.waitpid(thread, WAIT_FOR_THREADS | os.WNOHANG)
                if found and not os.WIFSTOPPED(status):
                    return
            _trace(PTRACE_DETACH, thread)
        except ProcessLookupError:
            os.waitpid(thread, WAIT_FOR_THREADS)


def _trace(request: int, thread: int) -> None:
    if _LIBC.ptrace(request, thread, None, None):
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")
