"""Objects of the fuzzed store, and requests that name them.

Random uuids lead nowhere but to 404; a request that names what is there goes all the way.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from tests.live.api import ApiClient

REPLICAS = ("aws", "gcp")
PATIENCE_S = 60.0
AREAS, BUNDLES, COLLECTIONS, SUBSCRIPTIONS, UPLOADS = 4, 8, 8, 6, 32
"""How many of each there are; of bundles and collections the second half may be deleted, of areas
all but the first."""

EXAMPLE = "sample.json"
"""The name of a file that the definition gives as its example."""
PART = b"fuzz!"
"""The one part of each upload by parts."""

Name = tuple[str, str]
"""A uuid and a version; of an upload by parts its file's name and its id."""

T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """Names of what was deposited."""

    areas: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    staging: list[str] = field(default_factory=list)
    uploads: list[Name] = field(default_factory=list)
    files: list[Name] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    bundles: list[Name] = field(default_factory=list)
    collections: list[Name] = field(default_factory=list)
    checkouts: list[tuple[str, str]] = field(default_factory=list)
    subscriptions: list[tuple[str, str]] = field(default_factory=list)
    deliveries: list[tuple[str, str, str]] = field(default_factory=list)
    replays: list[tuple[str, str, str]] = field(default_factory=list)


def deposit(service: ApiClient, callback: str, rng: Random) -> Known:
    """Something of every kind, in both replicas."""
    known = Known()
    _files(service, known, rng)
    _uploads(service, known, rng)
    _subscriptions(service, known, callback)
    _bundles(service, known, rng)
    _collections(service, known, rng)
    _wait(lambda: _everywhere(service, known))
    if not known.tasks:
        raise RuntimeError("no file was answered with its task")
    _work(service, known)
    return known


def uuid(rng: Random) -> str:
    """A uuid of the generator's."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def _version(number: int) -> str:
    return f"2026-01-31T{number:06d}.000000Z"


def _files(service: ApiClient, known: Known, rng: Random) -> None:
    known.areas.extend(uuid(rng) for _ in range(AREAS))
    for area in known.areas:
        service.call("POST", f"/area/{area}")
    for number in range(BUNDLES):
        content = json.dumps({"number": number, "donors": [{"organism": "Danio rerio"}]}).encode()
        answer = service.call(
            "PUT",
            f"/area/{known.areas[0]}/files/sample_{number}.json",
            headers={"Content-Type": "application/json"},
            content=partial(bytes, content),
        )
        known.sources.append(answer.json()["url"])
        known.files.append((uuid(rng), _version(number)))
        known.tasks.extend(_ingested(service, known.files[-1], known.sources[-1]))


def _uploads(service: ApiClient, known: Known, rng: Random) -> None:
    """By parts, none of which has come, in an area that nothing else names: sequences delete what
    they were told of."""
    known.staging.append(uuid(rng))
    service.call("POST", f"/area/{known.staging[0]}")
    service.call("PUT", f"/area/{known.staging[0]}/files/{EXAMPLE}", content=partial(bytes, b"{}"))
    for number in range(UPLOADS):
        name = f"large_{number}.bin"
        path = f"/area/{known.staging[0]}/uploads/{name}"
        begun = service.call("POST", path, json={"size": len(PART)})
        known.uploads.append((name, begun.json()["upload_id"]))


def _ingested(service: ApiClient, name: Name, source: str) -> list[str]:
    """The task's id, unless the file is verified before anybody could ask."""
    answer = service.call(
        "PUT",
        f"/files/{name[0]}",
        params={"version": name[1], "replica": "aws"},
        headers={"Prefer": "respond-async"},
        json={"source_url": source, "creator_uid": 8008},
    )
    task_id = answer.json().get("task_id")
    return [] if task_id is None else [str(task_id)]


def _subscriptions(service: ApiClient, known: Known, callback: str) -> None:
    for number in range(SUBSCRIPTIONS):
        replica = REPLICAS[number % 2]
        body: dict[str, Any] = {"callback_url": f"{callback}/{number}"}
        body |= {"hmac_secret_key": "secret"}
        if number % 3 == 0:
            body["es_query"] = {}
        made = service.call("PUT", "/subscriptions", params={"replica": replica}, json=body)
        known.subscriptions.append((made.json()["uuid"], replica))


def _bundles(service: ApiClient, known: Known, rng: Random) -> None:
    for number in range(BUNDLES):
        name = (uuid(rng), _version(number))
        service.call(
            "PUT",
            f"/bundles/{name[0]}",
            params={"version": name[1], "replica": "aws"},
            json={"creator_uid": 8008, "files": [entry(known.files[number], "sample.json")]},
        )
        known.bundles.append(name)


