"""Calls for what is deposited: files, bundles, collections, their documents and their ends."""

from collections.abc import Mapping

from bench.scale_keys import EVER, NEW_UUID, PAGE, VERSION, Call, RowKeys, md5
from storage.catalog import (
    bundle_contents,
    bundle_versions,
    bundles,
    collections,
    documents,
    files,
    garbage_collection,
    purges,
    versions,
)
from storage.catalog.documents import IndexRecord
from storage.catalog.files import NewFileVersion
from storage.model import FQID, Checksums


def _new_bundle(k: RowKeys) -> bundles.NewBundleVersion:
    rows = [(f"f/{at}", (one.uuid, one.version), at < 3) for at, one in enumerate(k.some_files)]
    fqid = FQID(NEW_UUID, VERSION)
    return bundles.NewBundleVersion(fqid, "d", "aws", 1, k.owner, None, NEW_UUID, [rows])


def _new_file(k: RowKeys) -> NewFileVersion:
    sums = Checksums(md5("1"), md5("2") + md5("3"), "cccccccc", md5("4"))
    fqid = FQID(NEW_UUID, VERSION)
    return NewFileVersion(fqid, "d", "aws", 1, k.owner, "text/plain", 1, sums, md5("4"), NEW_UUID)


def list_calls_of_deposits() -> Mapping[str, Call]:
    """What a deposit asks and writes: files, bundles, their records and search documents."""
    return {
        "files.get": lambda tx, k: files.get(tx, k.file_id),
        "files.list_by_ids": lambda tx, k: files.list_by_ids(tx, [k.file_id]),
        "files.find": lambda tx, k: files.find(tx, k.file),
        "files.find_latest": lambda tx, k: files.find_latest(tx, k.file.uuid),
        "files.list_versions": lambda tx, k: files.list_versions(tx, k.file.uuid, limit=PAGE),
        "files.find_all": lambda tx, k: files.find_all(tx, k.some_files),
        "files.reserve": lambda tx, k: files.reserve(tx, _new_file(k)),
        "files.reserve_all": lambda tx, k: files.reserve_all(tx, [_new_file(k)]),
        "files.publish": lambda tx, k: files.publish(tx, [files.get(tx, k.file_id)], "gcp"),
        "files.filter_stored_blobs": lambda tx, k: files.filter_stored_blobs(
            tx, "aws", [files.get(tx, k.file_id)]
        ),
        "files.estimate_blob_count": lambda tx, k: files.estimate_blob_count(tx),
        "files.filter_stored_checksums": lambda tx, k: files.filter_stored_checksums(
            tx, "aws", [k.sha256]
        ),
        "files.look_up": lambda tx, k: files.look_up(tx, "aws", k.some_files),
        "files.locate": lambda tx, k: files.locate(tx, k.some_files),
        "files.filter_published_ids": lambda tx, k: files.filter_published_ids(
            tx, "aws", [k.file_id]
        ),
        "files.list_blobs": lambda tx, k: files.list_blobs(
            tx, "aws", (k.sha256, 0), before_us=EVER, limit=PAGE
        ),
        "bundles.list_segments": lambda tx, k: bundles.list_segments(tx, k.number),
        "bundles.read_segment_rows": lambda tx, k: bundles.read_segment_rows(tx, [k.number]),
        "bundles.get": lambda tx, k: bundles.get(tx, k.number),
        "bundles.find": lambda tx, k: bundles.find(tx, k.bundle),
        "bundles.find_all": lambda tx, k: bundles.find_all(tx, [k.bundle]),
        "bundles.find_with_tombstone": lambda tx, k: bundles.find_with_tombstone(tx, k.bundle),
        "bundles.reserve": lambda tx, k: bundles.reserve(tx, _new_bundle(k)),
        "bundles.insert": lambda tx, k: bundles.insert(tx, _new_bundle(k), seen_in="aws"),
        "bundles.publish": lambda tx, k: bundles.publish(
            tx, bundles.insert(tx, _new_bundle(k), seen_in="aws")
        ),
        "bundles.publish_in_replica": lambda tx, k: bundles.publish_in_replica(
            tx, bundles.get(tx, k.number), "gcp", change=1, is_buried=False
        ),
        "bundles.list_entries": lambda tx, k: bundles.list_entries(
            tx, k.number, start=0, limit=PAGE, span=1024
        ),
        "bundles.list_file_ids": lambda tx, k: bundles.list_file_ids(tx, k.number),
        "bundles.list_containing": lambda tx, k: bundles.list_containing(
            tx, "aws", k.file.uuid, k.file.version, after=None, limit=PAGE
        ),
        "bundles.sum_bytes": lambda tx, k: bundles.sum_bytes(tx, k.number),
        "bundle_contents.list_folder": lambda tx, k: bundle_contents.list_folder(
            tx, k.number, "", limit=PAGE
        ),
        "bundle_contents.list_metadata_entries": (
            lambda tx, k: bundle_contents.list_metadata_entries(tx, k.number, limit=PAGE)
        ),
        "bundle_contents.find_record_verification": (
            lambda tx, k: bundle_contents.find_record_verification(tx, k.number)
        ),
        "bundle_contents.summarize_verification": (
            lambda tx, k: bundle_contents.summarize_verification(tx, k.number)
        ),
        "bundle_contents.find_blob_verification": (
            lambda tx, k: bundle_contents.find_blob_verification(tx, k.file_id)
        ),
        "bundle_versions.list_versions": lambda tx, k: bundle_versions.list_versions(
            tx, k.bundle.uuid, limit=PAGE
        ),
        "bundle_versions.sum_bytes": lambda tx, k: bundle_versions.sum_bytes(
            tx, [k.number], max_entries=PAGE
        ),
        "bundle_versions.list_unshared_lines": lambda tx, k: bundle_versions.list_unshared_lines(
            tx, k.number, k.number % k.bundles + 1
        ),
        "documents.find_states": lambda tx, k: documents.find_states(tx, "aws", [k.number]),
        "documents.record_states": lambda tx, k: documents.record_states(
            tx, "aws", [IndexRecord(k.number, "indexed", "s", 2)]
        ),
        "documents.record_unindexed": lambda tx, k: documents.record_unindexed(
            tx, "aws", [k.number], change=2, reason="r"
        ),
        "documents.list_indexed_after": lambda tx, k: documents.list_indexed_after(
            tx, "aws", k.bundle, before_us=EVER, limit=PAGE
        ),
        "documents.list_shapes": lambda tx, k: documents.list_shapes(tx, "aws", "d"),
        "documents.save_shape": lambda tx, k: documents.save_shape(tx, "aws", "d", 1, {}),
        "documents.count_unindexed": lambda tx, k: documents.count_unindexed(tx),
        "documents.list_unindexed": lambda tx, k: documents.list_unindexed(tx, limit=PAGE),
    }


