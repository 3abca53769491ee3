"""Fill a small store with every kind of object."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from examples.webhooks import Receiver
from ops import local_store
from ops.procfile import ROOT
from storage.catalog import Catalog, jobs, purges
from storage.model import FQID, REPLICAS
from store_client import create_version
from tests.live.api import MATCH_ALL, ApiClient
from tests.live.deposits import (
    DepositedBundle,
    Depositor,
    SampleBundle,
    make_file,
    make_metadata_file,
)
from tests.waiting import until

KEY = "a key of the subscriber's"


def operate(home: Path, environ: Mapping[str, str], *words: str, code: int = 0) -> str:
    """A command as an operator types it, on any machine that has the settings."""
    kept = {name: told for name, told in os.environ.items() if not name.startswith("STORE_")}
    done = subprocess.run(
        [sys.executable, "-m", "ops", *words],
        cwd=ROOT,
        env={**kept, "STORE_HOME": str(home), **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


@contextmanager
def playing(home: Path, environ: Mapping[str, str]) -> Iterator[ApiClient]:
    """The processes of a store, and an administrator who talks to it."""
    with local_store.running_store(home, environ) as store:
        service = ApiClient.open(store.api, store.token)
        with service.http:
            yield service


@contextmanager
def looking(url: str) -> Iterator[Catalog]:
    """A catalog of ours for the length of the block."""
    catalog = Catalog(url, connections=1)
    try:
        yield catalog
    finally:
        catalog.close()


# Filling --------------------------------------------------------------------------------------


@dataclass
class Filled:
    """What readers should see of it, and what they should not."""

    deposited: list[DepositedBundle] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    @property
    def seen(self) -> set[str]:
        """The versions of bundles that are there."""
        return {*(one.fqid for one in self.deposited), *self.patched} - self.gone


def subscribe(service: ApiClient, url: str, replica: str, **query: Any) -> None:
    """Be told of everything in a replica."""
    told = {"callback_url": url, "hmac_secret_key": KEY, **query}
    service.call("PUT", "/subscriptions", params={"replica": replica}, json=told)


def bundle(number: int) -> SampleBundle:
    """One of two files, of which one is like those of the others and one is not."""
    name = f"bundle {number} {uuid.uuid4()}"
    described = {"describedBy": "https://schema.example.org/type/x/1.0.0/a", "number": number}
    files = make_metadata_file("a.json", described), make_file("b.txt", "text/plain", name.encode())
    return SampleBundle(name, files)


@contextmanager
def depositing(service: ApiClient, filled: Filled, counts: Mapping[str, int]) -> Iterator[None]:
    """Deposit so many bundles into each replica in the background; all are in at the end."""
    with ExitStack() as stack:
        going_on = []
        for replica, count in counts.items():
            depositor = Depositor(service, str(uuid.uuid4()), replica)
            depositor.create_area()
            bundles = [bundle(number) for number in range(count)]
            begun = depositor.depositing(bundles, filled.deposited.append)
            going_on.append(stack.enter_context(begun))
        yield
        for one in going_on:
            until(lambda: all(future.done() for future in one.futures))  # noqa: B023
            one.raise_if_failed()


def deposit(service: ApiClient, filled: Filled, counts: Mapping[str, int]) -> None:
    """The same, and nothing meanwhile."""
    with depositing(service, filled, counts):
        pass


def change(service: ApiClient, filled: Filled) -> None:
    """A patch, a collection that stays and one that goes, tombstones of each kind."""
    first, second, third, fourth, *_ = filled.deposited
    for one in (first, second):
        patched(service, filled, one)
    kept, dropped = collected(service, first), collected(service, fourth)
    patch = {"name": "renamed", "details": {"n": 1}}
    params = {"version": kept.version, "replica": "aws"}
    service.call("PATCH", f"/collections/{kept.uuid}", params=params, json=patch)
    service.call("DELETE", f"/collections/{dropped.uuid}", params={"replica": "gcp"})
    bury(service, filled, second, whole=True)
    bury(service, filled, third, whole=False)
    bury(service, filled, filled.deposited[-1], whole=True)


def patched(service: ApiClient, filled: Filled, one: DepositedBundle) -> None:
    """A version more, with the second file under another name."""
    fqid, file = FQID.parse(one.fqid), one.files[1]
    entry = {"uuid": file.uuid, "version": fqid.version}
    until(lambda: {one.fqid} <= service.list_bundles("aws"))
    answer = service.call(
        "PATCH",
        f"/bundles/{fqid.uuid}",
        params={"version": fqid.version, "replica": "aws"},
        json={
            "add_files": [{**entry, "name": "c.txt"}],
            "remove_files": [{**entry, "name": "b.txt"}],
        },
    ).json()
    filled.patched.append(f"{fqid.uuid}.{answer['version']}")


def collected(service: ApiClient, one: DepositedBundle) -> FQID:
    """A collection of a bundle, a file of it and a fragment of its metadata."""
    fqid = FQID(str(uuid.uuid4()), create_version())
    bundle_version = FQID.parse(one.fqid).version
    files = [{"uuid": file.uuid, "version": bundle_version} for file in one.files]
    contents = [
        {"type": "bundle", **FQID.parse(one.fqid)._asdict()},
        {"type": "file", **files[1]},
        {"type": "x", **files[0], "path": "/number"},
    ]
    body = {"name": "n", "description": "d", "details": {}, "contents": contents}
    params = {**fqid._asdict(), "replica": "aws"}
    service.call("PUT", "/collections", params=params, json=body)
    for replica in REPLICAS:
        params = {"version": fqid.version, "replica": replica}
        until(lambda: _answers(service, f"/collections/{fqid.uuid}", params))  # noqa: B023
    return fqid


def _answers(service: ApiClient, path: str, params: Mapping[str, str]) -> bool:
    answer = service.send_once("GET", path, params=params)
    return answer.status_code == 200 and "X-STORE-SERVED-BY" not in answer.headers


def bury(service: ApiClient, filled: Filled, one: DepositedBundle, *, whole: bool) -> None:
    """A tombstone of a version, or of the whole bundle."""
    uuid_, _, version = one.fqid.partition(".")
    params = {"replica": "aws", **({} if whole else {"version": version})}
    service.call("DELETE", f"/bundles/{uuid_}", params=params, json={"reason": "wrong"})
    filled.gone |= {fqid for fqid in filled.seen if fqid.startswith(uuid_)}


# Knowing --------------------------------------------------------------------------------------


def settled(service: ApiClient, catalog: Catalog, filled: Filled) -> None:
    """Wait until everything is in both replicas, found, and journalled."""
    for replica in REPLICAS:
        until(lambda: service.list_bundles(replica) == filled.seen)  # noqa: B023
        until(lambda: service.search(replica, MATCH_ALL) == filled.seen)  # noqa: B023
    until(lambda: _at_rest(catalog))


UNTOLD = "SELECT count(*) FROM events WHERE byte_offset IS NULL"


def _at_rest(catalog: Catalog) -> bool:
    with catalog.read() as tx:
        going_on = jobs.count_open(tx) or purges.list_unfinished(tx, limit=1)
        return not going_on and not tx.execute(text(UNTOLD)).scalar_one()


def heard(inbox: Receiver, path: str, filled: Filled) -> None:
    """Wait until a subscriber was told of all that is there."""
    until(lambda: filled.seen <= inbox.fqids(path))


def fingerprint(home: Path, environ: Mapping[str, str]) -> set[str]:
    """The lines that the command prints of both replicas."""
    lines = operate(home, environ, "fingerprint").splitlines()
    return {line for line in lines if line.startswith(REPLICAS)}


STANDING = (
    "SELECT s.uuid, s.owner, s.replica, s.type, s.query, s.callback_url, s.hmac_secret, s.state,"
    " s.created_us, d.uuid, d.event_id, d.event_type, d.bundle_uuid, d.payload, d.state,"
    " d.attempts, d.due_us, count(a.delivery_id) FROM subscriptions AS s"
    " JOIN deliveries AS d ON d.subscription_id = s.id"
    " LEFT JOIN attempts AS a ON a.delivery_id = d.id"
    " GROUP BY s.id, d.id ORDER BY s.uuid, d.uuid"
)


def told(url: str) -> list[tuple[Any, ...]]:
    """Subscriptions, what each was or is to be told, and in how many attempts."""
    with looking(url) as catalog, catalog.read() as tx:
        return [tuple(row) for row in tx.execute(text(STANDING))]