def entry(file: Name, name: str, *, indexed: bool = True) -> dict[str, Any]:
    """A file as a manifest's entry."""
    return {"uuid": file[0], "version": file[1], "name": name, "indexed": indexed}


def link(kind: str, name: Name) -> dict[str, Any]:
    """A link to a file, a bundle or a fragment of a file."""
    shown = {"type": kind, "uuid": name[0], "version": name[1]}
    return shown if kind in ("file", "bundle") else {**shown, "path": "/donors/0"}


def _collections(service: ApiClient, known: Known, rng: Random) -> None:
    for number in range(COLLECTIONS):
        name = (uuid(rng), _version(number))
        service.call(
            "PUT",
            "/collections",
            params={"uuid": name[0], "version": name[1], "replica": "aws"},
            json={
                "name": f"Collection {number}",
                "description": "",
                "details": {},
                "contents": [link("bundle", known.bundles[number])],
            },
        )
        known.collections.append(name)


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("what the fuzzer needs did not come to pass")
        time.sleep(0.2)


def _everywhere(service: ApiClient, known: Known) -> bool:
    wanted = {f"{uuid}.{version}" for uuid, version in known.bundles}
    return all(service.search(replica, {}) >= wanted for replica in REPLICAS)


def _work(service: ApiClient, known: Known) -> None:
    """Checkouts, deliveries and replays, which come of what is there."""
    for bundle, replica in zip(known.bundles, REPLICAS, strict=False):
        path = f"/bundles/{bundle[0]}/checkout"
        made = service.call("POST", path, params={"replica": replica})
        known.checkouts.append((made.json()["checkout_job_id"], replica))
    for subscription, replica in known.subscriptions:
        path, params = f"/subscriptions/{subscription}", {"replica": replica}
        tested = service.call("POST", f"{path}/test", params=params).json()["id"]
        known.deliveries.append((subscription, replica, tested))
        replayed = service.call("POST", f"{path}/replay", params=params).json()["replay_id"]
        known.replays.append((subscription, replica, replayed))


# How requests name it ----------------------------------------------------------------------


@dataclass(frozen=True)
class Naming:
    """Members of a request that name something known."""

    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | bytes = field(default_factory=dict)


def naming(known: Known, operation: str, rng: Random) -> Naming | None:
    """What a request to this operation may name; None where it names nothing."""
    maker = _NAMINGS.get(operation)
    return None if maker is None else maker(known, rng)


def _versioned(names: Sequence[Name], rng: Random) -> Naming:
    one = rng.choice(names)
    version = {"version": one[1]} if rng.random() < 0.8 else {}
    return Naming({"uuid": one[0]}, {"replica": rng.choice(REPLICAS), **version})


def _half(names: Sequence[T], *, doomed: bool) -> Sequence[T]:
    middle = len(names) // 2
    return names[middle:] if doomed else names[:middle]


def _put_file(known: Known, rng: Random) -> Naming:
    query = {"replica": "aws"} if rng.random() < 0.5 else {}
    return Naming(query=query, body={"source_url": rng.choice(known.sources)})


def _put_bundle(known: Known, rng: Random) -> Naming:
    chosen = rng.sample(known.files, rng.randint(1, 3))
    files = [entry(one, f"f{place}.json") for place, one in enumerate(chosen)]
    return Naming(query={"replica": rng.choice(REPLICAS)}, body={"files": files})


def _patch_bundle(known: Known, rng: Random) -> Naming:
    target = _versioned(_half(known.bundles, doomed=False), rng)
    version = {"version": _version_of(known.bundles, target)}
    added = [entry(rng.choice(known.files), f"added/{rng.randrange(1_000_000)}.json")]
    body = {"add_files": added, "remove_files": []}
    return Naming(target.path, {**target.query, **version}, body)


def _version_of(names: Sequence[Name], target: Naming) -> str:
    return dict(names)[target.path["uuid"]]


def _put_collection(known: Known, rng: Random) -> Naming:
    kind = rng.choice(("file", "bundle", "donor"))
    names = _half(known.bundles, doomed=False) if kind == "bundle" else known.files
    return Naming(query={"replica": "aws"}, body={"contents": [link(kind, rng.choice(names))]})


def _patch_collection(known: Known, rng: Random) -> Naming:
    target = _versioned(_half(known.collections, doomed=False), rng)
    version = {"version": _version_of(known.collections, target)}
    add = [link("file", rng.choice(known.files))]
    body = {"add_contents": add, "remove_contents": []}
    return Naming(target.path, {**target.query, **version}, body)


