"""Upload large files straight into the bucket of an upload area, with its temporary credentials.

Only where the store issues such credentials, and where the extra for that cloud is installed.
"""

import importlib.util
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

from store_client.checksums import FileChecksums
from store_client.errors import Damaged, NotFound, Refused, StoreError
from store_client.identifiers import parse_version
from store_client.local_files import OutgoingFile
from store_client.transfer import api, gcs, s3
from store_client.transfer.engine import TransferContext
from store_client.transfer.journal import FileJournal

if TYPE_CHECKING:
    from store_client.client import Client

log = logging.getLogger(__name__)

LIBRARIES = {"s3": "boto3", "gs": "google.cloud.storage"}
"""What has to be installed, by the kind of credentials."""
CONNECTIONS = 8
RENEW_BEFORE = timedelta(minutes=5)
"""Credentials that end sooner are renewed: a part takes its time."""
Connect = Callable[[Mapping[str, Any], bool], Any]
"""Makes a client of boto3 from credentials; whether by the accelerated address."""


def find_bucket(client: "Client", area: str, *, accelerate: bool = True) -> "AreaBucket | None":
    """The bucket that files of this area may be sent to; None when they go through the store."""
    usable = [kind for kind, module in LIBRARIES.items() if _is_installed(module)]
    if not usable:
        return None
    try:
        credentials = api.get_credentials(client, area)
    except Refused as error:
        log.info("no credentials for the area, so files go through the store: %s", error)
        return None
    if credentials["kind"] not in usable:
        return None

    def renew() -> Mapping[str, Any]:
        return api.get_credentials(client, area)

    if credentials["kind"] == "s3":
        return S3AreaBucket(credentials, renew, accelerate=accelerate)
    return GcsAreaBucket(credentials, gcs.open_bucket(credentials, renew))


class S3AreaBucket:
    """An area on S3, with credentials that are renewed; many threads share it."""

    def __init__(
        self,
        credentials: Mapping[str, Any],
        renew: Callable[[], Mapping[str, Any]],
        *,
        accelerate: bool = True,
        connect: Connect | None = None,
    ) -> None:
        self._credentials, self._renew = credentials, renew
        self._accelerate = accelerate
        self._connect = connect or _connect
        self._lock = Lock()
        self._client: Any = None

    def url(self, name: str) -> str:
        """The source URL of a file for put_file: `s3://<bucket>/<key>`."""
        return self.object(name).url

    def object(self, name: str) -> s3.S3Object:
        key = f"{self._credentials['prefix'].rstrip('/')}/{name}"
        return s3.S3Object(self._current_client, self._credentials["bucket"], key)

    def send(
        self, outgoing: OutgoingFile, journal: FileJournal, context: TransferContext
    ) -> FileChecksums:
        """Send the parts that are not stored yet, and make them one object."""
        target, lock = self.object(outgoing.name), Lock()
        upload_id, etags = self._begin(target, outgoing, journal.read())

        def record() -> None:
            with lock:
                parts = {str(number): tag for number, tag in dict(etags).items()}
                journal.write({"upload_id": upload_id, "parts": parts})

        record()
        try:
            return target.send_parts(
                upload_id,
                outgoing.local(),
                context,
                etags,
                trusted=frozenset(etags),
                record=record,
            )
        except NotFound as error:
            if error.code != "NoSuchUpload":
                raise
            raise Damaged("the first parts of the file are no longer there") from error

    def _begin(
        self, target: s3.S3Object, outgoing: OutgoingFile, recorded: Mapping[str, Any]
    ) -> tuple[str, dict[int, str]]:
        """Id and stored parts of the upload: the recorded one, else a new one."""
        if "upload_id" in recorded:
            log.info("%s: %d parts are there already", outgoing.name, len(recorded["parts"]))
            parts = {int(number): tag for number, tag in recorded["parts"].items()}
            return recorded["upload_id"], parts
        try:
            return target.begin(outgoing.content_type), {}
        except StoreError as error:
            # That a bucket has no acceleration shows only now.
            if not self._accelerate or "cceleration" not in str(error):
                raise
            self._accelerate, self._client = False, None
            return target.begin(outgoing.content_type), {}

    def _current_client(self) -> Any:
        """A client whose credentials are good for a while yet."""
        with self._lock:
            if parse_version(self._credentials["expires"]) - datetime.now(UTC) < RENEW_BEFORE:
                self._credentials, self._client = self._renew(), None
            if self._client is None:
                self._client = self._connect(self._credentials, self._accelerate)
            return self._client


def _connect(credentials: Mapping[str, Any], accelerate: bool) -> Any:
    return s3.connect_with_credentials(credentials, CONNECTIONS, accelerate=accelerate)


class GcsAreaBucket:
    """An area on Google Cloud Storage; `opened` is the library's bucket."""

    def __init__(self, credentials: Mapping[str, Any], opened: Any) -> None:
        self._credentials, self._bucket = credentials, opened

    def url(self, name: str) -> str:
        """The source URL of a file for put_file: `gs://<bucket>/<key>`."""
        return f"gs://{self._credentials['bucket']}/{self._key(name)}"

    def send(
        self, outgoing: OutgoingFile, journal: FileJournal, context: TransferContext
    ) -> FileChecksums:
        """Send a file through a resumable session, from where an earlier run stopped."""
        with gcs.translate_errors(self.url(outgoing.name), hint="run the same command again"):
            return gcs.send_file(
                self._bucket.blob(self._key(outgoing.name)),
                outgoing.local(),
                outgoing.content_type,
                context,
                session=journal.read().get("session", ""),
                record=lambda session: journal.write({"session": session}),
            )

    def _key(self, name: str) -> str:
        return f"{self._credentials['prefix'].rstrip('/')}/{name}"


AreaBucket = S3AreaBucket | GcsAreaBucket
"""The part of a bucket that an upload area is."""


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
