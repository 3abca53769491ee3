"""Fast path for small S3 calls through obstore.

Only plain success counts here. After anything else a method returns None, and the caller makes the
same call with boto3, which retries, follows redirects and explains the error.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qs, urlsplit

import boto3.session
import obstore
from botocore.exceptions import BotoCoreError
from obstore.exceptions import BaseError
from obstore.store import S3Store

from storage.blobs.clients import CloudLimits

_PLAIN_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9](?<!--x-s3)")
"""Bucket names that need no other signature, unlike access points and directory buckets, and that
no dots in a path could turn into another bucket."""
_CREDENTIALS_TTL: Final = timedelta(minutes=10)
"""How long obstore may cache credentials."""
_REQUEST_TIMEOUT: Final = timedelta(hours=1)
"""Longest request with its body; a read that takes longer is resumed."""
_OBSTORE_ERRORS: Final = (BaseError, OSError, ValueError, NotImplementedError)
"""All that obstore raises; an absent object is an OSError."""

_HEADER_ATTRIBUTES: Final = frozenset(
    {
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Storage-Class",
    }
)
"""Attributes that are headers; names of metadata are in lower case."""

T = TypeVar("T")


class BrokenStreamError(Exception):
    """A response ended before its last byte."""


class ObstoreBody:
    """The body of a response, with the methods of botocore's `StreamingBody` that reads use."""

    def __init__(self, result: Any, length: int) -> None:
        self._result, self._left = result, length

    def iter_chunks(self, size: int) -> Iterator[bytes]:
        """Yield blocks of at most `size` bytes; BrokenStreamError if the length is wrong."""
        try:
            for chunk in self._result.stream(min_chunk_size=size):
                self._left -= len(chunk)
                if self._left < 0:
                    break
                view = memoryview(chunk)
                for start in range(0, len(view), size):
                    yield bytes(view[start : start + size])
        except _OBSTORE_ERRORS as error:
            raise BrokenStreamError(str(error)) from error
        if self._left:
            # obstore does not compare a body with its Content-Range.
            raise BrokenStreamError("the length of the response contradicts its range")

    def close(self) -> None:
        """Do nothing: obstore closes a response that nothing refers to."""


