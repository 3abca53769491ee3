"""The open stores that business logic receives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from storage.cache import ByteCache
from storage.catalog import Catalog
from storage.catalog.quotas import DefaultQuotas
from storage.circuit_breaker import CircuitBreaker
from storage.json_codec import MemoryBudget
from storage.model import Replica
from storage.protocols import (
    BlobStore,
    CredentialIssuer,
    MetadataSchema,
    PubSub,
    SearchIndex,
    Sources,
)
from storage.rate_limits import RateLimiter
from storage.tracing import Tracer
from storage.writability import WriteProbes


@dataclass(frozen=True)
class Stores:
    """The open stores; `replicas` and `search` by replica, `areas` holds upload areas."""

    replicas: Mapping[Replica, BlobStore]
    areas: BlobStore
    checkouts: Mapping[Replica, BlobStore]
    catalog: Catalog
    search: Mapping[Replica, SearchIndex]
    pubsub: PubSub
    sources: Sources
    open_destination: Callable[[Replica, str], BlobStore]
    """Open a requester's bucket by name in the replica's cloud; NotFoundError."""
    documents: ByteCache
    base_url: str
    """External URL of the API, for URLs in messages."""
    max_query_steps: int
    """Steps that one stored query may take."""
    search_fields: int
    """Most fields of one document in the search index."""
    copy_parallel: int
    """Concurrent copies of one bundle or checkout."""
    send_mail: Callable[[str, str, str], None] | None = None
    """Sends (to, subject, body); None where no mail server is configured."""
    verified_pins: ByteCache = field(default_factory=lambda: ByteCache(16_384))
    """Pins of objects whose bytes this process has verified."""
    circuit_breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    """State of `bucket.<replica>` and `search.<replica>`."""
    write_probes: WriteProbes = field(default_factory=WriteProbes)
    """Write probes of this machine's disks and the catalog."""
    credential_issuer: CredentialIssuer | None = None
    """Issues temporary upload credentials; None if uploads use signed URLs."""
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    """For large parsed JSON values of this process."""
    rate_limiter: RateLimiter | None = None
    """Counts requests; None without limits."""
    metadata_schemas: Sequence[MetadataSchema] = ()
    """What the metadata of new bundles has to satisfy."""
    tracer: Tracer = field(default_factory=Tracer)
    """Records traces, if tracing is on."""
    valid_metadata: ByteCache = field(default_factory=lambda: ByteCache(16_384))
    """Metadata files, by SHA-256 and digest of a schema, that this process found valid."""
    quotas: DefaultQuotas | None = None
    """Quotas of owners and groups without one of their own; None if quotas are not enforced."""
