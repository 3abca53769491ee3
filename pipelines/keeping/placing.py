"""Putting small records: a key that is taken is read back, for it may be our own earlier try."""

import logging

from storage.errors import AlreadyExists, NotFound
from storage.protocols import BlobStore

log = logging.getLogger(__name__)


def whole(blobs: BlobStore, key: str) -> bytes:
    """All bytes of a small object."""
    return b"".join(blobs.read(key))


def there(blobs: BlobStore, key: str) -> bool:
    """Whether anything lies there."""
    try:
        blobs.head(key)
    except NotFound:
        return False
    return True


def place(blobs: BlobStore, key: str, data: bytes, *, content_type: str) -> bool:
    """Put the object; False when other bytes lie there already, which are left as they are."""
    try:
        blobs.put(key, data, content_type=content_type)
    except AlreadyExists:
        if whole(blobs, key) != data:
            log.warning("%s holds other bytes than the catalog says", blobs.direct_url(key))
            return False
    return True
