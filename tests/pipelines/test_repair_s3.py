"""Damaged objects in an S3 bucket are detected, bypassed and repaired."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from pipelines import failover
from storage import keys
from storage.catalog import files
from storage.model import FileVersion
from storage.stores import Stores
from tests.builders import make_file
from tests.catalogs import ENGINES, Spares
from tests.conftest import Outbox, draining
from tests.damage import KINDS, damage_s3
from tests.pipelines.test_repair import HEALING, verify
from tests.storage.blobs.backend_s3 import SIMULATED, admin, new_bucket, opened, remove_bucket
from tests.storage.blobs.s3_server import lasting_s3

pytestmark = pytest.mark.spec("OPS-14")

DAMAGE = [kind for kind in KINDS if kind != "header byte"]
BY_HEAD = ("emptied", "truncated", "extended", "removed")
"""What a HEAD shows. Bytes that rot are guarded by S3 itself."""


@pytest.fixture
def catalog_url(tmp_path: Path, spares: Spares) -> Iterator[str]:
    with spares.lend(ENGINES[0], tmp_path) as url:
        yield url


@pytest.fixture
def mixed(stores: Stores) -> Iterator[Stores]:
    """Stores whose replica aws is a bucket of S3, and gcp a folder."""
    with patch.dict("os.environ", SIMULATED):
        client = admin(lasting_s3())
        name = new_bucket(client, versioned=False)
        bucket = opened(lasting_s3(), name)
        yield replace(stores, replicas={"aws": bucket, "gcp": stores.replicas["gcp"]})
        remove_bucket(client, name)


def damaged(stores: Stores) -> dict[str, FileVersion]:
    """A file for each kind of damage, damaged so in S3."""
    found = {}
    for kind in DAMAGE:
        fqid = make_file(stores, f"content, to be {kind}".encode(), everywhere=True)
        with stores.catalog.read() as tx:
            row = files.find(tx, fqid)
        assert row is not None
        found[kind] = row
        bucket = stores.replicas["aws"].direct_url("").split("/")[2]
        damage_s3(admin(lasting_s3()), bucket, key_of(row), kind)
    return found


def key_of(file: FileVersion) -> str:
    return keys.blob_key(file.checksums.sha256)


@pytest.mark.parametrize("healing", ["verify", "sweep"])
def test_damage_in_s3_is_found_and_healed(mixed: Stores, healing: str) -> None:
    files = damaged(mixed)
    assert sorted(verify(mixed, repair=False)) == sorted(
        (key_of(file), False) for file in files.values()
    )
    drain: Callable[[], int] = draining(mixed, Outbox())
    HEALING[healing](mixed, drain)
    assert verify(mixed, repair=False) == []
    for kind, file in files.items():
        content = b"".join(mixed.replicas["aws"].read(key_of(file)))
        assert content == f"content, to be {kind}".encode()


def test_reads_are_sent_to_the_other_replica_and_order_a_repair(mixed: Stores) -> None:
    files = damaged(mixed)
    for kind in BY_HEAD:
        key = key_of(files[kind])
        assert failover.find_intact_replica(mixed, "aws", key, files[kind]) == "gcp", kind
    draining(mixed, Outbox())()
    for kind in BY_HEAD:
        key = key_of(files[kind])
        assert failover.find_intact_replica(mixed, "aws", key, files[kind]) == "aws", kind
