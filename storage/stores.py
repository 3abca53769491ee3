"""The bundle of open stores that every room above receives; built by `storage.connecting`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from storage.availability import Availability
from storage.cache import ByteCache
from storage.catalog import Catalog
from storage.memory import MemoryBudget
from storage.model import Replica
from storage.protocols import BlobStore, Lender, Notices, SearchIndex, Sources
from storage.rates import Rates
from storage.writability import WriteProbes


@dataclass(frozen=True)
class Stores:
    """One of each; `replicas` and `search` are keyed by replica, `areas` holds upload areas."""

    replicas: Mapping[Replica, BlobStore]
    areas: BlobStore
    checkouts: Mapping[Replica, BlobStore]
    catalog: Catalog
    search: Mapping[Replica, SearchIndex]
    notices: Notices
    sources: Sources
    destination: Callable[[Replica, str], BlobStore]
    """A bucket of the requester's own, by name, in the replica's cloud; NotFound."""
    documents: ByteCache
    base_url: str
    """Where the API is reached from outside, for URLs in messages."""
    query_steps: int
    """Steps that one stored query may take."""
    search_fields: int
    """Fields of one document that the search index takes."""
    copy_parallel: int
    """Copies in flight of one bundle or checkout."""
    mail: Callable[[str, str, str], None] | None = None
    """Sends (to, subject, body); None where no mail server is configured."""
    seen: ByteCache = field(default_factory=lambda: ByteCache(16_384))
    """Whether the bytes of an object, by its pin, were read here and were right."""
    availability: Availability = field(default_factory=Availability)
    """Which of `bucket.<replica>` and `search.<replica>` answer."""
    probes: WriteProbes = field(default_factory=WriteProbes)
    """Whether each place of this machine that takes writes takes them now."""
    lender: Lender | None = None
    """Lends credentials for a part of the bucket of upload areas; None where nobody does: URLs are
    signed instead."""
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    """For large parsed JSON values of this process."""
    rates: Rates | None = None
    """Counts requests; None where their number is not limited."""
