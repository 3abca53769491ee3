"""Small calls of S3 through obstore, at a tenth of the processor time that boto3 takes for them.

Only plain success counts here. After anything else a method returns None, and the caller makes the
same call with boto3, which retries, follows redirects and explains the error.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, Literal, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from storage.blobs.clients import Limits
from storage.errors import Unavailable

_PLAIN_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9](?<!--x-s3)")
"""Neither an access point nor a directory bucket, which are signed in other ways; nor dots that a
path is made shorter by, so that it would lead into another bucket."""
_CREDENTIALS_FOR: Final = timedelta(minutes=10)
"""How long obstore may use credentials before it asks for them again."""
_LONGEST: Final = timedelta(hours=1)
"""Of one request with its body. A read that takes longer is resumed."""
_FAILURES: Final = (BaseError, OSError, ValueError, NotImplementedError)
"""Whatever obstore raises; an absent object is an OSError."""

_HEADERS: Final = frozenset(
    {
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Storage-Class",
    }
)
"""Attributes that are no metadata, whose names come in lower case."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a bucket, and the region for which its requests are signed."""

    url: str
    region: str


class BrokenStreamError(Exception):
    """A response ended before its last byte."""


class Body:
    """A response's bytes, with the methods of botocore's `StreamingBody` that streams use."""

    def __init__(self, result: Any, length: int) -> None:
        self._result, self._left = result, length

    def iter_chunks(self, size: int) -> Iterator[bytes]:
        """Blocks of at most `size` bytes; BrokenStreamError unless they are as many as promised."""
        try:
            for chunk in self._result.stream(min_chunk_size=size):
                self._left -= len(chunk)
                if self._left < 0:
                    break
                view = memoryview(chunk)
                for start in range(0, len(view), size):
                    yield bytes(view[start : start + size])
        except _FAILURES as error:
            raise BrokenStreamError(str(error)) from error
        if self._left:
            # obstore does not compare a body with its Content-Range.
            raise BrokenStreamError("the response has another length than its range")

    def close(self) -> None:
        """Nothing to do: obstore closes a response that nothing refers to."""


