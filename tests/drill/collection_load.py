"""Create, patch and delete collections during a drill, and check the result."""

import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

from storage.model import FQID, REPLICAS, Replica
from store_client import create_version
from tests.live.api import ApiClient, UnexpectedAnswer
from tests.live.deposits import DepositedBundle

EVERY = 3
"""A collection is made for one bundle of so many."""
DELETED_EVERY = 5
"""One collection of so many is deleted again."""
CURATORS = 3
OK = frozenset({200, 201})
GONE = frozenset({200, 404})
"""Answers of a deletion that may have been asked for twice, and to whether something is there."""

Item = Mapping[str, str]


def _item(kind: str, fqid: str, **more: str) -> Item:
    return {"type": kind, **FQID.parse(fqid)._asdict(), **more}


def _plain(items: Any) -> set[tuple[tuple[str, str], ...]]:
    return {tuple(sorted(item.items())) for item in items}


@dataclass(frozen=True)
class Kept:
    """A version that was acknowledged, as it was asked for."""

    fqid: str
    name: str
    number: int
    contents: tuple[Item, ...]


@dataclass
class Curator:
    """Makes collections of what was deposited, several at a time."""

    service: ApiClient
    rng: Random
    kept: dict[str, Kept] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    _jobs: list[Future[None]] = field(default_factory=list)
    _deposited: list[str] = field(default_factory=list)
    _linkable: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(CURATORS, "curate")
    )

    def acknowledged(self, one: DepositedBundle) -> None:
        """Told of each bundle that the store has taken."""
        with self._lock:
            number = len(self._deposited)
            self._deposited.append(one.fqid)
            if number % EVERY == 0:
                place = self.rng.random()
                self._jobs.append(self._pool.submit(self._curate, number // EVERY, one, place))

    def idle(self) -> bool:
        """Whether all that was asked for is done."""
        with self._lock:
            return all(job.done() for job in self._jobs)

    def stands(self, fqid: FQID, replica: Replica) -> bool:
        """Whether readers of a replica see this version of a collection."""
        params = {"version": fqid.version, "replica": replica}
        path = f"/collections/{fqid.uuid}"
        answer = self.service.call("HEAD", path, params=params, ok=GONE)
        # Another replica's answer says nothing of this one.
        return answer.status_code == 200 and "X-STORE-SERVED-BY" not in answer.headers

    def finish(self) -> Iterator[str]:
        """Wait for all of it; what was refused."""
        self._pool.shutdown()
        for job in self._jobs:
            if error := job.exception():
                yield f"a collection was refused: {error!r}"

    def told(self) -> str:
        """How many there are, for a line."""
        live = len({FQID.parse(fqid).uuid for fqid in self.kept})
        return f"{live} collections in {len(self.kept)} versions, {len(self.deleted)} deleted"

    def _curate(self, number: int, one: DepositedBundle, place: float) -> None:
        contents = self._contents(one)
        kept = self._made(number, contents)
        with self._lock:
            other = self._deposited[int(place * len(self._deposited))]
        added, removed = _item("bundle", other), contents[1]
        after = tuple(item for item in contents if item != removed)
        if added not in after:
            after += (added,)
        self._patched(kept, [added, added], [removed], after)
        if number % DELETED_EVERY == DELETED_EVERY - 1:
            self._deleted(FQID.parse(kept.fqid).uuid, REPLICAS[int(place * 2)])
        else:
            with self._lock:
                self._linkable.append(kept.fqid)

    def _contents(self, one: DepositedBundle) -> tuple[Item, ...]:
        version = FQID.parse(one.fqid).version
        files = [_item("file", f"{item.uuid}.{version}") for item in one.files]
        metadata = one.files[0]
        fragment = _item("sample", f"{metadata.uuid}.{version}", path="/organism")
        with self._lock:
            earlier = self._linkable[-1:]
        links = [_item("collection", fqid) for fqid in earlier]
        return (_item("bundle", one.fqid), *files, fragment, *links)

    def _made(self, number: int, contents: tuple[Item, ...]) -> Kept:
        kept = Kept(f"{uuid.uuid4()}.{create_version()}", f"drill {number}", number, contents)
        fqid = FQID.parse(kept.fqid)
        self.service.call(
            "PUT",
            "/collections",
            params={**fqid._asdict(), "replica": "aws"},
            json={
                "name": kept.name,
                "description": "*made while processes die*",
                "details": {"number": number},
                "contents": [*contents, contents[0]],
            },
            ok=OK,
        )
        self._keep(kept)
        return kept

    def _patched(
        self, kept: Kept, add: list[Item], remove: list[Item], after: tuple[Item, ...]
    ) -> None:
        fqid = FQID.parse(kept.fqid)
        name = f"{kept.name}, patched"
        answer = self.service.call(
            "PATCH",
            f"/collections/{fqid.uuid}",
            params={"version": fqid.version, "replica": "aws"},
            json={"add_contents": add, "remove_contents": remove, "name": name},
            # A connection that breaks says nothing of what was done.
            headers={"Idempotency-Key": str(uuid.uuid4())},
        ).json()
        self._keep(Kept(f"{fqid.uuid}.{answer['version']}", name, kept.number, after))

    def _deleted(self, ident: str, replica: str) -> None:
        self.service.call("DELETE", f"/collections/{ident}", params={"replica": replica}, ok=GONE)
        with self._lock:
            self.deleted.add(ident)
            self.kept = {fqid: one for fqid, one in self.kept.items() if ident not in fqid}

    def _keep(self, one: Kept) -> None:
        with self._lock:
            # Whoever watches reads it meanwhile: never the one that they look at.
            self.kept = {**self.kept, one.fqid: one}


def faults(service: ApiClient, curator: Curator) -> Iterator[str]:
    """Collections that a replica does not show as they were acknowledged, or shows still."""
    listed = {
        f"{one['uuid']}.{one['version']}"
        for one in service.pages("GET", "/collections", key="collections", params={"per_page": 50})
    }
    yield from (
        f"the list lacks collection {fqid}" for fqid in sorted(curator.kept.keys() - listed)
    )
    yield from (f"collection {fqid} is listed" for fqid in sorted(listed - curator.kept.keys()))
    for replica in REPLICAS:
        for one in curator.kept.values():
            if fault := _amiss(service, replica, one):
                yield f"collection {one.fqid} {fault} in {replica}"
        for ident in sorted(curator.deleted):
            answer = service.send_once("GET", f"/collections/{ident}", params={"replica": replica})
            if answer.status_code != 404:
                yield f"deleted collection {ident} is {answer.status_code} in {replica}"


def _amiss(service: ApiClient, replica: str, one: Kept) -> str | None:
    fqid = FQID.parse(one.fqid)
    params = {"version": fqid.version, "replica": replica}
    try:
        found = service.call("GET", f"/collections/{fqid.uuid}", params=params).json()
    except UnexpectedAnswer as refused:
        return f"is {refused.status}"
    if (found["name"], found["details"]) != (one.name, {"number": one.number}):
        return "says something else of itself"
    if len(found["contents"]) != len(one.contents) or _plain(found["contents"]) != _plain(
        one.contents
    ):
        return "has other links"
    return None
