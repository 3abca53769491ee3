"""Which functions of the catalog are called at each size, and which are not and why."""

import inspect
from collections.abc import Mapping
from types import ModuleType

from bench import scale_versions, scale_work
from bench.scale_keys import Call
from storage.catalog import (
    bundle_contents,
    bundle_versions,
    bundles,
    collections,
    deliveries,
    delivery_log,
    documents,
    endpoints,
    events,
    files,
    garbage_collection,
    ingest,
    integrity,
    jobs,
    journals,
    purges,
    replication,
    statistics,
    subscriptions,
    versions,
)

CALLS: Mapping[str, Call] = {
    **scale_versions.list_calls_of_deposits(),
    **scale_versions.list_calls_of_versions(),
    **scale_work.list_calls_of_work(),
    **scale_work.list_calls_of_reports(),
}
COMPLETE_MODULES: tuple[ModuleType, ...] = (
    *(bundle_contents, bundle_versions, bundles, collections, deliveries, delivery_log),
    *(documents, endpoints, events, files, garbage_collection, ingest, integrity, jobs),
    *(journals, purges, replication, statistics, subscriptions, versions),
)
"""Their tables grow with what is deposited: each function is called, or excused."""
_BY_KEY = "the same statements by key as the calls of its module"
_SMALL = "its table stays small: purges, replays, uploads, changes of subscriptions"
EXCUSED: Mapping[str, str] = {
    "subscriptions.list_live_ids": "reads all subscriptions, once after each change of one",
    "subscriptions.list_sealed_secrets": "reads all subscriptions, while the store's key changes",
    **dict.fromkeys(
        (
            *("collections.delete_links", "collections.delete_owned", "collections.delete_version"),
            *("collections.insert_links", "collections.insert_owned", "collections.reserve"),
            *("collections.list_containing", "collections.list_link_segments"),
            *("deliveries.insert_test", "delivery_log.resend_delivery"),
            *("delivery_log.retry_delivery", "delivery_log.retry_failed"),
            *("delivery_log.retry_postponed", "endpoints.delete_unreferenced"),
            *("endpoints.release", "endpoints.settle_turns", "files.build_lookup"),
            *("ingest.insert_all", "journals.adopt", "journals.begin", "journals.delete"),
            *("journals.insert_journal", "journals.lock", "journals.mark_past"),
            *("journals.promote", "journals.record", "journals.raise_sequence_floor"),
            *("statistics.find_last_id", "versions.insert_tombstone"),
        ),
        _BY_KEY,
    ),
    **dict.fromkeys(
        (
            *("events.advance_replay", "events.find_replay", "events.finish_replay"),
            *("events.insert_replay", "events.start_sequence", "ingest.delete_upload"),
            *("ingest.insert_upload", "ingest.touch_upload", "purges.finish", "purges.insert"),
            *("purges.read_progress", "purges.record_erasure", "purges.record_marker"),
            *("subscriptions.count_change", "subscriptions.delete"),
            *("subscriptions.expire_previous_secrets", "subscriptions.insert_subscription"),
            *("subscriptions.mark_deleted", "subscriptions.replace_sealed_secret"),
            "subscriptions.rotate_secret",
        ),
        _SMALL,
    ),
}


def find_uncalled() -> list[str]:
    """Return functions that take a transaction, and are neither called nor excused."""
    called = {name.partition(" ")[0] for name in CALLS}
    return [
        name
        for module in COMPLETE_MODULES
        for name in _list_functions(module)
        if name not in called and name not in EXCUSED
    ]


def _list_functions(module: ModuleType) -> list[str]:
    short = module.__name__.rpartition(".")[2]
    return [
        f"{short}.{name}"
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and "tx" in inspect.signature(function).parameters
    ]
