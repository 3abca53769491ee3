"""Bundles of generated files, and depositing many of them at once."""

import json
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from store_client import create_version
from tests.live.api import ApiClient

MB = 1 << 20
JSON = "application/json"
CREATOR_UID = 8008
UPLOADS = 6
"""Bundles whose files are uploaded at the same time."""
COMPLETIONS = 4
"""Bundles that wait for the verification of their files at the same time."""
_NAMESPACE = uuid.UUID("6f1c2a54-0d0c-4f0e-9d7b-6a3b3c0f5e11")


@dataclass(frozen=True)
class SampleFile:
    """A file; `blocks` makes its bytes anew at every call."""

    name: str
    content_type: str
    size: int
    blocks: Callable[[], Iterable[bytes]]
    indexed: bool = False


@dataclass(frozen=True)
class SampleBundle:
    """A bundle; reports name it by its label."""

    label: str
    files: tuple[SampleFile, ...]

    @property
    def uuid(self) -> str:
        """The UUID, which is the same in two runs with the same label."""
        return str(uuid.uuid5(_NAMESPACE, self.label))

    def file_uuid(self, name: str) -> str:
        """The UUID of one of its files."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.label}/{name}"))


def make_file(name: str, content_type: str, data: bytes, *, indexed: bool = False) -> SampleFile:
    """Make a file of bytes."""
    return SampleFile(name, content_type, len(data), lambda: (data,), indexed)


def make_metadata_file(name: str, content: Any) -> SampleFile:
    """Make an indexed JSON file."""
    return make_file(name, JSON, json.dumps(content, indent=2).encode(), indexed=True)


def random_bytes(seed: str, size: int) -> bytes:
    """Bytes that cannot be compressed, the same for the same seed."""
    return random.Random(seed).randbytes(size)


@dataclass(frozen=True)
class DepositedFile:
    """A file that the store took in, with the checksum of the bytes that were sent."""

    file: SampleFile
    uuid: str
    sha256: str


@dataclass(frozen=True)
class DepositedBundle:
    """A bundle that the store acknowledged."""

    bundle: SampleBundle
    fqid: str
    files: tuple[DepositedFile, ...]


Acknowledge = Callable[[DepositedBundle], None]
"""Called with each bundle that the store acknowledges."""


class WrongAnswer(Exception):
    """The store acknowledged something else than was sent."""


@dataclass(frozen=True)
class Deposits:
    """Deposits that run in the background."""

    futures: "Sequence[Future[None]]"

    def failed(self) -> bool:
        """Whether one of them has failed."""
        return any(future.done() and future.exception() for future in self.futures)

    def errors(self) -> list[BaseException]:
        """The errors of those that have failed."""
        found = (future.exception() for future in self.futures if future.done())
        return [error for error in found if error is not None]

    def raise_if_failed(self) -> None:
        """Raise the first error."""
        for future in self.futures:
            if future.done():
                future.result()


class Depositor:
    """Deposits into one upload area of one store."""

    def __init__(self, api: ApiClient, area: str, replica: str = "aws") -> None:
        self._api = api
        self._area = area
        self._replica = replica

    def create_area(self) -> None:
        """Create the upload area."""
        self._api.call("POST", f"/area/{self._area}")

    @contextmanager
    def depositing(
        self,
        bundles: Iterable[SampleBundle],
        acknowledge: Acknowledge,
        *,
        completions: int = COMPLETIONS,
    ) -> Iterator[Deposits]:
        """Deposit in the background, several bundles at a time, until the block ends."""
        with (
            ThreadPoolExecutor(UPLOADS, "upload") as uploads,
            ThreadPoolExecutor(completions, "complete") as completing,
        ):
            uploaded = [uploads.submit(self.upload, bundle) for bundle in bundles]
            futures = [
                completing.submit(lambda one: acknowledge(self._complete(*one.result())), one)
                for one in uploaded
            ]
            try:
                yield Deposits(futures)
            finally:
                for pool in (uploads, completing):
                    pool.shutdown(wait=False, cancel_futures=True)

    def deposit(self, bundle: SampleBundle) -> DepositedBundle:
        """Deposit one bundle, and wait until it is acknowledged."""
        return self._complete(*self.upload(bundle))

    def upload(self, bundle: SampleBundle) -> tuple[SampleBundle, str, tuple[DepositedFile, ...]]:
        """Upload the files of a bundle; return its version and what the store took in."""
        version = create_version()
        return bundle, version, tuple(self._put(bundle, one, version) for one in bundle.files)

    def _put(self, bundle: SampleBundle, file: SampleFile, version: str) -> DepositedFile:
        """Upload a file, and have the store take it in."""
        url, digest = self._send(bundle, file)
        file_uuid = bundle.file_uuid(file.name)
        self._api.call(
            "PUT",
            f"/files/{file_uuid}",
            params={"version": version, "replica": self._replica},
            headers={"Prefer": "respond-async"},
            json={"source_url": url, "creator_uid": CREATOR_UID},
        )
        return DepositedFile(file, file_uuid, digest)

    def _send(self, bundle: SampleBundle, file: SampleFile) -> tuple[str, str]:
        hashed = sha256()

        def content() -> Iterator[bytes]:
            nonlocal hashed
            hashed = sha256()
            for block in file.blocks():
                hashed.update(block)
                yield block

        response = self._api.call(
            "PUT",
            f"/area/{self._area}/files/{quote(f'{bundle.uuid}/{file.name}')}",
            headers={"Content-Type": file.content_type, "Content-Length": str(file.size)},
            content=content,
        ).json()
        received = (response["size"], response["checksums"]["sha256"])
        if received != (file.size, hashed.hexdigest()):
            raise WrongAnswer(f"{file.name} arrived as {received}")
        return str(response["url"]), hashed.hexdigest()

    def _complete(
        self, bundle: SampleBundle, version: str, files: tuple[DepositedFile, ...]
    ) -> DepositedBundle:
        """Make the bundle of its files."""
        entries = [
            {
                "uuid": one.uuid,
                "version": version,
                "name": one.file.name,
                "indexed": one.file.indexed,
            }
            for one in files
        ]
        self._api.call(
            "PUT",
            f"/bundles/{bundle.uuid}",
            params={"version": version, "replica": self._replica},
            json={"creator_uid": CREATOR_UID, "files": entries},
        )
        return DepositedBundle(bundle, f"{bundle.uuid}.{version}", files)
