"""Notifications about a purge still carry the document."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from pipelines import bundles, purges
from pipelines.bundles import BundleDraft, NewEntry
from storage.catalog import jobs
from storage.errors import NotFoundError
from storage.model import FQID
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.pipelines.purge_runs import finish
from tests.subscription_builders import subscribe

pytestmark = pytest.mark.spec("NOT-10")

AUTHOR = "operator@example.org"
ASKING = {
    "organ": {"type": "jmespath", "expression": "files.cell_json[0].organ"},
    "kind": {"type": "jmespath", "expression": "event_type"},
    "bad": {"type": "jmespath", "expression": "sum(manifest)"},
}


def write(stores: Stores, organ: str) -> FQID:
    data = json.dumps({"organ": organ}).encode()
    file = make_file(stores, data, content_type="application/json", everywhere=True)
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry("cell.json", file, True)]), AUTHOR)
    return fqid


def purge(stores: Stores, fqid: FQID) -> None:
    bundles.delete(stores, "aws", *fqid, reason="r", author=AUTHOR)
    purges.order_purge(stores, *fqid, reason="r", author=AUTHOR)


def payloads(stores: Stores, subscription: str) -> dict[str, dict[str, Any]]:
    """By the kind of event, what was to be told."""
    query = text(
        "SELECT event_type, payload FROM deliveries JOIN subscriptions"
        " ON subscriptions.id = deliveries.subscription_id WHERE subscriptions.uuid = :uuid"
    )
    with stores.catalog.read() as tx:
        return {kind: json.loads(told) for kind, told in tx.execute(query, {"uuid": subscription})}


@pytest.mark.parametrize("at_once", [True, False], ids=["purged at once", "purged later"])
def test_delete_event_has_query_and_attachments(
    stores: Stores, drain: Callable[[], int], at_once: bool
) -> None:
    hook = "https://receiver.example/hook"
    query = "files.cell_json[0].organ == 'brain'"
    asking = subscribe(stores.catalog, hook, query=query, attachments=ASKING)
    deletions = subscribe(stores.catalog, hook, query="event_type == 'DELETE'")
    elsewhere = subscribe(stores.catalog, hook, replica="gcp")
    fqid, other = write(stores, "brain"), write(stores, "liver")
    if not at_once:
        drain()
    for each in (fqid, other):
        purge(stores, each)
    finish(stores, drain)
    told = payloads(stores, asking.uuid)
    assert {"TOMBSTONE", "DELETE"} <= told.keys()
    assert told["DELETE"]["event_type"] == "DELETE"
    assert told["DELETE"]["match"] == {"bundle_uuid": fqid.uuid, "bundle_version": fqid.version}
    found = told["DELETE"]["attachments"]
    assert (found["organ"], found["kind"]) == ("brain", "DELETE")
    assert found["_errors"].keys() == {"bad"}
    assert told["DELETE"]["jmespath_query"] == query
    assert payloads(stores, deletions.uuid).keys() == {"DELETE"}
    seen = payloads(stores, elsewhere.uuid)
    assert ("DELETE" in seen) is not at_once, "what was never seen there is not told of there"
    with pytest.raises(NotFoundError):
        bundles.find(stores, "aws", *fqid)
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {}
