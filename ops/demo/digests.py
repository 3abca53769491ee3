"""The depositor's own checksums: what the store must come to as well, found independently."""

import hashlib

PART = 64 * 1_048_576
"""Parts of the entity tag of objects up to 640,000 MB, by the specification."""


class Digests:
    """SHA-256 and entity tag of bytes that pass by."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._part = hashlib.md5(usedforsecurity=False)
        self._room = PART
        self._done: list[bytes] = []

    def update(self, block: bytes) -> None:
        """Take in the next bytes."""
        self._sha256.update(block)
        view = memoryview(block)
        while len(view) > self._room:
            self._part.update(view[: self._room])
            view = view[self._room :]
            self._done.append(self._part.digest())
            self._part, self._room = hashlib.md5(usedforsecurity=False), PART
        self._part.update(view)
        self._room -= len(view)

    @property
    def sha256(self) -> str:
        """Of everything so far, in hex."""
        return self._sha256.hexdigest()

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return len(self._done) + 1

    @property
    def s3_etag(self) -> str:
        """MD5 of one part, or of the parts' MD5s with their number."""
        if not self._done:
            return self._part.hexdigest()
        joined = b"".join((*self._done, self._part.digest()))
        return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{self.parts}"
