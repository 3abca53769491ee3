"""Calls of workers and reports: events, jobs, deliveries, integrity, statistics and permissions."""

from collections.abc import Mapping

from bench.scale_keys import EVER, NEW_UUID, PAGE, STEPS, Call, RowKeys
from bench.scale_rows import BORN_US
from storage import keys
from storage.catalog import (
    Tx,
    accounts,
    areas,
    deliveries,
    delivery_log,
    endpoints,
    events,
    ingest,
    integrity,
    jobs,
    journals,
    replication,
    statistics,
    subscriptions,
)
from storage.catalog.deliveries import AttemptResult, NewDelivery
from storage.catalog.delivery_log import DeliveryFilter
from storage.model import BundleEvent, Job, JobClaim


def _event(k: RowKeys) -> BundleEvent:
    return BundleEvent(NEW_UUID, "aws", "CREATE", k.bundle, k.number, BORN_US)


def _attempt(k: RowKeys) -> AttemptResult:
    return AttemptResult(
        k.bundles + 1 + k.number % 10, BORN_US, 0.1, 200, None, None, "delivered", BORN_US, None
    )


def list_calls_of_work() -> Mapping[str, Call]:
    """Events, jobs, subscriptions, deliveries and ingest tasks."""
    return {
        "events.append": lambda tx, k: events.append(tx, "CREATE", "gcp", k.bundle, k.number),
        "events.append_if_new": lambda tx, k: events.append_if_new(
            tx, "DELETE", "aws", k.bundle, k.number
        ),
        "events.find": lambda tx, k: events.find(tx, k.event),
        "events.find_all": lambda tx, k: events.find_all(tx, [k.event]),
        "events.assign_sequence": lambda tx, k: (
            events.append(tx, "DELETE", "aws", k.bundle, k.number),
            events.assign_sequence(tx),
        ),
        "events.has_unsequenced": lambda tx, k: events.has_unsequenced(tx),
        "events.list_range": lambda tx, k: events.list_range(tx, "aws", k.number, limit=PAGE),
        "events.find_latest_sequence": lambda tx, k: events.find_latest_sequence(tx, "aws"),
        "events.find_sequence_at": lambda tx, k: events.find_sequence_at(
            tx, "aws", BORN_US + k.number * 1000
        ),
        "events.filter_purged": lambda tx, k: events.filter_purged(tx, k.some_files),
        "events.filter_existing": lambda tx, k: events.filter_existing(tx, [k.event]),
        "events.read_sequence_name": lambda tx, k: events.read_sequence_name(tx),
        "events.find_sequence_time": lambda tx, k: events.find_sequence_time(tx, "aws", k.number),
        "events.list_sequence_numbers": lambda tx, k: events.list_sequence_numbers(
            tx, "aws", k.bundle
        ),
        "events.list_latest_created": lambda tx, k: events.list_latest_created(tx, "aws", limit=10),
        "events.list_latest_created (bundle)": lambda tx, k: events.list_latest_created(
            tx, "aws", limit=10, uuid=k.bundle.uuid
        ),
        "events.list_replays": lambda tx, k: events.list_replays(tx, k.few, limit=PAGE),
        "events.expire_replays": lambda tx, k: events.expire_replays(tx, EVER, limit=PAGE),
        "journals.find_last_sequence": lambda tx, k: journals.find_last_sequence(tx, "aws"),
        "journals.find_begun": lambda tx, k: journals.find_begun(tx, "aws", k.number),
        "journals.find": lambda tx, k: journals.find(tx, keys.JournalKey("aws", 1, 1000)),
        "journals.list_current": lambda tx, k: journals.list_current(
            tx, "aws", k.number, k.number + PAGE
        ),
        "journals.list_not_current": lambda tx, k: journals.list_not_current(tx, "aws", k.number),
        "journals.list_range": lambda tx, k: journals.list_range(
            tx, "aws", k.number, k.number + PAGE, limit=PAGE
        ),
        "journals.list_oldest": lambda tx, k: journals.list_oldest(tx, "aws", 1, limit=PAGE),
        "journals.list_aged": lambda tx, k: journals.list_aged(tx, "aws", 1, limit=PAGE),
        "journals.record_positions": lambda tx, k: journals.record_positions(
            tx, "aws", [journals.LinePosition(k.number, 0, 1)]
        ),
        "journals.is_known": lambda tx, k: journals.is_known(
            tx, "aws", keys.JournalKey("aws", 1, 1000)
        ),
        "jobs.insert": lambda tx, k: jobs.insert(tx, [Job("sync", "gcp", NEW_UUID)]),
        "jobs.insert_each": lambda tx, k: jobs.insert_each(tx, [(Job("sync", "gcp", "1"), "")]),
        "jobs.insert_new": lambda tx, k: jobs.insert_new(tx, [Job("sync", "gcp", NEW_UUID)]),
        "jobs.claim": lambda tx, k: jobs.claim(tx, k.job, token="t", lease_s=9, max_claims=5),
        "jobs.claim_more": lambda tx, k: jobs.claim_more(tx, k.job, token="t", lease_s=9, limit=16),
        "jobs.is_any_due": lambda tx, k: jobs.is_any_due(tx, k.job),
        "jobs.renew": lambda tx, k: jobs.renew(tx, _claim(k), lease_s=9),
        "jobs.finish": _finish,
        "jobs.finish_all": _finish_all,
        "jobs.postpone": lambda tx, k: jobs.postpone(tx, _claim(k), delay_s=1, reason="r"),
        "jobs.wake": lambda tx, k: jobs.wake(tx, "index", "aws", k.job.ref),
        "jobs.mark_dead": lambda tx, k: jobs.mark_dead(tx, _claim(k), reason="r"),
        "jobs.revive": lambda tx, k: jobs.revive(tx, k.job),
        "jobs.take_due": lambda tx, k: jobs.take_due(tx, "index", limit=256, resend=False),
        "jobs.find_due_steps": lambda tx, k: jobs.find_due_steps(tx, STEPS),
        "jobs.is_claimed": lambda tx, k: jobs.is_claimed(tx, k.job),
        "jobs.count_open": lambda tx, k: jobs.count_open(tx),
        "jobs.list_open": lambda tx, k: jobs.list_open(tx),
        "jobs.count_by_state": lambda tx, k: jobs.count_by_state(tx),
        "jobs.count_open_until": lambda tx, k: jobs.count_open_until(tx, "index", "aws", EVER),
        "jobs.find_max_overdue_us": lambda tx, k: jobs.find_max_overdue_us(tx),
        "jobs.list_dead": lambda tx, k: jobs.list_dead(tx),
        "jobs.count_dead": lambda tx, k: jobs.count_dead(tx),
        "jobs.count_dead_by_step": lambda tx, k: jobs.count_dead_by_step(tx, jobs.ANY_DEAD_JOB),
        "jobs.delete_dead": lambda tx, k: jobs.delete_dead(tx, k.job),
        "jobs.delete": lambda tx, k: jobs.delete(tx, k.job),
        "jobs.exists": lambda tx, k: jobs.exists(tx, k.job),
        "replication.list_lags": lambda tx, k: replication.list_lags(
            tx, "bundle", "aws", window_us=EVER // 2, limit=PAGE
        ),
        "replication.list_lags (file)": lambda tx, k: replication.list_lags(
            tx, "file", "gcp", window_us=EVER // 2, limit=PAGE
        ),
        "replication.list_backlog": lambda tx, k: replication.list_backlog(tx, STEPS),
        "replication.list_oldest": lambda tx, k: replication.list_oldest(tx, STEPS),
        "replication.list_failures": lambda tx, k: replication.list_failures(tx, STEPS, limit=PAGE),
        "replication.list_diverged": lambda tx, k: replication.list_diverged(tx, limit=PAGE),
        "replication.count_problems": lambda tx, k: replication.count_problems(tx),
        "replication.find_stored_records": lambda tx, k: replication.find_stored_records(
            tx, "bundle", k.number
        ),
        "replication.find_waiting": lambda tx, k: replication.find_waiting(tx, STEPS, k.job.ref),
        "deliveries.insert_matches": lambda tx, k: deliveries.insert_matches(
            tx, [NewDelivery(NEW_UUID, k.few, "{}")], _event(k)
        ),
        "deliveries.list_due": lambda tx, k: deliveries.list_due(tx, 1, limit=32),
        "deliveries.load_request": lambda tx, k: deliveries.load_request(
            tx, k.subscriber, k.delivery
        ),
        "deliveries.record_attempts": lambda tx, k: deliveries.record_attempts(tx, [_attempt(k)]),
        "deliveries.lock": lambda tx, k: deliveries.lock(tx, [_attempt(k).delivery_id]),
        "deliveries.pause": lambda tx, k: deliveries.pause(tx, [_attempt(k).delivery_id]),
        "deliveries.cancel_pending": lambda tx, k: deliveries.cancel_pending(tx, k.few, k.few),
        "deliveries.release_paused": lambda tx, k: deliveries.release_paused(tx, k.few),
        "deliveries.cancel_paused": lambda tx, k: deliveries.cancel_paused(tx, k.few),
        "deliveries.list_releasable": lambda tx, k: deliveries.list_releasable(tx, limit=PAGE),
        "deliveries.list_paused_before": lambda tx, k: deliveries.list_paused_before(
            tx, EVER, limit=PAGE
        ),
        "deliveries.cancel_paused_before": lambda tx, k: deliveries.cancel_paused_before(
            tx, k.few, EVER
        ),
        "deliveries.count_pending": lambda tx, k: deliveries.count_pending(tx),
        "delivery_log.list_deliveries": lambda tx, k: delivery_log.list_deliveries(
            tx, k.few, limit=10
        ),
        "delivery_log.list_deliveries (failed)": lambda tx, k: delivery_log.list_deliveries(
            tx, k.few, only=DeliveryFilter(state="failed"), limit=10
        ),
        "delivery_log.find_delivery": lambda tx, k: delivery_log.find_delivery(
            tx, k.subscriber, k.delivery
        ),
        "delivery_log.expire_deliveries": lambda tx, k: delivery_log.expire_deliveries(
            tx, EVER, limit=PAGE
        ),
        "delivery_log.delete_deliveries": lambda tx, k: delivery_log.delete_deliveries(
            tx, k.few, limit=10
        ),
        "endpoints.list_unreferenced": lambda tx, k: endpoints.list_unreferenced(tx, limit=PAGE),
        "endpoints.list_waiting": lambda tx, k: endpoints.list_waiting(tx, limit=PAGE),
        "endpoints.lock": lambda tx, k: endpoints.lock(tx, [k.few]),
        "endpoints.claim": lambda tx, k: endpoints.claim(
            tx, {k.few: False}, token="t", lease_s=9, patience=1
        ),
        "endpoints.filter_leased": lambda tx, k: endpoints.filter_leased(tx, [k.few]),
        "endpoints.is_leased": lambda tx, k: endpoints.is_leased(tx, k.few),
        "endpoints.renew": lambda tx, k: endpoints.renew(tx, [k.few], token="t", lease_s=9),
        "endpoints.wake": lambda tx, k: endpoints.wake(tx, k.few),
        "endpoints.list_active": lambda tx, k: endpoints.list_active(tx, limit=PAGE),
        "subscriptions.count_by_owner": lambda tx, k: subscriptions.count_by_owner(tx, k.owner),
        "subscriptions.list_by_owner": lambda tx, k: subscriptions.list_by_owner(
            tx, k.owner, "aws", "jmespath"
        ),
        "subscriptions.list_statuses": lambda tx, k: subscriptions.list_statuses(tx, k.owner),
        "subscriptions.find": lambda tx, k: subscriptions.find(tx, k.subscription),
        "subscriptions.read_changes": lambda tx, k: subscriptions.read_changes(
            tx, "aws", "jmespath"
        ),
        "subscriptions.has_live": lambda tx, k: subscriptions.has_live(tx, "aws", "jmespath"),
        "subscriptions.find_inactive": lambda tx, k: subscriptions.find_inactive(tx, [k.few]),
        "subscriptions.find_all": lambda tx, k: subscriptions.find_all(tx, [k.few]),
        "subscriptions.list_deleted_before": lambda tx, k: subscriptions.list_deleted_before(
            tx, EVER, limit=PAGE
        ),
        "subscriptions.pause": lambda tx, k: subscriptions.pause(tx, k.few),
        "subscriptions.resume": lambda tx, k: subscriptions.resume(tx, k.few),
        "subscriptions.count_failures": lambda tx, k: subscriptions.count_failures(
            tx, [_attempt(k)], disable_after_s=1.0
        ),
        "ingest.find": lambda tx, k: ingest.find(tx, k.task),
        "ingest.find_all": lambda tx, k: ingest.find_all(tx, [k.task]),
        "ingest.find_current": lambda tx, k: ingest.find_current(tx, k.file),
        "ingest.find_latest_open": lambda tx, k: ingest.find_latest_open(tx, k.file.uuid),
        "ingest.list_open": lambda tx, k: ingest.list_open(tx, k.some_files),
        "ingest.list_current": lambda tx, k: ingest.list_current(
            tx, k.file.version, [one.uuid for one in k.some_files]
        ),
        "ingest.list_unfinished": lambda tx, k: ingest.list_unfinished(tx, k.owner, limit=PAGE),
        "ingest.record_progress": lambda tx, k: ingest.record_progress(tx, k.task, 1),
        "ingest.finish": lambda tx, k: ingest.finish(tx, k.task, state="SUCCEEDED"),
        "ingest.finish_all": lambda tx, k: ingest.finish_all(tx, [k.task]),
        "ingest.find_latest_upload": lambda tx, k: ingest.find_latest_upload(tx, "aws", "k"),
        "ingest.list_stale_uploads": lambda tx, k: ingest.list_stale_uploads(tx, EVER),
    }


