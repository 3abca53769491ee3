"""The client of S3: what it costs and how it signs is set here, once for replicas and sources."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from storage.blobs.clients import Limits, Reader
from storage.blobs.s3_direct import Direct
from storage.blobs.s3_signing import Credentials, Place
from storage.blobs.urls import as_called
from storage.errors import Unavailable

_ANYWHERE = "s3.amazonaws.com"
_DEFAULT_REGION = "us-east-1"
"""What a server of one's own is told when nothing names a region."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where S3 is and who asks; what is None is ambient. `public` is the endpoint's name among
    those who are given signed URLs."""

    endpoint: str | None = None
    public: str | None = None
    region: str | None = None
    profile: str | None = None


def open_reader(limits: Limits) -> Reader[Any]:
    """A client with the ambient credentials, region and endpoint; unsigned without credentials."""
    with _in_our_words():
        session = boto3.session.Session()
        signed = session.get_credentials() is not None
        return Reader(_made(session, Server(), limits, signed=signed), signed)


class Connection:
    """One process's way to a server: one client, and what signs URLs.

    Building a client reads half a megabyte of service description: one a process is right.
    """

    def __init__(self, server: Server, limits: Limits) -> None:
        self._server = server
        with _in_our_words():
            self._session = boto3.session.Session(profile_name=server.profile)
            self.client: Any = _made(self._session, server, limits)
        self._places: dict[str, Place] = {}
        # The client's own way out: its proxies, certificates, time-outs and connections.
        self.direct = Direct(self.client._endpoint.http_session, self.near, self.credentials)

    def credentials(self) -> Credentials:
        """Those of this moment: they may be temporary."""
        with _in_our_words():
            found = self._session.get_credentials()
            now = found.get_frozen_credentials() if found else None
        if now is None or not now.access_key or not now.secret_key:
            raise Unavailable("there are no S3 credentials to sign a URL with")
        return Credentials(now.access_key, now.secret_key, now.token)

    def place(self, bucket: str) -> Place:
        """Where strangers find a bucket: as the client's own signed URLs say, or at `public`."""
        near, public = self.near(bucket), self._server.public
        return replace(near, base=f"{as_called(public).rstrip('/')}/{bucket}") if public else near

    def near(self, bucket: str) -> Place:
        """Where we find it ourselves."""
        if bucket not in self._places:
            with _in_our_words():
                self._places[bucket] = self._found(bucket)
        return self._places[bucket]

    def _found(self, bucket: str) -> Place:
        example = urlsplit(
            self.client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
        )
        region = parse_qs(example.query)["X-Amz-Credential"][0].split("/")[2]
        # Amazon's example names no region: a redirect to it would not fit the signature.
        host = example.netloc.replace(_ANYWHERE, urlsplit(self.client.meta.endpoint_url).netloc)
        base = f"{example.scheme}://{host}{example.path.removesuffix('/k')}"
        return Place(as_called(base), region)


def _made(
    session: boto3.session.Session, server: Server, limits: Limits, *, signed: bool = True
) -> Any:
    config = _config(server, limits)
    ambient = session.region_name
    client = session.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region or ambient or (_DEFAULT_REGION if server.endpoint else None),
        config=config if signed else config.merge(Config(signature_version=UNSIGNED)),
    )
    client.meta.events.register_last("before-call.s3", _send_at_once)
    return client


def _send_at_once(params: dict[str, Any], **_: object) -> None:
    """Ask no leave to send a body (`Expect: 100-continue`): the library reads a leave that is cut
    off for ever, and takes one that comes late for the answer to another request."""
    params["headers"].pop("Expect", None)


@contextmanager
def _in_our_words() -> Iterator[None]:
    """A client that cannot be made, or knows nobody to sign for, is an installation to be mended;
    an endpoint that is no URL is a ValueError."""
    try:
        yield
    except (BotoCoreError, ValueError) as error:
        raise Unavailable(f"S3 cannot be reached: {error}") from error


def _config(server: Server, limits: Limits) -> Config:
    return Config(
        connect_timeout=limits.connect_s,
        read_timeout=limits.read_s,
        # Bounded, with jitter, and with a quota: in an outage most calls fail at once.
        retries={"total_max_attempts": limits.attempts, "mode": "standard"},
        max_pool_connections=limits.connections,
        tcp_keepalive=True,
        # The client's own name for itself takes a tenth of each call to put together.
        user_agent="consortium-store",
        signature_version="s3v4",
        s3={
            # What is sent carries a CRC-32C in a signed header; a SHA-256 beside it buys nothing.
            "payload_signing_enabled": False,
            # A server of one's own has one name, not one for each bucket.
            "addressing_style": "path" if server.endpoint else "auto",
        },
        # Checksums are ours to give (CRC-32C) and the callers' to compare, not CRC-32 everywhere.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
