"""Stored bytes are read again; flipped ones are found, replaced, and never trusted."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pipelines.depositing import areas, ingest
from pipelines.keeping import checksums
from pipelines.replicating import verification
from storage import keys
from storage.catalog import files as file_rows
from storage.model import FQID, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version


def blob_of(stores: Stores, fqid: FQID) -> str:
    with stores.catalog.read() as tx:
        row = file_rows.by_fqid(tx, fqid)
    assert row is not None
    return keys.blob(row.file.checksums.sha256)


def flip(stores: Stores, replica: Replica, key: str) -> None:
    """One bit of the last byte, as a disk would."""
    root = Path(stores.replicas[replica].direct_url("")[7:])
    path = next(root.rglob(key.rpartition("/")[2]))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def verify(stores: Stores, replica: Replica, *, repair: bool = False) -> list[tuple[str, bool]]:
    found = verification.verify(stores, replica, rng=Random(0), repair=repair)
    return [(one.key, one.repaired) for one in found.damaged]


def test_a_flipped_bit_is_found_and_replaced_by_the_other_replicas(stores: Stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    flip(stores, "aws", key)
    assert verify(stores, "aws") == [(key, False)]
    assert verify(stores, "gcp") == []
    assert verify(stores, "aws", repair=True) == [(key, True)]
    assert verify(stores, "aws") == []
    assert b"".join(stores.replicas["aws"].read(key)) == b"content"


def test_what_is_damaged_everywhere_stays_for_a_human(stores: Stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    flip(stores, "aws", key)
    flip(stores, "gcp", key)
    assert verify(stores, "aws", repair=True) == [(key, False)]
    stores.replicas["aws"].head(key)


def test_a_record_whose_digest_is_wrong_is_replaced_too(stores: Stores) -> None:
    fqid = make_file(stores, b"content", everywhere=True)
    key = keys.record("file", fqid)
    right = b"".join(stores.replicas["aws"].read(key))
    stores.replicas["aws"].delete(key)
    stores.replicas["aws"].put(key, right.replace(b'"size":7', b'"size":8'))
    assert verify(stores, "aws", repair=True) == [(key, True)]
    assert b"".join(stores.replicas["aws"].read(key)) == right


@pytest.mark.parametrize("size", [7, 9 * 1024 * 1024])
def test_flipped_bytes_are_not_trusted_when_they_are_deposited_again(
    stores: Stores, drain: Callable[[], int], size: int
) -> None:
    content = bytes(size)
    key = blob_of(stores, make_file(stores, content))
    flip(stores, "aws", key)
    sums = checksums.compute([content], size).checksums
    told = {
        "store-sha1": sums.sha1,
        "store-sha256": sums.sha256,
        "store-crc32c": sums.crc32c,
        "store-s3_etag": sums.s3_etag,
    }
    area = new_uuid()
    areas.create(stores, area, "depositor@example.org")
    staged = keys.area_file(area, "a.txt")
    stores.areas.put(staged, content, metadata=told)
    fqid = FQID(new_uuid(), version())
    deposit = ingest.Deposit(fqid, "aws", stores.areas.direct_url(staged), 1)
    accepted = ingest.deposit(stores, deposit, "depositor@example.org")
    drain()
    assert accepted.task_id is not None
    assert ingest.task(stores, accepted.task_id).state == "SUCCEEDED"
    assert b"".join(stores.replicas["aws"].read(key)) == content
