"""Dead jobs: retry them, or drop those without which nothing that was accepted is lost."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType

from pipelines.flow import Step
from storage.catalog import Catalog, Tx, audit, checkouts, jobs, now_us
from storage.catalog.audit import OPERATOR, AuditChange
from storage.catalog.jobs import DeadJobFilter
from storage.errors import DomainError
from storage.model import Job

MAX_DEAD_JOBS = 1_000_000
PAGE = 1_000
MAX_AUDITED_JOBS = 100
"""Dropped jobs that an entry of the audit log names."""
DROPPED_CAUSE = "An operator ended it after it had failed too often."

_NO_NOTIFICATION = "subscribers are not told of these events, unless they replay them"
_SWEPT = "the next sweep creates them again where an object is still missing"
DROP_EFFECTS: Mapping[str, str] = MappingProxyType(
    {
        Step.SYNC: _SWEPT,
        Step.SYNC_LARGE: _SWEPT,
        Step.JOURNAL_COPY: _SWEPT,
        Step.REPAIR: "the next sweep or scrub creates them again where an object is damaged",
        Step.PUBLISH: "the scheduler creates them again within minutes",
        Step.JOURNAL: "the scheduler creates them again with the next events",
        Step.JOURNAL_DROP: "the scheduler creates them again",
        Step.INDEX: "search does not find these bundles before `python -m ops rebuild index`,"
        " and their elasticsearch subscribers are not told",
        Step.MATCH: _NO_NOTIFICATION,
        Step.PERCOLATE: _NO_NOTIFICATION,
        Step.CHECKOUT: "these checkouts end as failed, and no mail says so",
        Step.MAIL: "the requesters of these checkouts get no mail",
    }
)
"""What is lost with a dead job, by its step; others may only be retried."""

_UPLOAD = "an accepted upload would never be stored"
_DELETION = "a deletion would stay incomplete"
DROP_REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        Step.VERIFY: _UPLOAD,
        Step.VERIFY_LARGE: _UPLOAD,
        Step.AREA_CHECKSUM: _UPLOAD,
        Step.AREA_CHECKSUM_LARGE: _UPLOAD,
        Step.DEPOSIT: "an accepted bundle would never be made",
        Step.BURY: _DELETION,
        Step.MARK: _DELETION,
        Step.ERASE: _DELETION,
        Step.FORGET: _DELETION,
        Step.AREA_REMOVE: _DELETION,
        Step.REPLAY: "an accepted replay would never end",
    }
)
"""Why a dead job may not be dropped, by its step."""


def retry_dead_jobs(
    catalog: Catalog, chosen: DeadJobFilter, *, limit: int = MAX_DEAD_JOBS, sent: bool = False
) -> list[Job]:
    """Make chosen dead jobs due again, the latest first; return them.

    `sent` says that the caller sends the messages; otherwise the scheduler does.
    """
    retried: list[Job] = []
    chosen = _end_now(catalog, chosen)
    while len(retried) < limit:
        with catalog.write() as tx:
            page = jobs.list_dead(tx, chosen, limit=min(PAGE, limit - len(retried)))
            jobs.insert(tx, [dead.todo for dead in page], sent=sent)
        if not page:
            break
        retried += [dead.todo for dead in page]
    return retried


def _end_now(catalog: Catalog, chosen: DeadJobFilter) -> DeadJobFilter:
    """Leave out jobs that die from now on, for example again."""
    with catalog.read() as tx:
        return replace(chosen, until_us=now_us(tx))


def count_droppable(
    catalog: Catalog, chosen: DeadJobFilter
) -> tuple[DeadJobFilter, dict[str, int]]:
    """Count chosen dead jobs by step; DomainError if one of them may not be dropped.

    Returns also the filter for `drop_dead_jobs`, which leaves out jobs that die from now on.
    """
    chosen = _end_now(catalog, chosen)
    with catalog.read() as tx:
        counts = jobs.count_dead_by_step(tx, chosen)
    if refused := sorted(counts.keys() - DROP_EFFECTS.keys()):
        reasons = "; ".join(
            f"{step} ({counts[step]}): {DROP_REFUSALS.get(step, 'an unknown step')}"
            for step in refused
        )
        raise DomainError(
            f"Nothing was dropped, because data could be lost. {reasons}. Mend the cause and use"
            " `python -m ops dead retry`, or choose other jobs with --step."
        )
    return chosen, counts


def drop_dead_jobs(catalog: Catalog, chosen: DeadJobFilter, *, limit: int = MAX_DEAD_JOBS) -> int:
    """Delete chosen dead jobs, the latest first, and record it; return their number."""
    dropped = 0
    while dropped < limit:
        with catalog.write() as tx:
            page = jobs.list_dead(tx, chosen, limit=min(PAGE, limit - dropped))
            found = [
                one.todo
                for one in page
                if one.todo.step in DROP_EFFECTS and jobs.delete_dead(tx, one.todo)
            ]
            _record_dropped(tx, found)
        if not found:
            break
        dropped += len(found)
    return dropped


def _record_dropped(tx: Tx, dropped: list[Job]) -> None:
    for job in dropped:
        if job.step == Step.CHECKOUT:
            checkouts.finish(tx, job.ref, state="FAILED", location=None, cause=DROPPED_CAUSE)
    for step, group in groupby(sorted(dropped), lambda job: job.step):
        names = [f"{job.replica} {job.ref}" for job in group]
        before = {"count": len(names), "jobs": names[:MAX_AUDITED_JOBS]}
        change = AuditChange(
            OPERATOR, "drop_dead_jobs", f"jobs/{step}", json.dumps(before), None, ""
        )
        audit.append(tx, change)
