"""Upload objects to S3: clients, multipart uploads, and errors in our words; needs boto3."""

import base64
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from store_client.checksums import FileChecksums, part_size
from store_client.errors import NotAllowed, NotFound, Refused, StoreError, Unreachable
from store_client.local_files import LocalFile
from store_client.transfer.engine import MemoryBody, TransferContext, import_extra
from store_client.transfer.parts import send_parts

log = logging.getLogger(__name__)

ATTEMPTS = 6
CONNECT_S, READ_S = 10, 90
REFUSED_CREDENTIALS = ("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "403")
_REGION = "us-east-1"
"""The region of a server of one's own, when nothing names one."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def connect(connections: int) -> Any:
    """A client of boto3 with the ambient credentials, region and endpoint."""
    session = _import_library("boto3.session").Session()
    own = any(os.environ.get(name) for name in _ENDPOINTS)
    # A server of one's own has one name, not one for each bucket.
    options = {"addressing_style": "path" if own else "auto"}
    region = session.region_name or (_REGION if own else None)
    with translate_errors("S3"):
        return _open_client(session, connections, options, region_name=region)


def connect_with_credentials(
    credentials: Mapping[str, Any], connections: int, *, accelerate: bool
) -> Any:
    """A client of boto3 with the temporary credentials of an upload area."""
    # A separate session: the shared one is not thread-safe.
    session = _import_library("boto3.session").Session(
        aws_access_key_id=credentials["access_key_id"],
        aws_secret_access_key=credentials["secret_access_key"],
        aws_session_token=credentials["session_token"],
        region_name=credentials["region"],
    )
    options = address_options(credentials, accelerate=accelerate)
    return _open_client(session, connections, options, endpoint_url=credentials.get("endpoint"))


def address_options(credentials: Mapping[str, Any], *, accelerate: bool) -> dict[str, Any]:
    """Options of addresses; only Amazon's are accelerated, for names without dots."""
    if credentials.get("endpoint"):
        return {"addressing_style": "path"}
    fast = accelerate and "." not in credentials["bucket"]
    return {"use_accelerate_endpoint": True} if fast else {}


def _open_client(session: Any, connections: int, options: dict[str, Any], **where: Any) -> Any:
    config = _import_library("botocore.config").Config(
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=connections,
        tcp_keepalive=True,
        user_agent="store-client",
        signature_version="s3v4",
        # Each body carries its MD5 in a signed header, which servers other than Amazon's check,
        # too: a SHA-256 or CRC beside it buys nothing.
        s3={"payload_signing_enabled": False, **options},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = session.client("s3", config=config, **where)
    client.meta.events.register_last("before-call.s3", remove_expect_header)
    return client


def remove_expect_header(params: dict[str, Any], **_: object) -> None:
    """Send bodies without waiting for `100 Continue`.

    When that answer is cut off, the library waits for ever; when it is late, the library takes it
    for the answer to another request.
    """
    params["headers"].pop("Expect", None)


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Raise the errors of boto3 as StoreError."""
    errors = _import_library("botocore.exceptions")
    try:
        yield
    except errors.ClientError as error:
        raise _error_from_response(error.response, place) from error
    except (errors.NoCredentialsError, errors.PartialCredentialsError) as error:
        raise NotAllowed(
            f"there are no S3 credentials for {place}",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        ) from error
    except (errors.HTTPClientError, errors.ConnectionError) as error:
        raise Unreachable(f"{place}: {error}") from error
    except (errors.BotoCoreError, ValueError) as error:
        raise StoreError(f"{place}: {error}") from error


def _error_from_response(response: Any, place: str) -> StoreError:
    details = response.get("Error", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(details.get("Code", status))
    message = f"{place}: {details.get('Message', 'no reason was given')} ({code})"
    if status >= 500 and status != 501:
        return Unreachable(message)
    kind = {401: NotAllowed, 403: NotAllowed, 404: NotFound}.get(status, Refused)
    if code in REFUSED_CREDENTIALS:
        kind = NotAllowed
    return kind(message, status=status, problem={"code": code})


def _import_library(name: str) -> Any:
    return import_extra(name, "S3 needs boto3", extra="s3")


class S3Object:
    """One object of a bucket, uploaded whole or in parts.

    `client` is called before each request, for credentials may have been renewed.
    """

    def __init__(self, client: Callable[[], Any], bucket: str, key: str) -> None:
        self._client, self._place = client, {"Bucket": bucket, "Key": key}
        self.url = f"s3://{bucket}/{key}"

    def call(self, verb: str, **arguments: Any) -> Any:
        """One request about this object; StoreError."""
        with translate_errors(self.url):
            return getattr(self._client(), verb)(**self._place, **arguments)

    def put(
        self, data: bytes, checksums: FileChecksums, content_type: str, context: TransferContext
    ) -> None:
        """Upload it in one request, with its checksums as metadata."""
        self._send(
            "put_object",
            MemoryBody(data, context),
            context,
            ContentType=content_type,
            ContentMD5=_encode_base64(bytes.fromhex(checksums.s3_etag)),
            Metadata=checksums.metadata(),
        )

    def begin(self, content_type: str, **more: Any) -> str:
        """Begin a multipart upload; its id."""
        begun = self.call("create_multipart_upload", ContentType=content_type, **more)
        return str(begun["UploadId"])

    def send_parts(
        self,
        upload_id: str,
        file: LocalFile,
        context: TransferContext,
        etags: dict[int, str],
        *,
        trusted: Collection[int] = (),
        record: Callable[[], None] = lambda: None,
    ) -> FileChecksums:
        """Send the parts that are not stored, and complete the upload.

        `etags` are the entity tags of stored parts. Parts are compared by their MD5, unless they
        are `trusted`. `record` is called after each part.
        """
        digests = _md5_etags(etags)

        def send(number: int, data: bytes, digest: bytes) -> None:
            answer = self._send(
                "upload_part",
                MemoryBody(data, context),
                context,
                UploadId=upload_id,
                PartNumber=number,
                ContentMD5=_encode_base64(digest),
            )
            etags[number] = answer["ETag"]
            record()

        checksums = send_parts(
            file,
            context,
            send,
            is_stored=lambda number, digest: number in trusted or digests.get(number) == digest,
        )
        parts = [{"PartNumber": number, "ETag": etags[number]} for number in sorted(etags)]
        self.call("complete_multipart_upload", UploadId=upload_id, MultipartUpload={"Parts": parts})
        return checksums

    def list_parts(self, upload_id: str) -> dict[int, str] | None:
        """Entity tags of the stored parts by number; None when the upload does not exist."""
        pages = self._client().get_paginator("list_parts")
        try:
            with translate_errors(self.url):
                return {
                    part["PartNumber"]: part["ETag"]
                    for page in pages.paginate(**self._place, UploadId=upload_id)
                    for part in page.get("Parts", ())
                }
        except NotFound:
            return None

    def head(self) -> Mapping[str, Any] | None:
        """What S3 says of the object; None when it cannot be seen."""
        try:
            found: Mapping[str, Any] = self.call("head_object")
        except Refused:
            return None
        return found

    def write_checksums(
        self, file: LocalFile, content_type: str, checksums: FileChecksums, context: TransferContext
    ) -> None:
        """Add checksums as tags, or, where tags are refused, as metadata of a copy in place."""
        tags = [{"Key": name, "Value": value} for name, value in checksums.metadata().items()]
        try:
            self.call("put_object_tagging", Tagging={"TagSet": tags})
        except Refused as error:
            log.info("tags are refused, so the object is copied in place: %s", error)
            self.copy_in_place(file, content_type, checksums, context)

    def copy_in_place(
        self, file: LocalFile, content_type: str, checksums: FileChecksums, context: TransferContext
    ) -> None:
        """Replace the object by itself with metadata, in the same parts; no bytes are sent."""
        upload_id = self.begin(content_type, Metadata=checksums.metadata())
        step = part_size(file.size)
        try:
            copied = {
                number: context.part_pool.submit(
                    self._copy_part, upload_id, number, (start, min(start + step, file.size))
                )
                for number, start in enumerate(range(0, file.size, step), 1)
            }
            self.call(
                "complete_multipart_upload",
                UploadId=upload_id,
                MultipartUpload={
                    "Parts": [
                        {"PartNumber": number, "ETag": found.result()}
                        for number, found in copied.items()
                    ]
                },
            )
        except BaseException:
            self.abort(upload_id)
            raise

    def abort(self, upload_id: str) -> None:
        """Abort a multipart upload; a failure is only logged."""
        try:
            self.call("abort_multipart_upload", UploadId=upload_id)
        except StoreError as error:
            log.warning("an unfinished upload is left at %s: %s", self.url, error)

    def _copy_part(self, upload_id: str, number: int, span: tuple[int, int]) -> str:
        answer = self.call(
            "upload_part_copy",
            UploadId=upload_id,
            PartNumber=number,
            CopySource=self._place,
            CopySourceRange=f"bytes={span[0]}-{span[1] - 1}",
        )
        return str(answer["CopyPartResult"]["ETag"])

    def _send(self, verb: str, body: MemoryBody, context: TransferContext, **more: Any) -> Any:
        try:
            return self.call(verb, Body=body, **more)
        except StoreError:
            # The library takes a stop for a failure of the network.
            context.stop.check()
            raise


def _md5_etags(etags: Mapping[int, str]) -> dict[int, bytes]:
    """Entity tags that are MD5s; those of parts encrypted with other keys are not."""
    plain = {number: tag.strip('"') for number, tag in etags.items()}
    return {number: bytes.fromhex(tag) for number, tag in plain.items() if len(tag) == 32}


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
