"""Names of the notices that wake those who wait."""

from storage.model import FQID, Replica

DELIVERIES = "deliveries"
EVENTS = "events"
COMMITTED = "committed"
"""An event was committed, which has no number yet."""


def of_file(replica: Replica, fqid: FQID) -> str:
    """A file became visible in a replica, or never will be."""
    return f"file:{replica}:{fqid}"


def of_task(task_id: str) -> str:
    """A task ended."""
    return f"task:{task_id}"


def of_checkout(job_id: str) -> str:
    """A checkout ended."""
    return f"checkout:{job_id}"
