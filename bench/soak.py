"""Whether a store stays as it is under an hour of mixed load: memory, files held open, tables, WAL.

Bundles are deposited at a steady rate, found, read, listed, checked out, patched and, after a
while, deleted; two subscribers are called. What the store uses is looked at again and again. The
middle of the run is compared with its end: what grows with what is kept (bundles, their index) is
told for each bundle, everything else should not grow.
"""

import statistics
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
from sqlalchemy import Engine, text

from bench.harness import ROOT, Figures, Measure
from bench.reach import OPEN_JOBS, Depositor, depositing, open_catalog, store_settings
from bench.receiver import receiver
from bench.stores import VERSION, list_processes, memory_mb, started_store
from ops.local_store import LocalStore

LOOKS = 200
"""How often what the store uses is looked at."""
KEPT = 100
"""Bundles that live at a time; an older one is deleted."""
CHECKOUT_EVERY = 20
REPLICA = {"replica": "aws"}
PATIENCE_S = 120.0
POSTGRES_SIZES: Mapping[str, str] = {
    "jobs MB": "SELECT pg_total_relation_size('todo') / 1048576.0",
    "WAL MB": "SELECT sum(size) / 1048576.0 FROM pg_ls_waldir()",
    "catalog MB": "SELECT pg_database_size(current_database()) / 1048576.0",
}


@contextmanager
def prepare(
    root: Path = ROOT,
    *,
    on_real_engines: bool = False,
    minutes: float = 60,
    per_second: float = 1,
) -> Iterator[Measure]:
    """Measure a store of the code in `root` under so many bundles a second."""

    def measure() -> Figures:
        with (
            store_settings(on_real_engines) as settings,
            started_store(root, settings) as store,
            receiver(0) as callback,
            depositing(store) as depositor,
        ):
            _subscribe(depositor.http, callback)
            return _soak(store, depositor, minutes * 60, per_second)

    yield measure


def _subscribe(http: httpx.Client, callback: str) -> None:
    for name, query in (("a", {"jmespath_query": "bundle_info.uuid"}), ("b", {"es_query": {}})):
        body = {"callback_url": f"{callback}/{name}", **query}
        http.put("/v1/subscriptions", params=REPLICA, json=body).raise_for_status()


@dataclass
class Load:
    """The mixed load, one bundle after the other; any unexpected answer ends it."""

    depositor: Depositor
    bundles: int = 0
    took_s: list[float] = field(default_factory=list)
    """From the first request about a bundle to the acknowledgement, by bundle."""
    _living: deque[str] = field(default_factory=deque)
    _checkouts: list[str] = field(default_factory=list)

    def step(self) -> None:
        """Deposit a bundle, use it in every way, and delete an old one."""
        began, uuid = time.perf_counter(), str(uuid4())
        metadata = self.depositor.put_metadata(self.bundles)
        self.depositor.put_bundle(uuid, metadata, self.depositor.put_data(self.bundles))
        self.took_s.append(time.perf_counter() - began)
        self.bundles += 1
        self._living.append(uuid)
        http, asked = self.depositor.http, {**REPLICA, "version": VERSION}
        self._ok(http.get(f"/v1/bundles/{uuid}", params=asked))
        self._ok(http.get(f"/v1/files/{metadata}", params=REPLICA, follow_redirects=True))
        self._ok(http.get("/v1/bundles/all", params={**REPLICA, "per_page": 10}))
        organ = {"match": {"files.sample_json.sample.organ": f"organ {self.bundles % 7}"}}
        body = {"es_query": {"query": organ}}
        self._ok(http.post("/v1/search", params={**REPLICA, "per_page": 10}, json=body))
        change = {"remove_files": [{"uuid": metadata, "version": VERSION, "name": "sample.json"}]}
        self._ok(http.patch(f"/v1/bundles/{uuid}", params=asked, json=change))
        if self.bundles % CHECKOUT_EVERY == 0:
            begun = http.post(f"/v1/bundles/{uuid}/checkout", params=asked, json={})
            self._ok(begun)
            self._checkouts.append(begun.json()["checkout_job_id"])
        if len(self._living) > KEPT:
            old = f"/v1/bundles/{self._living.popleft()}"
            self._ok(http.request("DELETE", old, params=REPLICA, json={"reason": "old"}))

    def finish(self) -> None:
        """Wait for the checkouts."""
        deadline = time.monotonic() + PATIENCE_S
        for ident in self._checkouts:
            path = f"/v1/bundles/checkout/{ident}"
            while (
                state := self.depositor.http.get(path, params=REPLICA).json()["status"]
            ) == "RUNNING":
                assert time.monotonic() < deadline, "a checkout does not end"
                time.sleep(0.1)
            assert state == "SUCCEEDED", state

    def _ok(self, answer: httpx.Response) -> None:
        request = answer.request
        assert answer.status_code in (200, 201, 206), (
            f"{request.method} {request.url}: {answer.status_code} {answer.text[:300]}"
        )


