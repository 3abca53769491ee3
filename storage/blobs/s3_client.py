"""boto3 client of S3: configuration, presigned URLs, calls and error translation."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import boto3.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from storage import errors
from storage.blobs.clients import (
    AMBIENT_ACCESS,
    CloudLimits,
    SourceAccess,
    SourceReader,
    canonical_endpoint,
)
from storage.blobs.s3_obstore import ObstoreCalls

_DEFAULT_REGION: Final = "us-east-1"
"""Region of a server other than Amazon's, unless one is configured."""
MAX_URL_LIFETIME_S: Final = 7 * 24 * 3600
"""Longest life of a signed URL that S3 accepts, in seconds."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where S3 is, and which profile signs; None means the environment decides.

    `public` is the endpoint in signed URLs.
    """

    endpoint: str | None = None
    public: str | None = None
    region: str | None = None
    profile: str | None = None


def open_s3_source_reader(
    limits: CloudLimits, access: SourceAccess = AMBIENT_ACCESS
) -> "SourceReader[S3Connection]":
    """Open a reader with the ambient credentials, region and endpoint; unsigned without
    credentials, and if `access` is anonymous."""
    server = S3Server(endpoint=access.s3_endpoint)
    if access.anonymous:
        return SourceReader(S3Connection(server, limits, signed=False), False, anonymous=True)
    with _translate_errors():
        signed = boto3.session.Session().get_credentials() is not None
    return SourceReader(S3Connection(server, limits, signed=signed), signed)


class S3Connection:
    """One process's clients of one server; creating the first one reads half a megabyte of JSON."""

    def __init__(self, server: S3Server, limits: CloudLimits, *, signed: bool = True) -> None:
        address = server.public or server.endpoint
        # Some clients omit the default port from `Host`, which is signed.
        public = canonical_endpoint(address).rstrip("/") if address else None
        with _translate_errors():
            session = boto3.session.Session(profile_name=server.profile)
            self.client: Any = _make_s3_client(session, server, limits, signed=signed)
            self._signer = self.client
            if public != server.endpoint:
                self._signer = _make_s3_client(session, replace(server, endpoint=public), limits)
        self.small = ObstoreCalls(session, self.client, limits, signed=signed)

    def sign_url(self, verb: str, expires_s: int, **params: Any) -> str:
        """A URL for one call, valid for 1 second to 7 days from now."""
        seconds = min(max(expires_s, 1), MAX_URL_LIFETIME_S)
        with _translate_errors():
            signed = self._signer.generate_presigned_url(verb, Params=params, ExpiresIn=seconds)
        return str(signed)


