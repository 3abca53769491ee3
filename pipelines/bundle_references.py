"""What refers to a bundle: its events, and collections and subscriptions of one owner."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelines import documents
from pipelines.matching import Clock, evaluate_event
from pipelines.queries.stored_queries import StoredQuerySet
from storage.catalog import collections, events, subscriptions
from storage.catalog.collections import Collection
from storage.catalog.events import EVENT_TYPES
from storage.catalog.subscriptions import ELASTICSEARCH, JMESPATH, Subscription
from storage.errors import DomainError, TimeLimitExceeded
from storage.model import FQID, REPLICAS, BundleEvent, BundleVersion, Replica
from storage.stores import Stores

EVENT_VERSIONS_MAX = 50
"""Versions whose events one page shows."""
MATCHED_FILES_MAX = 2_000
"""Files of a bundle that is matched while a reader waits."""
COLLECTIONS_MAX = 200
"""Collections of one owner that are looked through."""


def list_events(stores: Stores, fqids: Sequence[FQID]) -> list[BundleEvent]:
    """List the events of a few versions in every replica, the latest first."""
    idents = [
        events.make_event_id(kind, replica, fqid)
        for fqid in fqids[:EVENT_VERSIONS_MAX]
        for replica in REPLICAS
        for kind in EVENT_TYPES
    ]
    with stores.catalog.read() as tx:
        found = events.find_all(tx, idents) if idents else []
    return sorted(found, key=lambda event: (event.at_us, event.replica), reverse=True)


def list_collections(stores: Stores, owner: str, fqid: FQID) -> list[Collection]:
    """List the owner's collections whose latest version contains a bundle.

    Of those of the first COLLECTIONS_MAX collections.
    """
    with stores.catalog.read() as tx:
        return collections.list_containing(tx, owner, "bundle", fqid, limit=COLLECTIONS_MAX)


def list_own_collections(
    stores: Stores, owner: str, *, after: str = "", limit: int = COLLECTIONS_MAX
) -> list[Collection]:
    """List the latest versions of the owner's collections, by uuid, after a given uuid."""
    with stores.catalog.read() as tx:
        return collections.list_latest(tx, owner, after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class SubscriptionMatches:
    """The subscriptions that match a bundle, and why others may be missing."""

    subscriptions: list[Subscription]
    problem: str | None = None


def find_matching_subscriptions(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    owner: str,
    *,
    time_s: float,
    clock: Clock,
) -> SubscriptionMatches:
    """Return the owner's subscriptions whose queries match a bundle, whenever they were made."""
    with stores.catalog.read() as tx:
        own = [
            row
            for kind in (JMESPATH, ELASTICSEARCH)
            for row in subscriptions.list_by_owner(tx, owner, replica, kind)
        ]
    if not own:
        return SubscriptionMatches([])
    if bundle.file_count > MATCHED_FILES_MAX:
        return SubscriptionMatches([], "The bundle has too many files to be matched here.")
    end = clock() + time_s

    def check_time(_moved: int) -> None:
        if clock() > end:
            raise TimeLimitExceeded("The evaluation took too long.")

    queries = StoredQuerySet(replace(row, created_us=0) for row in own)
    event_id = events.make_event_id("CREATE", replica, bundle.fqid)
    event = BundleEvent(event_id, replica, "CREATE", bundle.fqid, bundle.id, bundle.created_us)
    try:
        document = documents.load_small_document(stores, replica, bundle, check_time)
        if document is None:
            return SubscriptionMatches([], "The bundle's metadata is too large to be matched here.")
        matches = {
            delivery.subscription_id
            for delivery in evaluate_event(
                queries,
                event,
                document,
                base_url=stores.base_url,
                steps=stores.max_query_steps,
                beat=check_time,
            )
            if delivery.failure is None
        }
    except DomainError as error:
        return SubscriptionMatches([], error.detail)
    return SubscriptionMatches([row for row in own if row.id in matches])