def _claim(k: RowKeys) -> JobClaim:
    return JobClaim(k.job, "t", 1, "")


def _finish(tx: Tx, k: RowKeys) -> None:
    jobs.claim(tx, k.job, token="t", lease_s=9, max_claims=5)
    jobs.finish(tx, _claim(k))


def _finish_all(tx: Tx, k: RowKeys) -> None:
    jobs.claim(tx, k.job, token="t", lease_s=9, max_claims=5)
    jobs.finish_all(tx, [_claim(k)])


def list_calls_of_reports() -> Mapping[str, Call]:
    """Integrity, statistics, usage, areas and permissions."""
    return {
        "integrity.find_verified_times": lambda tx, k: integrity.find_verified_times(
            tx, "aws", [k.record]
        ),
        "integrity.list_due": lambda tx, k: integrity.list_due(tx, "aws", EVER, limit=PAGE),
        "integrity.record_verified": lambda tx, k: integrity.record_verified(
            tx, "aws", [keys.blob_key(k.sha256), k.record]
        ),
        "integrity.filter_changed": lambda tx, k: integrity.filter_changed(
            tx, "aws", {keys.blob_key(k.sha256): EVER, k.record: EVER}
        ),
        "integrity.record_damage": lambda tx, k: integrity.record_damage(tx, "aws", k.record, "r"),
        "integrity.list_damaged": lambda tx, k: integrity.list_damaged(tx, limit=PAGE),
        "integrity.count_damaged": lambda tx, k: integrity.count_damaged(tx),
        "integrity.filter_damaged": lambda tx, k: integrity.filter_damaged(tx, "aws", [k.record]),
        "integrity.forget_object": lambda tx, k: integrity.forget_object(tx, "aws", k.record),
        "integrity.count_objects": lambda tx, k: integrity.count_objects(
            tx, "aws", since_us=BORN_US
        ),
        "integrity.add_totals": lambda tx, k: integrity.add_totals(tx, "aws", objects=1),
        "integrity.compute_allowance": lambda tx, k: integrity.compute_allowance(tx, 10**9),
        "integrity.list_expected_blobs": lambda tx, k: integrity.list_expected_blobs(
            tx, "aws", k.sha256, limit=PAGE
        ),
        "integrity.is_blob_expected": lambda tx, k: integrity.is_blob_expected(tx, "aws", k.sha256),
        "integrity.find_blob_size": lambda tx, k: integrity.find_blob_size(tx, k.sha256),
        "integrity.list_expected": lambda tx, k: integrity.list_expected(
            tx, "record", "bundle", "aws", k.bundle, limit=PAGE
        ),
        "integrity.is_expected": lambda tx, k: integrity.is_expected(
            tx, "record", "bundle", "aws", k.bundle
        ),
        "statistics.count_store": lambda tx, k: statistics.count_store(tx),
        "statistics.list_growth": lambda tx, k: statistics.list_growth(tx, "aws", days=7),
        "statistics.list_latest_bundles": lambda tx, k: statistics.list_latest_bundles(
            tx, "aws", limit=10
        ),
        "statistics.list_published_bundles": lambda tx, k: statistics.list_published_bundles(
            tx, "aws", before=None, limit=50
        ),
        "statistics.list_bundles_of_author": lambda tx, k: statistics.list_bundles_of_author(
            tx, k.owner, limit=10
        ),
        "statistics.find_last_version_id": lambda tx, k: statistics.find_last_version_id(
            tx, "file"
        ),
        "statistics.count_versions": lambda tx, k: statistics.count_versions(
            tx, "file", k.file_id, k.file_id + 10 * PAGE, lacking_in="gcp"
        ),
        "statistics.list_areas": lambda tx, k: statistics.list_areas(
            tx, after=k.few_uuid, limit=10
        ),
        "statistics.count_area_files": lambda tx, k: statistics.count_area_files(tx, [k.few_uuid]),
        "statistics.count_area_uploads": lambda tx, k: statistics.count_area_uploads(tx),
        "statistics.count_open_tasks": lambda tx, k: statistics.count_open_tasks(tx),
        "areas.find": lambda tx, k: areas.find(tx, k.few_uuid),
        "areas.list_by_owner": lambda tx, k: areas.list_by_owner(tx, k.owner, limit=10),
        "areas.find_file": lambda tx, k: areas.find_file(tx, k.few_uuid, "f1"),
        "areas.count_files": lambda tx, k: areas.count_files(tx, k.few_uuid, "status"),
        "areas.summarize_files": lambda tx, k: areas.summarize_files(tx, k.few_uuid),
        "areas.list_files_between": lambda tx, k: areas.list_files_between(
            tx, k.few_uuid, "f1", "f5"
        ),
        "areas.count_uploads": lambda tx, k: areas.count_uploads(tx),
        "areas.list_stale_uploads": lambda tx, k: areas.list_stale_uploads(tx, EVER),
        "accounts.list_effective_accounts": lambda tx, k: accounts.list_effective_accounts(
            tx, k.owner, []
        ),
    }
