"""Invariants that must hold after a drill."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from config import Settings
from ops import procfile
from ops.local_store import LOG, LocalStore
from pipelines import sweeps
from storage import keys
from storage.catalog import deliveries, jobs, versions
from storage.model import FQID, REPLICAS
from storage.stores import Stores
from tests.drill.buckets import Bucket
from tests.live.api import MATCH_ALL, ApiClient
from tests.live.deposits import DepositedBundle

SAMPLE = 25
READERS = 8
SETTLING_S = 180.0
"""How long the last work may take: leases of the killed end, lost documents are found missing."""
MOST_AGAIN = 0.01
_ONCE = re.compile(r"(?<=\")(?:match|percolate) \S+ \S+(?=: done)")
MOVING = (keys.JOURNALS, keys.EPOCHS)
"""What is written, merged and marked as time goes by, in each bucket by itself."""
LATER = 2**62
"""After everything, in microseconds."""


@dataclass(frozen=True)
class Found:
    """What lies in a bucket: the hash of every object, and the bundles' records themselves."""

    hashes: Mapping[str, str]
    records: Mapping[str, bytes]


def settled(
    stores: Stores, service: ApiClient, deposited: Iterable[DepositedBundle]
) -> Iterator[str]:
    """Wait until nothing is left to do; what still is."""
    wanted = {one.fqid for one in deposited}
    deadline = time.monotonic() + SETTLING_S
    while (lines := list(_undone(stores, service, wanted))) and time.monotonic() < deadline:
        time.sleep(1.0)
    yield from lines


def _undone(stores: Stores, service: ApiClient, wanted: set[str]) -> Iterator[str]:
    with stores.catalog.read() as tx:
        yield from (f"open: {count} rows of {step}" for step, count in jobs.count_open(tx).items())
        if pending := deliveries.count_pending(tx):
            yield f"{pending} deliveries are neither made nor given up"
    for replica in REPLICAS:
        if lost := wanted - service.search(replica, MATCH_ALL):
            yield f"{len(lost)} bundles cannot be found in {replica}, such as {min(lost)}"


def unreadable(service: ApiClient, deposited: list[DepositedBundle], rng: Random) -> Iterator[str]:
    """Bundles whose bytes do not come back from a replica as a reader gets them."""
    for one in rng.sample(deposited, min(SAMPLE, len(deposited))):
        wanted = {item.file.name: item.sha256 for item in one.files}
        for replica in REPLICAS:
            got = {
                entry["name"]: sha256(
                    service.read_file(replica, entry["uuid"], entry["version"])
                ).hexdigest()
                for entry in service.read_manifest(replica, one.fqid)
            }
            if got != wanted:
                yield f"{one.bundle.label} reads otherwise from {replica}"


def misplaced(buckets: Mapping[str, Bucket], deposited: Iterable[DepositedBundle]) -> Iterator[str]:
    """What lacks in a bucket, or is not what was deposited, byte for byte."""
    found = {replica: _look(buckets[replica]) for replica in REPLICAS}
    left, right = (found[replica].hashes for replica in REPLICAS)
    yield from (f"{key} is in one bucket only" for key in sorted(left.keys() ^ right.keys()))
    yield from (
        f"{key} has two contents" for key in left.keys() & right.keys() if left[key] != right[key]
    )
    for replica in REPLICAS:
        yield from (f"{line} in {replica}" for line in _wrong(found[replica]))
        for one in deposited:
            if fault := _amiss(found[replica], one):
                yield f"{one.bundle.label} {fault} in {replica}"


def _look(bucket: Bucket) -> Found:
    """Read all of it that is to be the same in every bucket."""
    named = [key for key in bucket.names() if not key.startswith(MOVING)]

    def content(key: str) -> tuple[str, bytes]:
        hashed, kept = sha256(), b""
        for block in bucket.read(key):
            hashed.update(block)
            kept += block if key.startswith("bundles/") else b""
        return hashed.hexdigest(), kept

    with ThreadPoolExecutor(READERS) as pool:
        read = dict(zip(named, pool.map(content, named), strict=True))
    records = {key: kept for key, (_, kept) in read.items() if kept}
    return Found({key: hashed for key, (hashed, _) in read.items()}, records)