class ObstoreCalls:
    """Puts, reads and copies of one connection; threads may share it.

    Unsigned connections make no calls here, nor do forked children whose parent used obstore: its
    threads live in the parent alone.
    """

    def __init__(
        self,
        session: boto3.session.Session,
        client: Any,
        limits: CloudLimits,
        *,
        signed: bool = True,
    ) -> None:
        self._session, self._client, self._limits = session, client, limits
        self._signed = signed
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
        """Create an object, or replace it; the request signs the SHA-256 of the bytes."""
        attributes = {**metadata, "Content-Type": content_type}
        mode: Literal["create", "overwrite"] = "overwrite" if replace else "create"

        def put() -> dict[str, Any]:
            store = self._store(bucket, bucket)
            return _to_boto_names(
                obstore.put(store, key, data, attributes=attributes, mode=mode, use_multipart=False)
            )

        return self._attempt(bucket, key, put)

    def get(
        self, bucket: str, key: str, params: Mapping[str, str], start: int, end: int | None
    ) -> dict[str, Any] | None:
        """Read a range of the object that `params` (VersionId or IfMatch) name."""
        options: Any = {}
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}
        options |= {_GET_OPTIONS[name]: value for name, value in params.items()}

        def get() -> dict[str, Any]:
            result = obstore.get(self._store(bucket, bucket), key, options=options)
            first, last = result.range
            return {
                **_to_boto_names(result.meta),
                "ContentLength": last - first,
                "ContentRange": f"bytes {first}-{last - 1}/{result.meta['size']}",
                "Body": ObstoreBody(result, last - first),
            }

        return self._attempt(bucket, key, get)

    def head(self, bucket: str, key: str) -> dict[str, Any] | None:
        """Return the response of a HEAD with the object's metadata."""

        def head() -> dict[str, Any]:
            options: Any = {"head": True}
            result = obstore.get(self._store(bucket, bucket), key, options=options)
            attributes = result.attributes
            return {
                **_to_boto_names(result.meta),
                "ContentLength": result.meta["size"],
                "ContentType": attributes.get("Content-Type"),
                "Metadata": {
                    name: attributes[name] for name in attributes if name not in _HEADER_ATTRIBUTES
                },
            }

        return self._attempt(bucket, key, head)

    def exists(self, bucket: str, key: str) -> bool | None:
        """Return whether there is an object; None if obstore cannot tell."""

        def head() -> bool:
            try:
                obstore.head(self._store(bucket, bucket), key)
            except FileNotFoundError:
                return False
            return True

        return self._attempt(bucket, key, head)

    def matches(self, bucket: str, key: str, *, size: int, etag: str) -> bool:
        """Return True only if an object of this size and ETag surely exists."""

        def compare() -> bool:
            found = obstore.head(self._store(bucket, bucket), key)
            return (found["size"], _to_boto_names(found)["ETag"]) == (size, f'"{etag}"')

        return bool(self._attempt(bucket, key, compare))

    def copy(
        self, source: str, key: str, target: str, target_key: str
    ) -> tuple[int, dict[str, Any]] | None:
        """Copy an object if the target key is free; return size and ETag of the copy."""

        def head() -> tuple[int, dict[str, Any]]:
            copied = obstore.head(self._store(target, target), target_key)
            return copied["size"], _to_boto_names(copied)

        if not self.copy_unverified(source, key, target, target_key):
            return None
        return self._attempt(target, target_key, head)

    def copy_unverified(self, source: str, key: str, target: str, target_key: str) -> bool:
        """Copy an object if the target key is free; False if it may have failed."""

        def copy() -> bool:
            obstore.copy(self._store(source, target), key, target_key, overwrite=False)
            return True

        return is_plain_key(source, key) and bool(self._attempt(target, target_key, copy))

    def list_prefix(self, bucket: str, prefix: str) -> dict[str, tuple[int, dict[str, Any]]] | None:
        """Return size and ETag of all objects below a prefix that ends in `/`, by key."""

        def list_() -> dict[str, tuple[int, dict[str, Any]]]:
            pages = obstore.list(self._store(bucket, bucket), prefix, chunk_size=1000)
            return {
                found["path"]: (found["size"], _to_boto_names(found))
                for page in pages
                for found in page
            }

        return self._attempt(bucket, prefix.rstrip("/"), list_)

    def _attempt(self, bucket: str, key: str, call: Callable[[], T]) -> T | None:
        if not self._signed or not is_plain_key(bucket, key) or _is_forked():
            return None
        try:
            return call()
        except (*_OBSTORE_ERRORS, BotoCoreError):
            return None

    def _make_store(self, source: str, target: str) -> S3Store:
        """Make a store whose requests go to `target`, and whose copies come from `source`.

        With virtual-hosted addresses obstore takes the bucket's URL as it is, and uses the bucket's
        name only in the copy-source header.
        """
        # Where the client finds a bucket shows in its signed URLs.
        params, limits = {"Bucket": target, "Key": "k"}, self._limits
        example = urlsplit(self._client.generate_presigned_url("get_object", Params=params))
        url = f"{example.scheme}://{example.netloc}{example.path.removesuffix('/k')}"
        _, _, region, *_ = parse_qs(example.query)["X-Amz-Credential"][0].split("/")
        return S3Store(
            source,
            endpoint=url,
            # The environment's would win over `endpoint`.
            aws_endpoint_url_s3=url,
            region=region,
            virtual_hosted_style_request=True,
            skip_signature=False,
            conditional_put="etag",
            copy_if_not_exists="header-with-status:if-none-match:*:412",
            credential_provider=self._current_credentials,
            client_options={
                "allow_http": True,
                "connect_timeout": timedelta(seconds=limits.connect_s),
                "read_timeout": timedelta(seconds=limits.read_s),
                "timeout": _REQUEST_TIMEOUT,
                "pool_max_idle_per_host": str(limits.connections),
                "user_agent": "consortium-store",
            },
            retry_config={"max_retries": 0},
        )

    def _current_credentials(self) -> Any:
        """Return the session's credentials, which may be temporary."""
        credentials = self._session.get_credentials()
        if credentials is None:
            raise ValueError("there are no credentials")
        current = credentials.get_frozen_credentials()
        return {
            "access_key_id": current.access_key,
            "secret_access_key": current.secret_key,
            "token": current.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_TTL,
        }


_GET_OPTIONS: Final = {"VersionId": "version", "IfMatch": "if_match"}


def _to_boto_names(result: Mapping[str, Any]) -> dict[str, Any]:
    """Rename a result's fields to boto3's; ValueError if headers were truncated."""
    if not result["e_tag"]:
        raise ValueError("the response has no ETag")
    return {"ETag": result["e_tag"], "VersionId": result["version"]}


def is_plain_key(bucket: str, key: str) -> bool:
    """Return whether obstore names this object as S3 does; it would strip or refuse other keys."""
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments) or not key.isprintable():
        return False
    return bool(_PLAIN_BUCKET.fullmatch(bucket))


_OBSTORE_PROCESS: list[int] = []
"""The process that first used obstore; forked children lack its threads."""


def _is_forked() -> bool:
    if not _OBSTORE_PROCESS:
        _OBSTORE_PROCESS.append(os.getpid())
    return _OBSTORE_PROCESS[0] != os.getpid()