class SmallCalls:
    """Puts, reads and copies of one connection. Threads may share it.

    A process that was forked from one that used obstore makes no calls here: obstore's threads
    live in the parent alone.
    """

    def __init__(
        self,
        address: Callable[[str], Address],
        credentials: Callable[[], Any],
        limits: Limits,
    ) -> None:
        self._address, self._credentials, self._limits = address, credentials, limits
        # Stores of a bucket, and of a pair of buckets for copies.
        self._store = lru_cache(maxsize=256)(self._make_store)

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        *,
        content_type: str,
        metadata: Mapping[str, str],
        replace: bool,
    ) -> dict[str, Any] | None:
        """Create an object, or replace it; the SHA-256 of its bytes is signed."""
        attributes = {**metadata, "Content-Type": content_type}
        mode: Literal["create", "overwrite"] = "overwrite" if replace else "create"

        def put() -> dict[str, Any]:
            store = self._store(bucket, bucket)
            return _named(
                obstore.put(store, key, data, attributes=attributes, mode=mode, use_multipart=False)
            )

        return self._attempt(bucket, key, put)

    def get(
        self, bucket: str, key: str, params: Mapping[str, str], start: int, end: int | None
    ) -> dict[str, Any] | None:
        """A range of the object that `params` (VersionId or IfMatch) name."""
        options: Any = {}
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}
        options |= {_OPTIONS[name]: value for name, value in params.items()}

        def get() -> dict[str, Any]:
            result = obstore.get(self._store(bucket, bucket), key, options=options)
            first, last = result.range
            return {
                **_named(result.meta),
                "ContentLength": last - first,
                "ContentRange": f"bytes {first}-{last - 1}/{result.meta['size']}",
                "Body": Body(result, last - first),
            }

        return self._attempt(bucket, key, get)

    def head(self, bucket: str, key: str) -> dict[str, Any] | None:
        """What a HEAD says of an object, with the metadata of its own."""

        def head() -> dict[str, Any]:
            options: Any = {"head": True}
            result = obstore.get(self._store(bucket, bucket), key, options=options)
            told = result.attributes
            return {
                **_named(result.meta),
                "ContentLength": result.meta["size"],
                "ContentType": told.get("Content-Type"),
                "Metadata": {name: told[name] for name in told if name not in _HEADERS},
            }

        return self._attempt(bucket, key, head)

    def exists(self, bucket: str, key: str) -> bool | None:
        """Whether there is an object; None if obstore cannot tell."""
        return self._attempt(bucket, key, partial(self._exists, bucket, key))

    def _exists(self, bucket: str, key: str) -> bool:
        try:
            obstore.head(self._store(bucket, bucket), key)
        except FileNotFoundError:
            return False
        return True

    def matches(self, bucket: str, key: str, *, size: int, etag: str) -> bool:
        """Whether an object of this size and ETag is sure to be there."""

        def compare() -> bool:
            found = obstore.head(self._store(bucket, bucket), key)
            return (found["size"], _named(found)["ETag"]) == (size, f'"{etag}"')

        return bool(self._attempt(bucket, key, compare))

    def copy(
        self, source: str, key: str, target: str, target_key: str
    ) -> tuple[int, dict[str, Any]] | None:
        """Copy an object if the target key is free; the copy's size and ETag are read back."""
        if not is_plain(source, key):
            return None
        return self._attempt(
            target, target_key, partial(self._copy, source, key, target, target_key)
        )

    def _copy(
        self, source: str, key: str, target: str, target_key: str
    ) -> tuple[int, dict[str, Any]]:
        obstore.copy(self._store(source, target), key, target_key, overwrite=False)
        copied = obstore.head(self._store(target, target), target_key)
        return copied["size"], _named(copied)

    def copy_unread(self, source: str, key: str, target: str, target_key: str) -> bool:
        """Copy an object if the target key is free; False if that is not sure to have succeeded."""
        if not is_plain(source, key):
            return False

        def copy() -> bool:
            obstore.copy(self._store(source, target), key, target_key, overwrite=False)
            return True

        return bool(self._attempt(target, target_key, copy))

    def list_below(self, bucket: str, prefix: str) -> dict[str, tuple[int, dict[str, Any]]] | None:
        """Size and ETag of all objects below a prefix that ends in `/`, by key."""

        def list_() -> dict[str, tuple[int, dict[str, Any]]]:
            pages = obstore.list(self._store(bucket, bucket), prefix, chunk_size=1000)
            return {
                found["path"]: (found["size"], _named(found)) for page in pages for found in page
            }

        return self._attempt(bucket, prefix.rstrip("/"), list_)

    def _attempt(self, bucket: str, key: str, call: Callable[[], T]) -> T | None:
        if not is_plain(bucket, key) or _was_forked():
            return None
        try:
            return call()
        except (*_FAILURES, Unavailable):
            return None

    def _make_store(self, source: str, target: str) -> S3Store:
        """A store whose requests go to `target`, and whose copies come from `source`.

        With virtual-hosted addresses obstore takes the URL of a bucket as it is given, and uses the
        bucket's name in the header that names a copy's source only.
        """
        address, limits = self._address(target), self._limits
        return S3Store(
            source,
            endpoint=address.url,
            # The environment's would win over `endpoint`.
            aws_endpoint_url_s3=address.url,
            region=address.region,
            virtual_hosted_style_request=True,
            skip_signature=False,
            conditional_put="etag",
            copy_if_not_exists="header-with-status:if-none-match:*:412",
            credential_provider=self._current_credentials,
            client_options={
                "allow_http": True,
                "connect_timeout": timedelta(seconds=limits.connect_s),
                "read_timeout": timedelta(seconds=limits.read_s),
                "timeout": _LONGEST,
                "pool_max_idle_per_host": str(limits.connections),
                "user_agent": "consortium-store",
            },
            retry_config={"max_retries": 0},
        )

    def _current_credentials(self) -> Any:
        current = self._credentials()
        return {
            "access_key_id": current.access_key,
            "secret_access_key": current.secret_key,
            "token": current.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_FOR,
        }


_OPTIONS: Final = {"VersionId": "version", "IfMatch": "if_match"}


def _named(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result in boto3's names; ValueError if headers were cut off."""
    if not result["e_tag"]:
        raise ValueError("the response has no ETag")
    return {"ETag": result["e_tag"], "VersionId": result["version"]}


def is_plain(bucket: str, key: str) -> bool:
    """Whether obstore names this object as S3 does: it would strip or refuse other keys."""
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments) or not key.isprintable():
        return False
    return bool(_PLAIN_BUCKET.fullmatch(bucket))


_STARTED: list[int] = []
"""The process that first used obstore, whose threads children do not have."""


def _was_forked() -> bool:
    if not _STARTED:
        _STARTED.append(os.getpid())
    return _STARTED[0] != os.getpid()
