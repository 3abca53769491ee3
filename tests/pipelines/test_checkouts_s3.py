"""Checkouts from S3 to S3: few calls, every copy compared."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from pipelines import bundles, checkouts
from pipelines.bundles import BundleDraft, NewEntry
from storage import keys
from storage.blobs.s3 import S3Blobs
from storage.catalog.checkouts import Checkout
from storage.model import FQID
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.catalogs import ENGINES, Spares
from tests.conftest import Outbox, draining
from tests.storage.blobs.backend_s3 import SIMULATED, admin, new_bucket, opened, remove_bucket
from tests.storage.blobs.s3_server import ASKED, lasting_s3

pytestmark = pytest.mark.spec("CHK-05")

CONTENTS = {f"reads/{n}.txt": b"content %d" % n for n in range(6)}


@pytest.fixture
def catalog_url(tmp_path: Path, spares: Spares) -> Iterator[str]:
    with spares.lend(ENGINES[0], tmp_path) as url:
        yield url


@pytest.fixture
def target() -> Iterator[S3Blobs]:
    with patch.dict("os.environ", SIMULATED):
        client = admin(lasting_s3())
        name = new_bucket(client, versioned=False)
        blobs = opened(lasting_s3(), name)
        # A first copy shows whether ETags of this bucket are digests.
        blobs.put("probe", b"probe")
        blobs.copy(blobs, "probe", "copy", pin=None, part_size=9, size=5)
        yield blobs
        remove_bucket(client, name)


@pytest.fixture
def mixed(stores: Stores, target: S3Blobs) -> Iterator[Stores]:
    """Stores whose replica aws is a bucket of S3, and gcp a folder."""
    client = admin(lasting_s3())
    name = new_bucket(client, versioned=False)
    replicas = {"aws": opened(lasting_s3(), name), "gcp": stores.replicas["gcp"]}
    yield replace(stores, replicas=replicas, checkouts={"aws": target})
    remove_bucket(client, name)


def check_out(stores: Stores) -> Checkout:
    files = {name: make_file(stores, data, everywhere=True) for name, data in CONTENTS.items()}
    fqid = FQID(new_uuid(), version())
    entries = [NewEntry(name, file, False) for name, file in files.items()]
    bundles.put(stores, BundleDraft(fqid, "aws", 1, entries), "author@example.org")
    requested = checkouts.create(stores, checkouts.CheckoutRequest("aws", *fqid), None)
    draining(stores, Outbox())()
    return checkouts.get_status(stores, "aws", requested.job_id)


def copies(target: S3Blobs, job: Checkout) -> dict[str, bytes]:
    folder = keys.checkout_prefix(job.id)
    return {
        info.key.removeprefix(folder): b"".join(target.read(info.key))
        for info in target.list(folder)
    }


def test_small_files_take_one_call_each(mixed: Stores, target: S3Blobs) -> None:
    before = len(ASKED)
    job = check_out(mixed)
    assert (job.state, job.files) == ("SUCCEEDED", len(CONTENTS))
    made = ASKED[before:]
    assert made.count("PUT copy") == len(CONTENTS)
    assert "HEAD" not in made
    assert copies(target, job) == CONTENTS


class Wrong(S3Blobs):
    """Stores other bytes for one file, and nothing for another, and calls both copied."""

    def copy_unverified(
        self, source: object, key: str, target_key: str, *, is_free: bool = False
    ) -> bool:
        match target_key.rpartition("/")[2]:
            case "1.txt":
                self.put(target_key, b"content?!")
                return True
            case "2.txt":
                return True
        return super().copy_unverified(source, key, target_key, is_free=is_free)  # type: ignore[arg-type]


def test_wrong_and_missing_copies_are_made_again(mixed: Stores, target: S3Blobs) -> None:
    target.__class__ = Wrong
    job = check_out(mixed)
    assert job.state == "SUCCEEDED"
    assert copies(target, job) == CONTENTS


def test_a_damaged_source_is_copied_from_the_other_replica(mixed: Stores, target: S3Blobs) -> None:
    damaged = CONTENTS["reads/3.txt"]
    key = keys.blob_key(hashlib.sha256(damaged).hexdigest())
    mixed.replicas["aws"].put(key, damaged[::-1])
    job = check_out(mixed)
    assert job.state == "SUCCEEDED"
    assert copies(target, job) == CONTENTS
