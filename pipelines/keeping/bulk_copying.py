"""Copies of many small objects, compared all at once by a listing: a call less for each of them.

What the listing shows to be absent or wrong is left to `copying.copy`, which looks at its one copy.
"""

from collections.abc import Mapping
from functools import cached_property

from pipelines.keeping.copying import INLINE
from storage.model import Checksums
from storage.protocols import BlobInfo, BlobStore, BulkTarget


class BulkCopies:
    """Copies from one bucket to below a prefix of another one. Threads may share it: first all
    copies are made, then all are compared."""

    def __init__(self, source: BlobStore, target: BulkTarget, prefix: str) -> None:
        self._source, self._target, self._prefix = source, target, prefix
        self._unread = set[str]()

    @property
    def has_copied(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self._unread)

    def copy(self, key: str, target_key: str, *, size: int, is_free: bool = False) -> bool:
        """Copy a small object. False, and the caller uses `copying.copy`, if it is large or may
        not have been copied. `is_free` says that the caller saw nothing under the target key.

        That first copy by the caller shows whether others can be compared by a listing."""
        if size > INLINE:
            return False
        if not self._target.copy_unread(self._source, key, target_key, is_free=is_free):
            return False
        self._unread.add(target_key)
        return True

    def is_right(self, target_key: str, size: int, checksums: Checksums) -> bool:
        """Whether the listing shows the right bytes; True of what was not copied here."""
        if target_key not in self._unread:
            return True
        info = self._listed.get(target_key)
        return info is not None and (info.size, info.etag) == (size, checksums.s3_etag)

    @cached_property
    def _listed(self) -> Mapping[str, BlobInfo]:
        return self._target.list_below(self._prefix)
