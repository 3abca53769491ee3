"""Deposit bundles in a store that is mirrored, and read them in its mirror."""

import json
from collections.abc import Mapping
from typing import Any

import httpx

from ops.local_store import LocalStore
from pipelines import bundles
from storage import keys
from storage.catalog import bundles as bundle_rows
from storage.model import FQID
from storage.stores import Stores
from tests.builders import new_uuid, version
from tests.waiting import until


def connect_to(source: LocalStore) -> httpx.Client:
    """A client of the store that is mirrored, as its administrator."""
    return httpx.Client(
        base_url=f"{source.api}/v1",
        headers={"Authorization": f"Bearer {source.token}", "Prefer": "wait=30"},
        trust_env=False,
        timeout=90,
    )


def deposit_bundle(
    http: httpx.Client, contents: Mapping[str, bytes], fqid: FQID | None = None
) -> FQID:
    """Deposit a new bundle version; return it when its event is in the feed."""
    area, entries = new_uuid(), []
    assert http.post(f"/area/{area}").status_code == 201
    for name, content in contents.items():
        staged = http.put(f"/area/{area}/files/{name}", content=content)
        file, at = new_uuid(), version()
        body = {"source_url": staged.json()["url"], "creator_uid": 7}
        put = http.put(f"/files/{file}", params={"version": at, "replica": "aws"}, json=body)
        assert put.status_code in (200, 201, 202), put.text
        indexed = name.endswith(".json")
        entries.append({"uuid": file, "version": at, "name": name, "indexed": indexed})
    fqid = fqid or FQID(new_uuid(), version())
    params = {"version": fqid.version, "replica": "aws"}

    def put_bundle() -> bool:
        # A short wait, so that no attempt takes all the time.
        answer = http.put(
            f"/bundles/{fqid.uuid}",
            params=params,
            json={"creator_uid": 8, "files": entries},
            headers={"Prefer": "wait=1"},
        )
        return answer.status_code in (200, 201)

    until(put_bundle)
    wait_for_event(http, fqid, "CREATE")
    return fqid


def delete_bundle(http: httpx.Client, fqid: FQID) -> None:
    """Delete a bundle version; return when its event is in the feed."""
    answer = http.request(
        "DELETE",
        f"/bundles/{fqid.uuid}",
        params={"replica": "aws", "version": fqid.version},
        json={"reason": "withdrawn"},
    )
    assert answer.status_code == 200, answer.text
    wait_for_event(http, fqid, "TOMBSTONE")


def wait_for_event(http: httpx.Client, fqid: FQID, kind: str) -> None:
    """Wait until the feed has an event of a bundle version."""
    cursor = ""

    def is_listed() -> bool:
        nonlocal cursor
        answer = http.get(
            "/events/feed",
            params={"replica": "aws", "after": cursor},
            headers={"Prefer": "wait=5"},
        ).json()
        cursor = answer["cursor"] or cursor
        return any(
            (one["event_type"], one["bundle_uuid"], one["bundle_version"]) == (kind, *fqid)
            for one in answer["events"]
        )

    until(is_listed)


def read_bundle(stores: Stores, fqid: FQID) -> tuple[Mapping[str, Any], dict[str, bytes]] | None:
    """Return the manifest of a bundle in the mirror and its contents by name; None if hidden."""
    with stores.catalog.read() as tx:
        row, is_buried = bundle_rows.find_with_tombstone(tx, fqid)
    if row is None or is_buried or not row.published:
        return None
    manifest = json.loads(bundles.build_manifest(stores, row))
    blobs = stores.replicas["aws"]
    return manifest, {
        one["name"]: b"".join(blobs.read(keys.blob_key(one["sha256"]))) for one in manifest["files"]
    }
