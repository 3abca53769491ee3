"""Removing from S3: objects with all their versions, and uploads that nobody finished."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from storage.blobs.s3_reading import Bucket, Reply
from storage.errors import NotFound


def delete(bucket: Bucket, key: str) -> None:
    """Remove what lies there: one call, or a few where a marker shows that versions are kept."""
    with suppress(NotFound):
        reply = bucket.ask("delete_object", key)
        if reply.get("DeleteMarker"):
            _forget(bucket, key, reply["VersionId"])


def delete_pinned(bucket: Bucket, key: str, pin: str) -> None:
    """Remove these bytes, which were just seen to lie there; SourceChanged if they do no longer."""
    if pin.startswith("v:"):
        _forget(bucket, key, pin[2:])
        return
    with suppress(NotFound):
        bucket.ask("delete_object", key, IfMatch=pin[2:])


def _forget(bucket: Bucket, key: str, newest: str) -> None:
    """Remove one version and all that are older, it last: nothing old may come to light again.

    A version that is the latest in a listing is newer than all others in it; of one that no longer
    is, only what is older by the clock is surely so.
    """
    entries = {entry["VersionId"]: entry for entry in _versions(bucket, key)}
    top = entries.pop(newest, None)
    if top is None:
        return
    for version, entry in entries.items():
        if top["IsLatest"] or entry["LastModified"] < top["LastModified"]:
            _remove(bucket, key, version)
    _remove(bucket, key, newest)


def _remove(bucket: Bucket, key: str, version: str) -> None:
    with suppress(NotFound):
        bucket.ask("delete_object", key, VersionId=version)


def _versions(bucket: Bucket, key: str) -> Iterator[Reply]:
    """All versions and delete markers of one key, which comes first among those it begins."""
    wanted: dict[str, Any] = {"Prefix": key}
    while True:
        page = bucket.ask("list_object_versions", **wanted)
        found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        yield from (entry for entry in found if entry["Key"] == key)
        if not page.get("IsTruncated") or page["NextKeyMarker"] != key:
            return
        wanted["KeyMarker"] = page["NextKeyMarker"]
        wanted["VersionIdMarker"] = page["NextVersionIdMarker"]


def sweep(bucket: Bucket, *, before: float) -> int:
    """Abort uploads that were begun, and had their last part, before a time; returns how many."""
    count = 0
    for upload in list(_uploads(bucket)):
        named = {"UploadId": upload["UploadId"]}
        with suppress(NotFound):
            if upload["Initiated"].timestamp() < before and not _touched(bucket, upload, before):
                bucket.ask("abort_multipart_upload", upload["Key"], **named)
                count += 1
    return count


def _touched(bucket: Bucket, upload: Reply, since: float) -> bool:
    """True when a part came later: a large upload may take days."""
    marker = 0
    while True:
        page = bucket.ask(
            "list_parts", upload["Key"], UploadId=upload["UploadId"], PartNumberMarker=marker
        )
        if any(part["LastModified"].timestamp() >= since for part in page.get("Parts", ())):
            return True
        if not page.get("IsTruncated"):
            return False
        marker = page["NextPartNumberMarker"]


def _uploads(bucket: Bucket) -> Iterator[Reply]:
    wanted: dict[str, Any] = {}
    while True:
        page = bucket.ask("list_multipart_uploads", **wanted)
        yield from page.get("Uploads", ())
        if not page.get("IsTruncated"):
            return
        wanted["KeyMarker"] = page["NextKeyMarker"]
        wanted["UploadIdMarker"] = page["NextUploadIdMarker"]
