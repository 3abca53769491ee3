"""What a request leaves open, settled before it is judged: the version that is read, the replica
that a file goes to. So what is judged is what is done.
"""

from dataclasses import replace
from typing import Any

from api.asking import Asked
from storage.catalog import Catalog, tasks, visibility
from storage.catalog.engine import Tx
from storage.errors import Invalid
from storage.model import REPLICAS, Replica
from storage.protocols import Sources

AnyCall = Asked[Any, Any, Any]

REPLICA_OF: dict[str, Replica] = {"s3": "aws", "gs": "gcp", "file": "aws"}
"""Where a file goes whose writer names no replica, by the scheme of its source …"""
AREA_REPLICA: Replica = "aws"
"""… and out of an upload area, whatever it is addressed by."""


def with_version(call: AnyCall, catalog: Catalog, kind: str) -> AnyCall | None:
    """A read with the version that it is of, the latest when it names none; None when there is
    nothing to read."""
    if call.query.version is not None:
        return call
    with catalog.read() as tx:
        version = _latest(tx, kind, call.query.replica, call.path["uuid"])
    return None if version is None else replace(call, query=replace(call.query, version=version))


def _latest(tx: Tx, kind: str, replica: Replica, uuid: str) -> str | None:
    """What one replica lacks may be answered by the other one; of a file that is in neither, what
    is being verified is told."""
    for one in sorted(REPLICAS, key=lambda each: each != replica):
        found = visibility.latest(tx, kind, one, uuid)
        if found is not None:
            return found[0]
    task = tasks.latest_open(tx, uuid) if kind == "file" else None
    return None if task is None else task.fqid.version


def with_replica(call: AnyCall, sources: Sources) -> AnyCall:
    """A deposit with the replica that it goes to."""
    if call.query.replica is not None:
        return call
    found = replica_of(call.body.source_url, sources)
    return replace(call, query=replace(call.query, replica=found))


def replica_of(source_url: str, sources: Sources) -> Replica:
    """The replica that a source's scheme stands for."""
    scheme = source_url.partition(":")[0].lower()
    if scheme in REPLICA_OF:
        return REPLICA_OF[scheme]
    if sources.area_key(source_url) is not None:
        return AREA_REPLICA
    errors = {"/source_url": ["Must begin with s3://, gs:// or file://."]}
    raise Invalid(
        "Sources of this scheme are not read", code="unknown_source_schema", errors=errors
    )
