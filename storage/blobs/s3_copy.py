"""Copies inside S3: at once what is one part of the tag's rule, else in parts side by side."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from storage.blobs.s3_client import Bucket, Reply, is_upload_gone
from storage.blobs.s3_objects import exists, explain_mismatch, make_info
from storage.blobs.s3_upload import S3Upload
from storage.errors import AlreadyExists, NotFound, SourceChanged, StoreError, Unavailable
from storage.protocols import DEFAULT_TYPE, BlobInfo, Progress

AT_ONCE: Final = 5 * 1024**3
"""S3 copies no more than this in one call."""
_AMAZON: Final = ".amazonaws."
_SIDE_BY_SIDE: Final = 8
"""Parts of one object that are copied at the same time."""


@dataclass(frozen=True, slots=True)
class Original:
    """What is copied: an object, and the pin that it has to fit if there is one."""

    bucket: Bucket
    key: str
    pin: str | None

    def named(self) -> dict[str, Any]:
        """Arguments of a copying call, which holds it to the pin."""
        where = {"Bucket": self.bucket.name, "Key": self.key}
        if self.pin is None:
            return {"CopySource": where}
        if self.pin.startswith("v:"):
            return {"CopySource": {**where, "VersionId": self.pin[2:]}}
        return {"CopySource": where, "CopySourceIfMatch": self.pin[2:]}

    def mismatch(self) -> StoreError:
        """The error for a pin that does not match."""
        return explain_mismatch(self.bucket, self.key)


@dataclass(slots=True)
class Habit:
    """What first copies told of a server.

    `heeds`: whether its copies heed If-None-Match. That is S3's youngest condition, and servers
    that do not know it replace objects silently. `digests`: whether ETags in a bucket are MD5s,
    which they are not under some encryptions.
    """

    heeds: bool | None = None
    digests: dict[str, bool] = field(default_factory=dict)


def copy_whole(
    original: Original,
    target: Bucket,
    key: str,
    *,
    size: int,
    habit: Habit,
    progress: Progress | None,
) -> BlobInfo:
    """Copy in one call, after a HEAD where the server does not heed If-None-Match.

    While that is unknown, the first copy is made twice onto its own target.
    """
    if progress:
        progress("", 0)
    if not habit.heeds and exists(target, key):
        raise AlreadyExists(f"{key} exists already")
    info = _copy_small(original, target, key, habit)
    if info is None:
        reply = _copied(original, target, key)
        if habit.heeds is None:
            try:
                reply, habit.heeds = _copied(original, target, key), False
            except AlreadyExists:
                habit.heeds = True
        habit.digests[target.name] = not _is_encrypted_by_key(reply)
        info = make_info(key, size, {**reply, **reply["CopyObjectResult"]})
    if progress:
        progress("", info.size)
    return info


def _copy_small(original: Original, target: Bucket, key: str, habit: Habit) -> BlobInfo | None:
    """Copy by obstore, which tells the ETag alone, so only where that is a digest of the bytes."""
    if target.small is None or original.pin is not None or not habit.digests.get(target.name):
        return None
    copied = target.small().copy(original.bucket.name, original.key, target.name, key)
    return None if copied is None else make_info(key, copied[0], copied[1])


def _is_encrypted_by_key(reply: Reply) -> bool:
    """Whether ETags are no digests: objects have a key of KMS, or of a customer."""
    return "kms" in str(reply.get("ServerSideEncryption")) or "SSECustomerAlgorithm" in reply


def _copied(original: Original, target: Bucket, key: str) -> Reply:
    try:
        return target.call(
            "copy_object", key, IfNoneMatch="*", ChecksumAlgorithm="CRC32C", **original.named()
        )
    except AlreadyExists as error:
        # The same answer says that the source's condition failed: what lies there decides.
        raise (error if exists(target, key) else original.mismatch()) from error
    except NotFound as error:
        raise (error if original.pin is None else original.mismatch()) from error


def copy_parts(
    original: Original,
    target: Bucket,
    found: BlobInfo,
    *,
    key: str,
    part_size: int,
    resume: str | None,
    progress: Progress | None,
) -> BlobInfo:
    """Every part that the upload does not have yet; it stays behind when `progress` raises."""
    upload = _taken_up(target, found, key, part_size=part_size, token=resume)
    kept = upload.parts()
    spans = _spans(found.size, part_size)
    missing = {n: span for n, span in spans.items() if kept.get(n) != span[1]}
    done = sum(length for n, (_, length) in spans.items() if n not in missing)
    if progress:
        progress(upload.token, done)
    try:
        _copy_missing(upload, original, missing, done=done, progress=progress)
        return upload.complete()
    except (SourceChanged, NotFound) as error:
        upload.abort()
        if is_upload_gone(error):
            raise Unavailable(f"the unfinished copy of {key} was swept away") from error
        raise original.mismatch() from error


def _spans(size: int, step: int) -> dict[int, tuple[int, int]]:
    """Start and length of each part, by number."""
    starts = range(0, size, step)
    return {n: (start, min(step, size - start)) for n, start in enumerate(starts, start=1)}


def _taken_up(
    target: Bucket, found: BlobInfo, key: str, *, part_size: int, token: str | None
) -> S3Upload:
    if token:
        with suppress(NotFound):
            return S3Upload.resume(target, key, token, part_size)
    return S3Upload.begin(
        target,
        key,
        part_size=part_size,
        content_type=found.content_type or DEFAULT_TYPE,
        metadata=found.metadata,
        # Others' servers have been seen to take the whole source's CRC-32C for each part's: of
        # their copies the entity tag tells.
        summed=_AMAZON in str(target.client().meta.endpoint_url),
    )


def _copy_missing(
    upload: S3Upload,
    original: Original,
    missing: Mapping[int, tuple[int, int]],
    *,
    done: int,
    progress: Progress | None,
) -> None:
    """A few at a time; the first failure stops those that have not begun."""
    named = original.named()
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        moving: dict[Future[None], int] = {
            pool.submit(upload.copy_part, number, named, start, length): length
            for number, (start, length) in missing.items()
        }
        try:
            for future in as_completed(moving):
                future.result()
                done += moving[future]
                if progress:
                    progress(upload.token, done)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