def _owned(known: Known, rng: Random) -> Naming:
    one, replica = rng.choice(known.subscriptions)
    return Naming({"uuid": one}, {"replica": replica})


def _below(rows: Sequence[tuple[str, str, str]], rng: Random) -> Naming:
    one, replica, ident = rng.choice(rows)
    return Naming({"uuid": one, "id": ident}, {"replica": replica})


def _checkout(known: Known, rng: Random) -> Naming:
    ident, replica = rng.choice(known.checkouts)
    return Naming({"checkout_job_id": ident}, {"replica": replica})


def _upload(known: Known, rng: Random, among: Sequence[Name]) -> Naming:
    name, ident = rng.choice(among)
    return Naming({"uuid": known.staging[0], "filename": name}, {"upload_id": ident})


def _open_uploads(known: Known) -> Sequence[Name]:
    """Uploads by parts that no request completes; of the others half are aborted."""
    return known.uploads[::2]


def _in_area(known: Known, rng: Random) -> Naming:
    """A file that lies there."""
    return Naming({"uuid": known.areas[0], "filename": f"sample_{rng.randrange(BUNDLES)}.json"})


def _put_area_file(known: Known, rng: Random) -> Naming:
    """Half of them into the area that stays, the others into any: it may be locked or deleted."""
    area = known.areas[0] if rng.random() < 0.5 else rng.choice(known.areas)
    return Naming({"uuid": area})


def _completed(known: Known, rng: Random) -> Naming:
    """One whose part has come goes to its end, and is answered the same again."""
    target = _upload(known, rng, _half(known.uploads[1::2], doomed=False))
    ident = target.query["upload_id"]
    return Naming(target.path, body={"upload_id": ident, "checksums": None})


def _put_part(known: Known, rng: Random) -> Naming:
    target = _upload(known, rng, known.uploads)
    return Naming(target.path, {**target.query, "part": 1}, PART)


_NAMINGS: Mapping[str, Callable[[Known, Random], Naming]] = {
    "get_bundle": lambda known, rng: _versioned(_half(known.bundles, doomed=False), rng),
    "put_bundle": _put_bundle,
    "patch_bundle": _patch_bundle,
    "delete_bundle": lambda known, rng: _versioned(_half(known.bundles, doomed=True), rng),
    "post_bundles_checkout": lambda known, rng: _versioned(_half(known.bundles, doomed=False), rng),
    "get_bundles_checkout": _checkout,
    "put_file": _put_file,
    "get_file": lambda known, rng: _versioned(known.files, rng),
    "head_file": lambda known, rng: _versioned(known.files, rng),
    "get_task": lambda known, rng: Naming({"task_id": rng.choice(known.tasks)}),
    "put_collection": _put_collection,
    "get_collection": lambda known, rng: _versioned(_half(known.collections, doomed=False), rng),
    "patch_collection": _patch_collection,
    "delete_collection": lambda known, rng: _versioned(_half(known.collections, doomed=True), rng),
    "get_event": lambda known, rng: _versioned(known.bundles, rng),
    "get_subscription": _owned,
    "get_deliveries": _owned,
    "retry_deliveries": _owned,
    "put_subscription_secret": _owned,
    "pause_subscription": _owned,
    "resume_subscription": _owned,
    "test_subscription": _owned,
    "replay_subscription": _owned,
    "get_delivery": lambda known, rng: _below(known.deliveries, rng),
    "resend_delivery": lambda known, rng: _below(known.deliveries, rng),
    "retry_delivery": lambda known, rng: _below(known.deliveries, rng),
    "get_replay": lambda known, rng: _below(known.replays, rng),
    "post_area": lambda _, rng: Naming({"uuid": uuid(rng)}),
    "head_area": lambda known, rng: Naming({"uuid": rng.choice(known.areas)}),
    "patch_area": lambda known, rng: Naming({"uuid": rng.choice(known.areas[1:])}),
    "delete_area": lambda known, rng: Naming({"uuid": rng.choice(known.areas[1:])}),
    "post_area_file": _in_area,
    "get_area_checksum": lambda known, _: Naming({"uuid": known.staging[0]}),
    "get_area_validate": lambda known, _: Naming({"uuid": known.staging[0]}),
    "post_area_upload_complete": _completed,
    "get_area_upload": lambda known, rng: _upload(known, rng, _open_uploads(known)),
    "put_area_part": _put_part,
    "delete_area_upload": lambda known, rng: _upload(
        known, rng, _half(known.uploads[1::2], doomed=True)
    ),
    "put_area_file": _put_area_file,
}