def _make_s3_client(
    session: boto3.session.Session, server: S3Server, limits: CloudLimits, *, signed: bool = True
) -> Any:
    config = Config(
        max_pool_connections=limits.connections,
        tcp_keepalive=True,
        signature_version="s3v4" if signed else UNSIGNED,
        s3={
            # Uploads carry a CRC-32C in a signed header; a SHA-256 beside it adds nothing.
            "payload_signing_enabled": False,
            # Amazon's signed URLs name the region in this style only.
            "addressing_style": "path" if server.endpoint else "virtual",
        },
        # The store sends CRC-32C itself, and its callers compare checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = make_client("s3", session, server, limits, config)
    client.meta.events.register_last("before-call.s3", _send_body_at_once)
    return client


def make_client(
    service: str,
    session: boto3.session.Session,
    server: S3Server,
    limits: CloudLimits,
    config: Config | None = None,
) -> Any:
    """Make a boto3 client of a service of this server; `config` adds to the limits."""
    common = Config(
        connect_timeout=limits.connect_s,
        read_timeout=limits.read_s,
        # Bounded, with jitter, and with a quota: in an outage most calls fail at once.
        retries={"total_max_attempts": limits.attempts, "mode": "standard"},
        # Building the default User-Agent takes a tenth of each call.
        user_agent="consortium-store",
    )
    fallback = _DEFAULT_REGION if server.endpoint else None
    return session.client(
        service,
        endpoint_url=server.endpoint,
        region_name=server.region or session.region_name or fallback,
        config=common.merge(config) if config else common,
    )


def _send_body_at_once(params: dict[str, Any], **_: object) -> None:
    """Remove `Expect: 100-continue`.

    botocore waits forever for a truncated 100 response, and takes a late one for the response to
    another request.
    """
    params["headers"].pop("Expect", None)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise Unavailable for missing credentials, unusable configuration and malformed endpoints."""
    try:
        yield
    except (BotoCoreError, ValueError) as error:
        raise errors.Unavailable(f"S3 cannot be reached: {error}") from error


# Calls

S3Reply = Mapping[str, Any]


class _CheckedReply(dict[str, Any]):
    """A response. A missing field raises Unavailable: truncated headers look complete."""

    def __missing__(self, name: str) -> Any:
        raise errors.Unavailable(f"S3 sent a truncated response: it lacks {name}")


_CONFLICT_RETRIES: Final = 8
"""Attempts of a conditional write while another one of the same key is in flight."""
_PAGE_TOKENS: Final = {
    "list_objects_v2": ("ContinuationToken",),
    "list_parts": ("PartNumberMarker",),
    "list_multipart_uploads": ("KeyMarker", "UploadIdMarker"),
    "list_object_versions": ("KeyMarker", "VersionIdMarker"),
}
"""Parameters of each listing's next page, which the page before holds as `Next…`.

boto3's paginators take a truncated response for the last page.
"""
_TRANSIENT_CODES: Final = frozenset(
    {
        "400",  # A HEAD response has no code: it may be any of these.
        "AuthorizationHeaderMalformed",
        "BadDigest",
        "ExpiredToken",
        "IncompleteBody",
        "InvalidToken",
        "RequestTimeout",
        "TokenRefreshRequired",
    }
)
"""Codes of 400 responses to valid requests: expired credentials, bytes lost on the way."""


@dataclass(frozen=True, slots=True)
class S3BucketClient:
    """A bucket and its client.

    In one of the store's `own` buckets a 403 or 404 is Unavailable, since an operator may fix it;
    in a depositor's bucket it is Forbidden or NotFoundError.
    """

    name: str
    connect: Callable[[], S3Connection]
    own: bool = True

    @property
    def small(self) -> ObstoreCalls:
        """Return the fast path for small calls."""
        return self.connect().small

    def call(self, verb: str, key: str | None = None, **params: Any) -> S3Reply:
        """Make one call of the client; raises errors of `storage.errors` only."""
        location = {"Bucket": self.name} if key is None else {"Bucket": self.name, "Key": key}
        for attempt in range(_CONFLICT_RETRIES):
            try:
                return _CheckedReply(getattr(self.connect().client, verb)(**location, **params))
            except ClientError as error:
                # S3 may ask either of two concurrent conditional writes to retry.
                if (
                    _error_code(error) != "ConditionalRequestConflict"
                    or attempt == _CONFLICT_RETRIES - 1
                ):
                    raise self._translate(error, conditional="IfNoneMatch" in params) from error
            except ParamValidationError as error:
                raise errors.Invalid(f"S3 rejects the parameters: {error}") from error
            except BotoCoreError as error:
                raise errors.Unavailable(f"S3 cannot be reached: {error}") from error
            time.sleep(random.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")

    def pages(self, verb: str, key: str | None = None, **params: Any) -> Iterator[S3Reply]:
        """Iterate over the pages of a listing."""
        while True:
            page = self.call(verb, key, **params)
            yield page
            if not page.get("IsTruncated"):
                return
            params |= {name: page[f"Next{name}"] for name in _PAGE_TOKENS[verb]}

    def _translate(self, error: ClientError, *, conditional: bool) -> errors.DomainError:
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = _error_code(error)
        message = f"S3 bucket {self.name}: {code} ({status})"
        match status:
            case 404 if code == "NoSuchBucket":
                return errors.Unavailable(message) if self.own else errors.NotFoundError(message)
            # 405 is the response for a version that is a delete marker.
            case 404 | 405:
                return errors.NotFoundError(message)
            case 412:
                return (
                    errors.AlreadyExists(message) if conditional else errors.SourceChanged(message)
                )
            case 416:
                return errors.RangeNotSatisfiable(message)
            case 400 if code not in _TRANSIENT_CODES:
                return errors.Invalid(message)
            case 401 | 403:
                advice = f"{message}: check the store's credentials and the bucket's policy"
                return errors.Unavailable(advice) if self.own else errors.Forbidden(message)
        # 5xx, throttling, clock skew, a bucket of another region.
        return errors.Unavailable(message)


def is_upload_gone(error: errors.DomainError) -> bool:
    """Return whether the error says that a multipart upload does not exist."""
    return (
        isinstance(error.__cause__, ClientError) and _error_code(error.__cause__) == "NoSuchUpload"
    )


def _error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
