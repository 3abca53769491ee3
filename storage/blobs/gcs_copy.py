"""Copying inside GCS: a rewrite does any size, called again and again while it is not done."""

from dataclasses import dataclass
from typing import Final

from storage.blobs.gcs_asking import FREE, Bucket, Reply
from storage.blobs.gcs_client import Call
from storage.blobs.gcs_reading import TOLD, gone, info_of
from storage.errors import AlreadyExists, NotFound, SourceChanged, StoreError, Unavailable
from storage.protocols import BlobInfo, Progress

_WANTED: Final = f"done,rewriteToken,totalBytesRewritten,resource({TOLD})"


@dataclass(frozen=True, slots=True)
class Original:
    """What is copied: an object, and the pin that it has to fit if there is one."""

    bucket: Bucket
    key: str
    pin: str | None


def rewrite(
    original: Original,
    target: Bucket,
    key: str,
    *,
    resume: str | None,
    progress: Progress | None,
) -> BlobInfo:
    """One call where source and target are kept alike, else as many as GCS takes; its token takes
    up a copy of the same source into the same place for a week."""
    if progress:
        progress(resume or "", 0)
    reply = _first(original, target, key, resume)
    while not reply["done"]:
        token = str(reply["rewriteToken"])
        if progress:
            progress(token, int(reply["totalBytesRewritten"]))
        reply = _once(original, target, key, token)
    info = info_of(key, reply["resource"])
    if progress:
        progress("", info.size)
    return info


def _first(original: Original, target: Bucket, key: str, token: str | None) -> Reply:
    """With a token if there is one; when that is refused, from the beginning."""
    if token:
        try:
            return _once(original, target, key, token)
        except (AlreadyExists, Unavailable):
            raise
        except StoreError:
            # GCS knows it no longer, or it is of other bytes.
            pass
    return _once(original, target, key, None)


def _once(original: Original, target: Bucket, key: str, token: str | None) -> Reply:
    params: dict[str, object] = {"fields": _WANTED, **FREE}
    if original.pin is not None:
        params["sourceGeneration"] = original.pin
    if token:
        params["rewriteToken"] = token
    where = original.bucket.object(original.key) + target.object(key).replace(
        "/storage/v1/", "/rewriteTo/", 1
    )
    try:
        return target.ask(Call("POST", where, params, {"Content-Length": "0"}))
    except NotFound as error:
        raise _missing(original, target, error) from error


def _missing(original: Original, target: Bucket, error: StoreError) -> StoreError:
    """What a 404 means: the original is gone or changed, or a bucket is not there."""
    why = gone(original.bucket, original.key)
    if not isinstance(why, SourceChanged):
        return why
    try:
        target.expect()
    except StoreError:
        return Unavailable(f"there is no GCS bucket {target.name}")
    return why if original.pin is not None else error
