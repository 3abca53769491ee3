"""What is said of an object of S3 once it is there: tags, the only words that can be changed.

Tags are a key's. They name the bytes that they are of, so that where a bucket keeps no versions
those of what lay there before are not taken for those of what lies there now.
"""

from collections.abc import Mapping
from dataclasses import replace

from storage.blobs import s3_reading
from storage.blobs.envelope import checked_head
from storage.blobs.s3_metadata import MARK, OF, as_tags, from_tags, of_these_bytes
from storage.blobs.s3_reading import Bucket
from storage.errors import SourceChanged
from storage.protocols import BlobInfo


def with_tags(info: BlobInfo, tags: Mapping[str, str]) -> dict[str, str]:
    """An object's metadata with its tags. Where the last word was to come by tags they correct the
    first, and so does what was found of these bytes; others' tags do not."""
    own = {name: value for name, value in info.metadata.items() if name != MARK}
    described = of_these_bytes(tags, info.etag)
    if described is not None:
        return {**own, **described}
    said = from_tags(tags)
    return {**own, **said} if MARK in info.metadata else {**said, **own}


def describe(bucket: Bucket, key: str, metadata: Mapping[str, str], pin: str) -> BlobInfo:
    """See BlobStore. Looked at before and after: in a bucket without versions the tags of an object
    that came in between may be gone, which whoever is told SourceChanged repairs."""
    info = _fitting(bucket, key, pin)
    there = s3_reading.tags(bucket, key, info.pin)
    described = of_these_bytes(there, info.etag)
    said = {**(from_tags(there) if described is None else described), **metadata}
    checked_head(key, "", {**info.metadata, **said})
    labels = as_tags({**said, OF: info.etag or ""})
    pairs = [{"Key": name, "Value": value} for name, value in labels.items()]
    version = {"VersionId": pin[2:]} if pin.startswith("v:") else {}
    bucket.ask("put_object_tagging", key, Tagging={"TagSet": pairs}, **version)
    _fitting(bucket, key, pin)
    own = {name: value for name, value in info.metadata.items() if name != MARK}
    return replace(info, metadata={**own, **said})


def _fitting(bucket: Bucket, key: str, pin: str) -> BlobInfo:
    """What lies there now; SourceChanged when it is not what the pin names."""
    info, _ = s3_reading.head(bucket, key)
    if info.pin != pin:
        raise SourceChanged(f"{key} is no longer what it was")
    return info
