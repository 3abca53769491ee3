"""The state of work: open and dead jobs, receivers, and the last backup."""

from dataclasses import dataclass

from storage.catalog import deliveries, endpoints, jobs, now_us, purges, store_state
from storage.catalog.endpoints import EndpointStatus
from storage.catalog.jobs import DeadJob, OpenJobs
from storage.stores import Stores

MAX_LISTED = 100


@dataclass(frozen=True)
class WorkStatus:
    """What workers have to do at `now_us`; lists are bounded, the latest or worst first."""

    now_us: int
    open: list[OpenJobs]
    dead: list[DeadJob]
    dead_count: int
    endpoints: list[EndpointStatus]
    deliveries_pending: int
    last_backup_us: int | None
    purges: list[str]


def read_work_status(stores: Stores) -> WorkStatus:
    """Return the state of work."""
    with stores.catalog.read() as tx:
        return WorkStatus(
            now_us=now_us(tx),
            open=jobs.list_open(tx),
            dead=jobs.list_dead(tx, limit=MAX_LISTED),
            dead_count=jobs.count_dead(tx),
            endpoints=endpoints.list_active(tx, limit=MAX_LISTED),
            deliveries_pending=deliveries.count_pending(tx),
            last_backup_us=store_state.find_last_backup_us(tx),
            purges=[
                f"{one.kind} {one.name}" for one in purges.list_unfinished(tx, limit=MAX_LISTED)
            ],
        )
