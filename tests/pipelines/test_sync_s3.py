"""Sync from S3 to S3: few calls, every copy compared."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from pipelines import bundles, flow, replication
from pipelines.bundles import BundleDraft, NewEntry
from storage import keys
from storage.blobs.s3 import S3Blobs
from storage.catalog import jobs
from storage.errors import ClaimLost, DamagedObjectError, NotFoundError
from storage.model import FQID, Job, JobClaim
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.catalogs import ENGINES, Spares
from tests.storage.blobs.backend_s3 import SIMULATED, admin, new_bucket, opened, remove_bucket
from tests.storage.blobs.s3_server import ASKED, lasting_s3, s3_server

CONTENTS = [b"content %d" % n for n in range(6)]


@pytest.fixture
def catalog_url(tmp_path: Path, spares: Spares) -> Iterator[str]:
    with spares.lend(ENGINES[0], tmp_path) as url:
        yield url


@pytest.fixture(params=["heeds conditions", "careless"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "careless":
        with s3_server(careless=True) as url:
            yield url
    else:
        yield lasting_s3()


@pytest.fixture
def own(stores: Stores, server: str) -> Iterator[Stores]:
    """Stores with both replicas in S3."""
    with patch.dict("os.environ", SIMULATED):
        client = admin(server)
        names = [new_bucket(client, versioned=False) for _ in range(2)]
        aws, gcp = (opened(server, name) for name in names)
        # A first copy shows what a copy replaces, and whether ETags of this bucket are digests.
        gcp.put("probe", b"probe")
        gcp.copy(gcp, "probe", "copy", pin=None, part_size=9, size=5)
        for key in ("probe", "copy"):
            gcp.delete(key)
        yield replace(stores, replicas={"aws": aws, "gcp": gcp})
        for name in names:
            remove_bucket(client, name)


def blob(content: bytes) -> str:
    return keys.blob_key(hashlib.sha256(content).hexdigest())


def write(stores: Stores, contents: Sequence[bytes] = CONTENTS) -> JobClaim:
    """A bundle of replica aws, and the claim on its copy."""
    entries = [
        NewEntry(f"{place}.txt", make_file(stores, content), False)
        for place, content in enumerate(contents)
    ]
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, entries), "author@example.org")
    row = Job(flow.Step.SYNC, "gcp", f"bundle:{fqid}")
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        held = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
    assert held is not None
    return held


def run(stores: Stores, claim: JobClaim) -> list[str]:
    """What S3 was asked for a copy."""
    before = len(ASKED)
    replication.sync_version(stores, claim, lambda _moved: None)
    return ASKED[before:]


def everything(stores: Stores, replica: str) -> dict[str, bytes]:
    bucket = stores.replicas[replica]
    return {info.key: b"".join(bucket.read(info.key)) for info in bucket.list("")}


def test_small_files_take_one_copy_and_one_record(own: Stores, server: str) -> None:
    asked = run(own, write(own))
    assert everything(own, "gcp") == everything(own, "aws")
    assert asked.count("PUT copy") == len(CONTENTS)
    assert asked.count("PUT") == len(CONTENTS) + 1, "a record for each, and the bundle's"
    assert asked.count("GET") == 1, "one listing compares all"
    careless = server != lasting_s3()
    assert asked.count("HEAD") == (len(CONTENTS) if careless else 0)


def test_existing_objects_are_not_replaced(own: Stores) -> None:
    claim = write(own)
    own.replicas["gcp"].put(blob(CONTENTS[2]), CONTENTS[2])
    lain = own.replicas["gcp"].list(blob(CONTENTS[2]))
    before = [info.modified_us for info in lain]
    run(own, claim)
    assert [info.modified_us for info in own.replicas["gcp"].list(blob(CONTENTS[2]))] == before
    assert everything(own, "gcp") == everything(own, "aws")


class Wrong(S3Blobs):
    """Stores other bytes for one file, and nothing for another, and calls both copied."""

    def copy_unverified(
        self, source: object, key: str, target_key: str, *, is_free: bool = False
    ) -> bool:
        if target_key == blob(CONTENTS[1]):
            self.put(target_key, b"content?!")
        if target_key in (blob(CONTENTS[1]), blob(CONTENTS[4])):
            return True
        return super().copy_unverified(source, key, target_key, is_free=is_free)  # type: ignore[arg-type]


def test_wrong_and_missing_copies_are_made_again(own: Stores) -> None:
    own.replicas["gcp"].__class__ = Wrong
    run(own, write(own))
    assert everything(own, "gcp") == everything(own, "aws")


def test_damaged_bytes_are_never_copied(own: Stores) -> None:
    claim = write(own)
    own.replicas["aws"].put(blob(CONTENTS[3]), CONTENTS[3][::-1], replace=True)
    with pytest.raises(DamagedObjectError):
        run(own, claim)
    with pytest.raises(NotFoundError):
        own.replicas["gcp"].head(blob(CONTENTS[3]))
    fqid = FQID.parse(claim.job.ref.partition(":")[2])
    with pytest.raises(NotFoundError):
        bundles.find(own, "gcp", fqid.uuid, None)


def test_stores_with_many_blobs_check_each_copy(own: Stores) -> None:
    for number in range(replication.LISTED_PER_HEAD_REQUEST):
        make_file(own, b"older %d" % number)
    asked = run(own, write(own, CONTENTS[:1]))
    assert "GET" not in asked
    assert "HEAD" in asked
    assert asked.count("PUT copy") == 1


def test_a_worker_that_dies_between_two_copies_is_followed_by_another(own: Stores) -> None:
    claim = write(own)
    left = [3]

    def dying(_moved: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ClaimLost("killed")

    with pytest.raises(ClaimLost):
        replication.sync_version(own, claim, dying)
    run(own, claim)
    assert everything(own, "gcp") == everything(own, "aws")