def list_calls_of_versions() -> Mapping[str, Call]:
    """What is common to files, bundles and collections, and the ends of all three."""
    return {
        "versions.lock_heads": lambda tx, k: versions.lock_heads(tx, "bundle", [k.bundle.uuid]),
        "versions.count_change": lambda tx, k: versions.count_change(tx, "bundle", k.bundle.uuid),
        "versions.count_change_by_clock": lambda tx, k: versions.count_change_by_clock(
            tx, "bundle", k.bundle.uuid
        ),
        "versions.read_changes": lambda tx, k: versions.read_changes(tx, "bundle", k.bundle.uuid),
        "versions.read_all_changes": lambda tx, k: versions.read_all_changes(
            tx, "file", [one.uuid for one in k.some_files]
        ),
        "versions.mark_published": lambda tx, k: versions.mark_published(tx, "bundle", k.bundle),
        "versions.mark_all_published": lambda tx, k: versions.mark_all_published(
            tx, "file", k.some_files
        ),
        "versions.was_published": lambda tx, k: versions.was_published(tx, "bundle", k.bundle.uuid),
        "versions.find_published_id": lambda tx, k: versions.find_published_id(
            tx, "bundle", k.bundle
        ),
        "versions.list_published_after": lambda tx, k: versions.list_published_after(
            tx, "bundle", k.bundle, before_us=EVER, limit=PAGE
        ),
        "versions.list_stale_reservations": lambda tx, k: versions.list_stale_reservations(
            tx, "bundle", EVER, limit=PAGE
        ),
        "versions.publish": lambda tx, k: versions.publish(
            tx, "bundle", "gcp", FQID(NEW_UUID, "v"), 1
        ),
        "versions.unpublish": lambda tx, k: versions.unpublish(tx, "bundle", k.bundle.uuid, None),
        "versions.find_latest": lambda tx, k: versions.find_latest(
            tx, "bundle", "aws", k.bundle.uuid
        ),
        "versions.resolve_version": lambda tx, k: versions.resolve_version(
            tx, "bundle", "aws", *k.bundle
        ),
        "versions.find_published": lambda tx, k: versions.find_published(
            tx, "bundle", "aws", k.bundle
        ),
        "versions.filter_published": lambda tx, k: versions.filter_published(
            tx, "file", "aws", k.some_files
        ),
        "versions.list_published": lambda tx, k: versions.list_published(
            tx, "bundle", "aws", prefix="", after=k.bundle, limit=PAGE
        ),
        "versions.list_published (prefix)": lambda tx, k: versions.list_published(
            tx, "bundle", "aws", prefix=k.bundle.uuid[:2], after=None, limit=PAGE
        ),
        "versions.record_stored": lambda tx, k: versions.record_stored(
            tx, "bundle", k.number, "gcp"
        ),
        "versions.delete_stored": lambda tx, k: versions.delete_stored(
            tx, "bundle", k.number, "aws"
        ),
        "versions.count_diverged": lambda tx, k: versions.count_diverged(tx),
        "versions.find_tombstone": lambda tx, k: versions.find_tombstone(tx, "bundle", *k.bundle),
        "versions.find_covering_tombstone": lambda tx, k: versions.find_covering_tombstone(
            tx, "bundle", *k.bundle
        ),
        "collections.get": lambda tx, k: collections.get(tx, k.few),
        "collections.find": lambda tx, k: collections.find(tx, k.collection),
        "collections.find_owner": lambda tx, k: collections.find_owner(tx, k.collection.uuid),
        "collections.list_owned": lambda tx, k: collections.list_owned(
            tx, k.owner, after=None, limit=PAGE
        ),
        "collections.list_latest": lambda tx, k: collections.list_latest(
            tx, k.owner, after="", limit=10
        ),
        "collections.list_versions": lambda tx, k: collections.list_versions(tx, k.collection.uuid),
        "collections.has_later_version": lambda tx, k: collections.has_later_version(
            tx, k.collection
        ),
        "collections.filter_visible_targets": lambda tx, k: collections.filter_visible_targets(
            tx, ["aws"], k.owner, [("file", one) for one in k.some_files]
        ),
        "purges.find": lambda tx, k: purges.find(tx, "bundle", *k.bundle),
        "purges.list_unfinished": lambda tx, k: purges.list_unfinished(tx, limit=PAGE),
        "purges.filter_purged": lambda tx, k: purges.filter_purged(tx, "file", k.some_files),
        "purges.has_recent": lambda tx, k: purges.has_recent(tx),
        "purges.lock_unreferenced": lambda tx, k: purges.lock_unreferenced(tx, [k.file_id]),
        "purges.filter_named_only_by": lambda tx, k: purges.filter_named_only_by(
            tx, [k.file_id], [k.number]
        ),
        "purges.is_referenced": lambda tx, k: purges.is_referenced(tx, k.file_id),
        "purges.delete_bundle": lambda tx, k: purges.delete_bundle(tx, k.number, [k.event]),
        "purges.delete_file": lambda tx, k: purges.delete_file(tx, k.file_id, k.file),
        "purges.list_versions": lambda tx, k: purges.list_versions(tx, k.bundle.uuid),
        "purges.list_checkouts": lambda tx, k: purges.list_checkouts(tx, k.number, "aws"),
        "garbage_collection.filter_referenced": (
            lambda tx, k: garbage_collection.filter_referenced(tx, [k.sha256])
        ),
        "garbage_collection.condemn": lambda tx, k: garbage_collection.condemn(
            tx, "aws", ["0" * 64]
        ),
        "garbage_collection.filter_condemned": lambda tx, k: garbage_collection.filter_condemned(
            tx, "aws", [k.sha256]
        ),
        "garbage_collection.revive": lambda tx, k: garbage_collection.revive(tx, "aws", k.sha256),
        "garbage_collection.list_deletable": lambda tx, k: garbage_collection.list_deletable(
            tx, "aws", EVER, limit=PAGE
        ),
        "garbage_collection.lock_for_deletion": (
            lambda tx, k: garbage_collection.lock_for_deletion(tx, "aws", k.sha256, EVER)
        ),
        "garbage_collection.record_deletion": lambda tx, k: garbage_collection.record_deletion(
            tx, "gcp", "0" * 64
        ),
    }
