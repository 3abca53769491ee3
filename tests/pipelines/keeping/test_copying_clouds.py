"""Large copies from one cloud into the other: in parts, taken up again, in little memory.

Between simulated clouds always; between real servers where STORE_TEST_S3 and STORE_TEST_GCS name
them.
"""

import hashlib
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.keeping import copying
from pipelines.keeping.checksums import compute
from storage.errors import Lost, NotFound
from storage.model import Checksums
from storage.protocols import BlobStore
from tests.pipelines.keeping.test_copying import Memory, digest, dying_after
from tests.storage.blobs import backend_gcs, backend_s3

MB = 1024 * 1024
PAIRS = {
    "simulated": (backend_s3.simulated, backend_gcs.simulated),
    **(
        {"s3-server and gcs-server": (backend_s3.SERVERS["s3-server"], backend_gcs.named)}
        if backend_s3.SERVERS and "gcs-server" in backend_gcs.GCS
        else {}
    ),
}


@dataclass(frozen=True)
class Way:
    """From one cloud into the other, with an object that has two parts."""

    source: BlobStore
    target: BlobStore
    content: bytes
    sums: Checksums
    own_process: bool
    """Whether the servers' memory is ours."""

    def copy(self, ledger: Memory, beat: copying.Beat = lambda _: None) -> None:
        copying.copy(
            self.source,
            self.target,
            "k",
            "k",
            size=len(self.content),
            checksums=self.sums,
            ledger=ledger,
            beat=beat,
        )


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[BlobStore]]]:
    with ExitStack() as stack:
        backends = [stack.enter_context(each(tmp_path)) for each in PAIRS[request.param]]
        yield request.param, [backend.store for backend in backends]


@pytest.fixture(params=["s3 to gcs", "gcs to s3"])
def way(request: pytest.FixtureRequest, pair: tuple[str, list[BlobStore]]) -> Way:
    name, stores = pair
    source, target = stores if request.param == "s3 to gcs" else reversed(stores)
    content = random.Random(0).randbytes(66 * MB)
    source.put("k", content)
    sums = compute([content], len(content)).checksums
    return Way(source, target, content, sums, own_process=name == "simulated")


def test_a_copy_into_the_other_cloud_is_taken_up_where_a_worker_died(way: Way) -> None:
    ledger = Memory()
    with pytest.raises(Lost):
        way.copy(ledger, dying_after(1))
    with pytest.raises(NotFound):
        way.target.head("k")
    kept = way.target.upload("k", part_size=64 * MB, content_type="", token=ledger.token())
    assert kept.parts() == {1: 64 * MB}
    tracemalloc.start()
    way.copy(ledger)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert way.own_process or most < 32 * MB
    assert ledger.closed
    assert len(set(ledger.noted)) == 1, "the same upload to the end"
    assert digest(way.target) == hashlib.sha256(way.content).hexdigest()
