"""An area in a bucket of S3, written to with credentials of the area's own: the extra `s3`.

The one module of upload areas that needs boto3; it is imported when there is something to send.
"""

import hashlib
import importlib
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from store_client.areas import asking
from store_client.areas.bodies import Body
from store_client.areas.journal import Journal
from store_client.areas.parts import AT_ONCE, Part, carry
from store_client.areas.reading import Outgoing
from store_client.areas.sent import Sending
from store_client.checksums import Checksums, part_size
from store_client.errors import Damaged, NotAllowed, StoreError, Unreachable
from store_client.versions import parse_version

log = logging.getLogger(__name__)

RENEW_BEFORE = timedelta(minutes=5)
"""Credentials that end sooner are renewed: a part takes its time."""
Connect = Callable[[Mapping[str, Any], bool], Any]
"""Makes the library's client of credentials; whether by the accelerated address."""


def bucket(sending: Sending, said: Mapping[str, Any]) -> "S3Bucket":
    """The bucket that these credentials are for."""
    return S3Bucket(sending, said)


def options(said: Mapping[str, Any], *, accelerate: bool) -> dict[str, Any]:
    """How its addresses look: accelerated ones are Amazon's alone, and have no dots in a name."""
    if said.get("endpoint"):
        return {"addressing_style": "path"}
    fast = accelerate and "." not in said["bucket"]
    return {"use_accelerate_endpoint": True} if fast else {}


class S3Bucket:
    """The bucket, with credentials that are renewed; many threads share it."""

    def __init__(
        self, sending: Sending, said: Mapping[str, Any], *, connect: Connect | None = None
    ) -> None:
        self._sending, self._said = sending, said
        self._connect = connect or _connected
        self._accelerate = sending.accelerate
        self._lock = Lock()
        self._client: Any = None

    def url(self, name: str) -> str:
        """`s3://<bucket>/<key>`."""
        return f"s3://{self._said['bucket']}/{self._key(name)}"

    def fill(self, sending: Sending, outgoing: Outgoing, journal: Journal) -> Checksums:
        """Send the parts that are not there yet, and make them one object."""
        parts = _Parts(journal, self._begin(outgoing, kept=journal.read()))
        place = {"Key": self._key(outgoing.name), "UploadId": parts.upload_id}

        def send(part: Part, body: Body) -> None:
            data = b"".join(part.blocks)
            digest = b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
            said = {**place, "PartNumber": part.number, "ContentMD5": digest}
            answer = self.ask("upload_part", **said, Body=data)
            parts.add(part.number, answer["ETag"])
            # Told when it has arrived: the library says nothing on the way.
            for _ in body.blocks():
                pass

        ours = carry(
            sending,
            outgoing,
            send,
            part_size=part_size(outgoing.size),
            stored=frozenset(parts.done),
        )
        self.ask("complete_multipart_upload", **place, MultipartUpload={"Parts": parts.listed()})
        return ours

    def ask(self, verb: str, **said: Any) -> Any:
        """One request; errors are this client's."""
        exceptions = importlib.import_module("botocore.exceptions")
        try:
            return getattr(self._now(), verb)(Bucket=self._said["bucket"], **said)
        except exceptions.ClientError as error:
            raise _told(error.response.get("Error", {})) from error
        except exceptions.BotoCoreError as error:
            raise Unreachable(f"S3 does not answer: {error}") from error

    def _begin(self, outgoing: Outgoing, *, kept: Mapping[str, Any]) -> Mapping[str, Any]:
        if "upload_id" in kept:
            log.info("%s: %d parts are there already", outgoing.name, len(kept["parts"]))
            return kept
        place = {"Key": self._key(outgoing.name), "ContentType": outgoing.content_type}
        try:
            answer = self.ask("create_multipart_upload", **place)
        except StoreError as error:
            # A bucket may not have it, which nobody is told beforehand.
            if not self._accelerate or "cceleration" not in str(error):
                raise
            self._accelerate, self._client = False, None
            answer = self.ask("create_multipart_upload", **place)
        return {"upload_id": answer["UploadId"], "parts": {}}

    def _key(self, name: str) -> str:
        return f"{self._said['prefix'].rstrip('/')}/{name}"

    def _now(self) -> Any:
        """A client whose credentials are good for a while yet."""
        with self._lock:
            if parse_version(self._said["expires"]) - datetime.now(UTC) < RENEW_BEFORE:
                self._said = asking.credentials(self._sending.client, self._sending.area)
                self._client = None
            if self._client is None:
                self._client = self._connect(self._said, self._accelerate)
            return self._client


class _Parts:
    """Which parts of an upload are there, remembered as they come."""

    def __init__(self, journal: Journal, begun: Mapping[str, Any]) -> None:
        self._journal = journal
        self._lock = Lock()
        self.upload_id: str = begun["upload_id"]
        self.done: dict[int, str] = {int(number): tag for number, tag in begun["parts"].items()}
        self._keep()

    def add(self, number: int, tag: str) -> None:
        with self._lock:
            self.done[number] = tag
            self._keep()

    def listed(self) -> list[dict[str, Any]]:
        return [{"PartNumber": number, "ETag": self.done[number]} for number in sorted(self.done)]

    def _keep(self) -> None:
        self._journal.keep(
            {"upload_id": self.upload_id, "parts": {str(n): tag for n, tag in self.done.items()}}
        )


def _connected(said: Mapping[str, Any], accelerate: bool) -> Any:
    config = importlib.import_module("botocore.config").Config(
        s3=options(said, accelerate=accelerate),
        retries={"mode": "standard", "total_max_attempts": 6},
        signature_version="s3v4",
        max_pool_connections=AT_ONCE,
        # Each part carries its MD5, which servers other than Amazon's know, too.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # A session of its own: the shared one is not safe among threads.
    session = importlib.import_module("boto3").session.Session(
        aws_access_key_id=said["access_key_id"],
        aws_secret_access_key=said["secret_access_key"],
        aws_session_token=said["session_token"],
        region_name=said["region"],
    )
    client = session.client("s3", endpoint_url=said.get("endpoint"), config=config)
    client.meta.events.register_last("before-call.s3", send_at_once)
    return client


def send_at_once(params: dict[str, Any], **_: object) -> None:
    """Ask no leave to send a body: of a leave that is cut off the library waits for the rest for
    ever, and takes one that comes late for the answer to another request."""
    params["headers"].pop("Expect", None)


def _told(error: Mapping[str, Any]) -> StoreError:
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    if code == "NoSuchUpload":
        return Damaged("the first parts of the file are no longer there")
    if code in ("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "403"):
        return NotAllowed(f"S3 refuses the credentials of the area: {code} {message}")
    return Unreachable(f"S3 answers {code}: {message}")
