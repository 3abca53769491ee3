"""boto3's client of S3: configuration, signed URLs, and calls whose errors are the store's own."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import boto3.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from storage.blobs.clients import Limits, Reader
from storage.blobs.s3_obstore import Address, SmallCalls
from storage.blobs.urls import as_called
from storage.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    Unavailable,
)

_DEFAULT_REGION: Final = "us-east-1"
"""The region of a server of one's own, if nothing names another one."""
LONGEST_URL_S: Final = 7 * 24 * 3600
"""Seconds that S3 accepts a signed URL for at most."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where S3 is, and which profile signs; None means the environment decides. `public` is the
    endpoint's address for those who are given signed URLs."""

    endpoint: str | None = None
    public: str | None = None
    region: str | None = None
    profile: str | None = None


def open_reader(limits: Limits) -> "Reader[Connection]":
    """With the ambient credentials, region and endpoint; unsigned without credentials."""
    with _translated_errors():
        signed = boto3.session.Session().get_credentials() is not None
    return Reader(Connection(Server(), limits, signed=signed), signed)


class Connection:
    """One process's clients of one server; making the first one reads half a megabyte of JSON."""

    def __init__(self, server: Server, limits: Limits, *, signed: bool = True) -> None:
        address = server.public or server.endpoint
        # Some clients leave the scheme's own port out of `Host`, which is signed.
        called = as_called(address).rstrip("/") if address else None
        with _translated_errors():
            session = boto3.session.Session(profile_name=server.profile)
            self._session = session
            self.client: Any = _make_client(session, server, limits, signed=signed)
            self._signer = self.client
            if called != server.endpoint:
                self._signer = _make_client(session, replace(server, endpoint=called), limits)

        self.small = SmallCalls(self._address, self._credentials, limits)

    def _address(self, bucket: str) -> Address:
        """Where the client itself finds a bucket, by an example of its signed URLs."""
        with _translated_errors():
            params = {"Bucket": bucket, "Key": "k"}
            example = urlsplit(self.client.generate_presigned_url("get_object", Params=params))
        scope = parse_qs(example.query)["X-Amz-Credential"][0].split("/")
        base = f"{example.scheme}://{example.netloc}{example.path.removesuffix('/k')}"
        return Address(base, scope[2])

    def _credentials(self) -> Any:
        """Those of this moment: they may be temporary."""
        found = self._session.get_credentials()
        if found is None:
            raise Unavailable("S3 cannot be reached: there are no credentials")
        return found.get_frozen_credentials()

    def sign_url(self, verb: str, expires_s: int, **params: Any) -> str:
        """A URL for one call, valid for 1 second to 7 days from now."""
        seconds = min(max(expires_s, 1), LONGEST_URL_S)
        with _translated_errors():
            signed = self._signer.generate_presigned_url(verb, Params=params, ExpiresIn=seconds)
        return str(signed)


def _make_client(
    session: boto3.session.Session, server: Server, limits: Limits, *, signed: bool = True
) -> Any:
    config = _make_config(server, limits)
    fallback = _DEFAULT_REGION if server.endpoint else None
    client = session.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region or session.region_name or fallback,
        config=config if signed else config.merge(Config(signature_version=UNSIGNED)),
    )
    client.meta.events.register_last("before-call.s3", _send_body_at_once)
    return client


def _send_body_at_once(params: dict[str, Any], **_: object) -> None:
    """Remove `Expect: 100-continue`: botocore waits for ever for a 100 response that is cut off,
    and takes a late one for the response to another request."""
    params["headers"].pop("Expect", None)


def _make_config(server: Server, limits: Limits) -> Config:
    return Config(
        connect_timeout=limits.connect_s,
        read_timeout=limits.read_s,
        # Bounded, with jitter, and with a quota: in an outage most calls fail at once.
        retries={"total_max_attempts": limits.attempts, "mode": "standard"},
        max_pool_connections=limits.connections,
        tcp_keepalive=True,
        # Building the default User-Agent takes a tenth of each call.
        user_agent="consortium-store",
        signature_version="s3v4",
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


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise Unavailable for missing credentials, unusable configuration and malformed endpoints."""
    try:
        yield
    except (BotoCoreError, ValueError) as error:
        raise Unavailable(f"S3 cannot be reached: {error}") from error


# Calls

Reply = Mapping[str, Any]


class _Reply(dict[str, Any]):
    """A response. A missing field means that it was cut off: truncated headers look complete."""

    def __missing__(self, name: str) -> Any:
        raise Unavailable(f"S3's answer was cut off: it lacks {name}")


_CONFLICTS: Final = 8
"""Times that a conditional write is retried while another one of the same key is in flight."""
_TRANSIENT: Final = frozenset(
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
"""Codes of 400 responses to valid requests: credentials that expired, bytes lost on the way."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and its client. In one of our `own`, a refusal or an absent bucket is a fault of the
    installation and may be mended; in a depositor's it is an answer."""

    name: str
    client: Callable[[], Any]
    own: bool = True
    small: Callable[[], SmallCalls] | None = None

    def call(self, verb: str, key: str | None = None, **params: Any) -> Reply:
        """Make one call of the client; raises errors of `storage.errors` only."""
        where = {"Bucket": self.name} if key is None else {"Bucket": self.name, "Key": key}
        for turn in range(_CONFLICTS):
            try:
                return _Reply(getattr(self.client(), verb)(**where, **params))
            except ClientError as error:
                # Of two conditional writes at once, either may be told to try again.
                if _code(error) != "ConditionalRequestConflict" or turn == _CONFLICTS - 1:
                    raise self._translate(error, conditional="IfNoneMatch" in params) from error
            except ParamValidationError as error:
                raise Invalid(f"S3 cannot be asked so: {error}") from error
            except BotoCoreError as error:
                raise Unavailable(f"S3 cannot be reached: {error}") from error
            time.sleep(random.uniform(0, 0.02 * 2**turn))
        raise AssertionError("unreachable")

    def _translate(self, error: ClientError, *, conditional: bool) -> StoreError:
        status, code = _status(error), _code(error)
        message = f"S3 bucket {self.name}: {code} ({status})"
        match status:
            case 404 if code == "NoSuchBucket":
                return Unavailable(message) if self.own else NotFound(message)
            # 405 is the response for a version that is a delete marker.
            case 404 | 405:
                return NotFound(message)
            case 412:
                return AlreadyExists(message) if conditional else SourceChanged(message)
            case 416:
                return RangeNotSatisfiable(message)
            case 400 if code not in _TRANSIENT:
                return Invalid(message)
            case 401 | 403:
                advice = f"{message}: check the store's credentials and the bucket's policy"
                return Unavailable(advice) if self.own else Forbidden(message)
        # 5xx, throttling, clock skew, a bucket of another region.
        return Unavailable(message)


def is_upload_gone(error: StoreError) -> bool:
    """Whether the error says that an unfinished upload does not exist."""
    return isinstance(error.__cause__, ClientError) and _code(error.__cause__) == "NoSuchUpload"


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
