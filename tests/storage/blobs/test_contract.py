"""Every blob engine against the shared contract."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.storage.blobs.backend_folder import local
from tests.storage.blobs.backend_gcs import EXCUSED, GCS
from tests.storage.blobs.backend_s3 import S3
from tests.storage.contracts.blob_store import Backend, BlobStoreContract

BACKENDS: dict[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "local": local,
    **GCS,
    **S3,
}


class TestBlobStores(BlobStoreContract):
    @pytest.fixture(params=BACKENDS)
    def backend(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
        excuse = EXCUSED.get(request.function.__name__) if request.param == "gcs-server" else None
        if excuse:
            request.applymarker(pytest.mark.xfail(reason=f"gcs-server: {excuse}", strict=True))
        with BACKENDS[request.param](tmp_path) as backend:
            yield backend