def _wrong(found: Found) -> Iterator[str]:
    for key, hashed in found.hashes.items():
        if key.startswith(keys.BLOBS) and key != keys.blob_key(hashed):
            yield f"{key} holds {hashed}"
        named = keys.parse_record(key) or keys.parse_tombstone(key)
        if not key.startswith(keys.BLOBS) and named is None:
            yield f"{key} was left behind"


def _amiss(found: Found, one: DepositedBundle) -> str | None:
    uuid, _, version = one.fqid.partition(".")
    record = found.records.get(f"bundles/{uuid[:2]}/{one.fqid}")
    if record is None:
        return "has no record"
    entries = json.loads(record)["manifest"]["files"]
    told = {(entry["name"], entry["uuid"], entry["sha256"]) for entry in entries}
    if told != {(item.file.name, item.uuid, item.sha256) for item in one.files}:
        return "has another manifest"
    for item in one.files:
        if f"files/{item.uuid[:2]}/{item.uuid}.{version}" not in found.hashes:
            return f"lacks the record of {item.file.name}"
        if keys.blob_key(item.sha256) not in found.hashes:
            return f"lacks the bytes of {item.file.name}"
    return None


def uncatalogued(stores: Stores, buckets: Mapping[str, Bucket]) -> Iterator[str]:
    """Records that the catalog and a bucket do not agree on."""
    for replica in REPLICAS:
        named = [keys.parse_record(key) for key in buckets[replica].names()]
        for kind in keys.KINDS:
            with stores.catalog.read() as tx:
                first, most = FQID("", ""), 1_000_000
                page = versions.list_published_after(tx, kind, first, before_us=LATER, limit=most)
            known = set(map(str, page))
            held = {str(one.fqid) for one in named if one is not None and one.kind == kind}
            yield from (f"{kind} {name} is not in {replica}" for name in sorted(known - held))
            yield from (
                f"{kind} {name} is known to {replica} only" for name in sorted(held - known)
            )


def wanting(stores: Stores) -> Iterator[str]:
    """Work that a human would have to look at."""
    with stores.catalog.read() as tx:
        yield from (f"parked: {row.todo}: {row.reason}" for row in jobs.list_dead(tx))
        if versions.count_diverged(tx):
            yield "records diverged"


def tidied(stores: Stores, buckets: Mapping[str, Bucket]) -> Iterator[str]:
    """Tidy up after killed writers, as the clock does a day later; what is left even then."""
    while sweeps.abort_stale_uploads(stores, older_than_s=0):
        pass
    sweeps.remove_temporaries(stores, older_than_s=0, now=time.time() + 1)
    for name, bucket in buckets.items():
        yield from (f"an upload to {name} was left: {key}" for key in bucket.unfinished())


def done_twice(stage: LocalStore) -> Iterator[str]:
    """Needs that arise once and were done again, more of them than a sweep asks for that looked
    while a late copy arrived: nobody heeds who holds them."""
    with (stage.home / LOG).open(errors="replace") as log:
        done = Counter(found[0] for line in log if (found := _ONCE.search(line)))
    again = {need: count for need, count in done.items() if count > 1}
    if len(again) > MOST_AGAIN * len(done):
        yield from (f"{need} was done {count} times" for need, count in again.items())


def absent(stage: LocalStore) -> Iterator[str]:
    """Processes of the store that do not run."""
    running = stage.read_processes()["processes"]
    wanted = (
        procfile.read_procfile()
        if "STORE_REDIS_URL" in stage.environ
        else procfile.build_embedded_processes(Settings())
    )
    yield from (f"{line.name} does not run" for line in wanted if line.name not in running)


def ended_alone(stage: LocalStore, killed: Callable[[str], int]) -> list[str]:
    """Processes that ended more often than they were killed; they were started again."""
    running = stage.read_processes()["processes"]
    extra = {name: fact["starts"] - 1 - killed(name) for name, fact in running.items()}
    return [f"{name} {count}×" for name, count in sorted(extra.items()) if count > 0]
