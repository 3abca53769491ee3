"""A small store with a bit of everything, as users and operators fill it, and what is known of it."""

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

from ops.demo import stage
from ops.demo.bundles import SampleBundle, held, metadata_file
from ops.demo.depositing import Deposited, Depositor, new_version
from ops.demo.progress import EVERYTHING
from ops.demo.receiver import Inbox
from ops.demo.service import Service
from ops.procfile import ROOT
from storage.catalog import Catalog, purges, todo
from storage.model import FQID, REPLICAS
from tests.patience import until

KEY = b"a key of the subscriber's"


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
def playing(home: Path, environ: Mapping[str, str]) -> Iterator[Service]:
    """The processes of a store, and an administrator who talks to it."""
    with stage.running(home, environ) as store:
        service = Service.open(store.api, store.token)
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

    deposited: list[Deposited] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    @property
    def seen(self) -> set[str]:
        """The versions of bundles that are there."""
        return {*(one.fqid for one in self.deposited), *self.patched} - self.gone


def subscribe(service: Service, url: str, replica: str, **query: Any) -> None:
    """Be told of everything in a replica."""
    told = {"callback_url": url, "hmac_secret_key": KEY.decode(), **query}
    service.call("PUT", "/subscriptions", params={"replica": replica}, json=told)


def bundle(number: int) -> SampleBundle:
    """One of two files, of which one is like those of the others and one is not."""
    name = f"bundle {number} {uuid.uuid4()}"
    described = {"describedBy": "https://schema.example.org/type/x/1.0.0/a", "number": number}
    files = metadata_file("a.json", described), held("b.txt", "text/plain", name.encode())
    return SampleBundle(name, files)


@contextmanager
def depositing(service: Service, filled: Filled, counts: Mapping[str, int]) -> Iterator[None]:
    """Deposit so many bundles into each replica in the background; all are in at the end."""
    with ExitStack() as stack:
        going_on = []
        for replica, count in counts.items():
            depositor = Depositor(service, str(uuid.uuid4()), replica)
            depositor.open_area()
            bundles = [bundle(number) for number in range(count)]
            begun = depositor.depositing(bundles, filled.deposited.append)
            going_on.append(stack.enter_context(begun))
        yield
        for one in going_on:
            until(lambda: all(future.done() for future in one.futures))  # noqa: B023
            one.raise_if_failed()


def deposit(service: Service, filled: Filled, counts: Mapping[str, int]) -> None:
    """The same, and nothing meanwhile."""
    with depositing(service, filled, counts):
        pass


def change(service: Service, filled: Filled) -> None:
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


def patched(service: Service, filled: Filled, one: Deposited) -> None:
    """A version more, with the second file under another name."""
    fqid, file = FQID.parse(one.fqid), one.placed[1]
    entry = {"uuid": file.uuid, "version": fqid.version}
    until(lambda: {one.fqid} <= service.listed("aws"))
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


def collected(service: Service, one: Deposited) -> FQID:
    """A collection of a bundle, a file of it and a fragment of its metadata."""
    fqid = FQID(str(uuid.uuid4()), new_version())
    bundle_version = FQID.parse(one.fqid).version
    files = [{"uuid": file.uuid, "version": bundle_version} for file in one.placed]
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


def _answers(service: Service, path: str, params: Mapping[str, str]) -> bool:
    answer = service.try_once("GET", path, params=params)
    return answer.status_code == 200 and "X-STORE-SERVED-BY" not in answer.headers


def bury(service: Service, filled: Filled, one: Deposited, *, whole: bool) -> None:
    """A tombstone of a version, or of the whole bundle."""
    uuid_, _, version = one.fqid.partition(".")
    params = {"replica": "aws", **({} if whole else {"version": version})}
    service.call("DELETE", f"/bundles/{uuid_}", params=params, json={"reason": "wrong"})
    filled.gone |= {fqid for fqid in filled.seen if fqid.startswith(uuid_)}


# Knowing --------------------------------------------------------------------------------------


def settled(service: Service, catalog: Catalog, filled: Filled) -> None:
    """Wait until everything is in both replicas, found, and journalled."""
    for replica in REPLICAS:
        until(lambda: service.listed(replica) == filled.seen)  # noqa: B023
        until(lambda: service.found(replica, EVERYTHING) == filled.seen)  # noqa: B023
    until(lambda: _at_rest(catalog))


UNTOLD = "SELECT count(*) FROM events WHERE byte_offset IS NULL"


def _at_rest(catalog: Catalog) -> bool:
    with catalog.read() as tx:
        going_on = todo.backlog(tx) or purges.unfinished(tx, limit=1)
        return not going_on and not tx.execute(text(UNTOLD)).scalar_one()


def heard(inbox: Inbox, path: str, filled: Filled) -> None:
    """Wait until a subscriber was told of all that is there."""
    until(lambda: filled.seen <= inbox.seen(path))


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
