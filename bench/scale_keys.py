"""Names of the rows of a filled catalog: other ones for each number, the same every time."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from storage import keys
from storage.catalog import Tx
from storage.model import FQID, Job

VERSION = "2026-01-01T000000.000000Z"
CHUNK = 500_000
"""Bundles that one statement makes."""
PAGE = 100
OWNERS = 10
"""Few, so that a page of ten of what one of them owns is full with 100,000 bundles already."""
EVER = 2**60
STEPS = ("sync", "index", "match")
NEW_UUID = "ffffffff-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class RowKeys:
    """Names of bundle `number` of so many, and of rows of other tables chosen by it."""

    number: int
    bundles: int

    @property
    def bundle(self) -> FQID:
        """The bundle's name."""
        return FQID(_uuid("b", self.number), VERSION)

    @property
    def file_id(self) -> int:
        """A file's id, which is also that of its blob."""
        return self.number % (self.bundles // 5) + 1

    @property
    def file(self) -> FQID:
        """The file's name."""
        return FQID(_uuid("f", self.file_id), VERSION)

    @property
    def some_files(self) -> list[FQID]:
        """The names of a hundred files that lie anywhere."""
        count = self.bundles // 5
        places = (self.file_id + at * (count // PAGE) for at in range(PAGE))
        return [FQID(_uuid("f", at % count + 1), VERSION) for at in places]

    @property
    def few(self) -> int:
        """The id of a subscription, its endpoint, a collection or an area."""
        return self.number % (self.bundles // 1000) + 1

    @property
    def few_uuid(self) -> str:
        """The uuid of the area of that number."""
        return _uuid("a", self.few)

    @property
    def subscription(self) -> str:
        """The subscription's uuid."""
        return _uuid("s", self.few)

    @property
    def collection(self) -> FQID:
        """The collection's name."""
        return FQID(_uuid("k", self.few), VERSION)

    @property
    def owner(self) -> str:
        """Who owns a tenth of everything."""
        return f"owner{self.few % OWNERS}@example.org"

    @property
    def sha256(self) -> str:
        """The file's SHA-256."""
        return md5(f"b{self.file_id}") + md5(f"c{self.file_id}")

    @property
    def event(self) -> str:
        """The id of the bundle's event."""
        return _uuid("e", self.number)

    @property
    def task(self) -> str:
        """The id of an ingest task."""
        return _uuid("t", max(10, self.file_id // 10 * 10))

    @property
    def job(self) -> Job:
        """An open job that was never attempted."""
        return Job("index", "aws", f"{_uuid('b', self.number % 50 * 2 + 2)}.{VERSION}")

    @property
    def delivery(self) -> str:
        """The uuid of a delivery that is finished."""
        return _uuid("d", self._of_delivery)

    @property
    def subscriber(self) -> int:
        """The id of that delivery's subscription."""
        last = min(self.bundles, -(-self._of_delivery // CHUNK) * CHUNK)
        return self._of_delivery // 20 % (last // 1000) + 1

    @property
    def _of_delivery(self) -> int:
        return max(20, self.number // 20 * 20)

    @property
    def record(self) -> str:
        """The key of the bundle's record in a bucket."""
        return keys.record_key("bundle", self.bundle)


def md5(text: str) -> str:
    """Return the MD5 sum of a text in hex, as PostgreSQL's function does."""
    return hashlib.md5(text.encode()).hexdigest()


def _uuid(salt: str, number: int) -> str:
    return str(UUID(md5(f"{salt}{number}")))


Call = Callable[[Tx, RowKeys], object]
"""A call of the catalog with keys of its rows."""
