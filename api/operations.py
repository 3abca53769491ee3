"""Every operation of the storage API, in the order in which the definition shows them."""

from api import (
    area_credentials,
    area_files,
    area_uploads,
    areas,
    bundles,
    checkout,
    collections,
    deliveries,
    events,
    feed,
    files,
    integrity,
    replication,
    search,
    standing,
    subscriptions,
)
from api.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *bundles.OPERATIONS,
    *checkout.OPERATIONS,
    *files.OPERATIONS,
    *collections.OPERATIONS,
    *search.OPERATIONS,
    *events.OPERATIONS,
    *feed.OPERATIONS,
    *subscriptions.OPERATIONS,
    *standing.OPERATIONS,
    *deliveries.OPERATIONS,
    *replication.OPERATIONS,
    *integrity.OPERATIONS,
    *areas.OPERATIONS,
    *area_files.OPERATIONS,
    *area_uploads.OPERATIONS,
    *area_credentials.OPERATIONS,
)
