"""Deposits bundles: every file into an upload area and from there into the store, then the bundle.

Files are not waited for: the store verifies them while the next ones arrive, and a bundle waits for
its own files.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from ops.demo.bundles import SampleBundle, SampleFile
from ops.demo.digests import Digests
from ops.demo.service import Service

CREATOR_UID = 8008
UPLOADING = 6
"""Bundles whose files are uploaded at one time."""

COMPLETING = 4
"""Bundles that wait for their files at one time."""


@dataclass(frozen=True)
class Placed:
    """A file that was handed to the store, with what we know of its bytes."""

    file: SampleFile
    uuid: str
    sha256: str
    s3_etag: str
    parts: int


@dataclass(frozen=True)
class Deposited:
    """A bundle that the store acknowledged."""

    bundle: SampleBundle
    fqid: str
    placed: tuple[Placed, ...]


Acknowledged = Callable[[Deposited], None]
"""Told of each bundle that the store acknowledged."""


class WrongAnswer(Exception):
    """The store acknowledged something else than was sent."""


def new_version() -> str:
    """A version of now."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%fZ")


@dataclass(frozen=True)
class Deposits:
    """Deposits that go on in the background."""

    futures: "Sequence[Future[None]]"

    def failed(self) -> bool:
        """Whether one of them was refused."""
        return any(future.done() and future.exception() for future in self.futures)

    def errors(self) -> list[BaseException]:
        """What those that were refused met."""
        settled = (future.exception() for future in self.futures if future.done())
        return [error for error in settled if error is not None]

    def raise_if_failed(self) -> None:
        """Raise what the first one that was refused met."""
        for future in self.futures:
            if future.done():
                future.result()


class Depositor:
    """Deposits into one upload area of one store."""

    def __init__(self, service: Service, area: str, replica: str = "aws") -> None:
        self._service = service
        self._area = area
        self._replica = replica

    def open_area(self) -> None:
        """Make the upload area."""
        self._service.call("POST", f"/area/{self._area}")

    @contextmanager
    def depositing(
        self,
        bundles: Iterable[SampleBundle],
        acknowledged: Acknowledged,
        *,
        completing: int = COMPLETING,
    ) -> Iterator["Deposits"]:
        """Deposit every bundle in the background, several at a time, until the block is left."""
        with (
            ThreadPoolExecutor(UPLOADING, "upload") as uploads,
            ThreadPoolExecutor(completing, "complete") as completions,
        ):
            wanted = [uploads.submit(self._upload, bundle) for bundle in bundles]
            started = [
                completions.submit(self._complete_when_uploaded, future, acknowledged)
                for future in wanted
            ]
            try:
                yield Deposits(started)
            finally:
                for pool in (uploads, completions):
                    pool.shutdown(wait=False, cancel_futures=True)

    def deposit(self, bundle: SampleBundle) -> Deposited:
        """Deposit one bundle and wait until it is acknowledged."""
        return self._complete(*self._upload(bundle))

    def _complete_when_uploaded(
        self,
        future: "Future[tuple[SampleBundle, str, tuple[Placed, ...]]]",
        acknowledged: Acknowledged,
    ) -> None:
        acknowledged(self._complete(*future.result()))

    def _upload(self, bundle: SampleBundle) -> tuple[SampleBundle, str, tuple[Placed, ...]]:
        version = new_version()
        placed = tuple(self._place(bundle, file, version) for file in bundle.files)
        return bundle, version, placed

    def _place(self, bundle: SampleBundle, file: SampleFile, version: str) -> Placed:
        """Upload one file and tell the store to take it in."""
        url, digests = self._send(bundle, file)
        uuid = bundle.file_uuid(file.name)
        self._service.call(
            "PUT",
            f"/files/{uuid}",
            params={"version": version, "replica": self._replica},
            headers={"Prefer": "respond-async"},
            json={"source_url": url, "creator_uid": CREATOR_UID},
        )
        return Placed(file, uuid, digests.sha256, digests.s3_etag, digests.parts)

    def _send(self, bundle: SampleBundle, file: SampleFile) -> tuple[str, Digests]:
        name = quote(f"{bundle.uuid}/{file.name}")
        digests = Digests()

        def content() -> Iterator[bytes]:
            nonlocal digests
            digests = Digests()
            for block in file.blocks():
                digests.update(block)
                yield block

        response = self._service.call(
            "PUT",
            f"/area/{self._area}/files/{name}",
            headers={"Content-Type": file.content_type, "Content-Length": str(file.size)},
            content=content,
        ).json()
        received = (response["size"], response["checksums"]["sha256"])
        if received != (file.size, digests.sha256):
            raise WrongAnswer(f"{file.name} arrived as {received}")
        return str(response["url"]), digests

    def _complete(
        self, bundle: SampleBundle, version: str, placed: tuple[Placed, ...]
    ) -> Deposited:
        entries = [
            {
                "uuid": item.uuid,
                "version": version,
                "name": item.file.name,
                "indexed": item.file.indexed,
            }
            for item in placed
        ]
        self._service.call(
            "PUT",
            f"/bundles/{bundle.uuid}",
            params={"version": version, "replica": self._replica},
            json={"creator_uid": CREATOR_UID, "files": entries},
        )
        return Deposited(bundle, f"{bundle.uuid}.{version}", placed)