def _soak(store: LocalStore, depositor: Depositor, for_s: float, per_second: float) -> Figures:
    catalog, load, looks = open_catalog(store), Load(depositor), [_look(store)]
    began = time.monotonic()
    while (now := time.monotonic() - began) < for_s:
        if now >= len(looks) * for_s / LOOKS:
            looks.append({**_look(store), **_count(catalog), "bundles": load.bundles})
        if load.bundles <= now * per_second:
            load.step()
        else:
            time.sleep(0.01)
    load.finish()
    deadline = time.monotonic() + PATIENCE_S
    while (left := _count(catalog)["jobs open"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    catalog.dispose()
    assert not left, f"{left} jobs are open when nothing is deposited any more"
    return _summarize(looks[1:] or looks, load)


def _look(store: LocalStore) -> dict[str, float]:
    """What the store's processes use, and for an embedded store its files."""
    found = {"memory MB": memory_mb(store.pid), "descriptors": _count_descriptors(store.pid)}
    if "STORE_CATALOG_URL" not in store.environ:
        files = [path for path in store.home.glob("**/*.sqlite*") if path.is_file()]
        logs = [path for path in files if path.name.endswith("-wal")]
        found["WAL MB"] = sum(_size_mb(path) for path in logs)
        found["catalog MB"] = _size_mb(store.home / "catalog.sqlite")
    return found


def _count(catalog: Engine) -> dict[str, float]:
    """What the catalog says of itself."""
    with catalog.connect() as connection:
        found = {"jobs open": float(connection.execute(text(OPEN_JOBS)).scalar_one())}
        if catalog.dialect.name == "postgresql":
            for name, query in POSTGRES_SIZES.items():
                found[name] = float(connection.execute(text(query)).scalar_one())
    return found


def _count_descriptors(pid: int) -> int:
    total = 0
    for one in list_processes(pid):
        with suppress(OSError):
            total += len(list(Path(f"/proc/{one}/fd").iterdir()))
    return total


def _size_mb(path: Path) -> float:
    try:
        return path.stat().st_size / 1024**2
    except FileNotFoundError:
        return 0.0


def _summarize(looks: Sequence[Mapping[str, float]], load: Load) -> Figures:
    """Compare the end of the run, its last fifth, with its middle, from a third to a half."""
    count = len(looks)
    middle, end = looks[count // 3 : count // 2 + 1], looks[-max(1, count // 5) :]
    figures: Figures = {"bundles": load.bundles}
    for name in sorted(looks[-1].keys() - {"bundles", "catalog MB"}):
        before, after = (statistics.mean(one[name] for one in part) for part in (middle, end))
        figures[f"at the end: {name}"] = after
        figures[f"at the end / in the middle: {name} ×"] = after / before if before else 1.0
    more = end[-1].get("bundles", 0) - middle[0].get("bundles", 0)
    if more:
        grown_kb = (end[-1]["catalog MB"] - middle[0]["catalog MB"]) * 1024
        figures["catalog: KB a bundle"] = grown_kb / more
    half = len(load.took_s) // 2
    for name, took in (("first half", load.took_s[:half]), ("second half", load.took_s[half:])):
        if took:
            figures[f"deposit, {name}: median ms"] = statistics.median(took) * 1000
    return figures
