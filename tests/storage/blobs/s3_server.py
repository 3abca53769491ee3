"""A simulated S3 server on loopback: moto with conditional writes.

The gate lets one request through at a time, which makes conditional writes atomic, and holds moto
to S3's documentation where the store depends on it: conditions on CopyObject, UploadPartCopy and
DeleteObject, CRC-32C of what arrives and of whole multipart objects, signed URLs and their expiry.
"""

import atexit
import base64
import functools
import io
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import google_crc32c
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

ACCESS_KEY, SECRET_KEY = "testing", "testing-secret"

ASKED: list[str] = []
"""What the simulated servers of this process were asked, in `spoken` words."""

Environ = dict[str, Any]
Start = Callable[..., Any]


class Refused(Exception):
    """An answer in moto's place."""

    def __init__(self, status: str, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


PRECONDITION = Refused("412 Precondition Failed", "PreconditionFailed")


class Quiet(MotoRequestHandler):
    """Logs nothing, and keeps connections."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        """Silent."""


class Gate:
    """The WSGI application; one that is `careless` heeds no condition on a copy's target, as
    servers do that speak an older S3."""

    def __init__(self, *, careless: bool = False) -> None:
        self._careless = careless
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if len(body) < length:
            # The client went away: nobody asked, at a time that no test can know.
            return refuse(environ, Refused("400 Bad Request", "IncompleteBody"), start)
        environ["wsgi.input"] = io.BytesIO(body)
        ASKED.append(spoken(environ))
        with self._lock:
            if self._careless and "HTTP_X_AMZ_COPY_SOURCE" in environ:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            try:
                check(environ, body)
            except Refused as refused:
                return refuse(environ, refused, start)
            return self._answered(environ, body, start)

    def _answered(self, environ: Environ, body: bytes, start: Start) -> Iterable[bytes]:
        told: list[Any] = []
        answer = b"".join(self._moto(environ, lambda *args: told.extend(args)))
        status, headers, *_ = told
        if status.startswith("200"):
            answer, headers = with_checksum(environ, body, answer, headers)
        start(status, headers)
        return [answer]


def spoken(environ: Environ) -> str:
    """One request in a word or three: what tells S3's operations apart."""
    names = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True).keys()
    copied = ["copy"] if "HTTP_X_AMZ_COPY_SOURCE" in environ else []
    parts = sorted(names & {"uploads", "uploadId", "partNumber", "tagging", "versions"})
    return " ".join([environ["REQUEST_METHOD"], *copied, *parts])


def refuse(environ: Environ, refused: Refused, start: Start) -> Iterable[bytes]:
    text = f"<Error><Code>{refused.code}</Code><Message>no</Message></Error>".encode()
    body = b"" if environ["REQUEST_METHOD"] == "HEAD" else text
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start(refused.status, headers)
    return [body]


def check(environ: Environ, body: bytes) -> None:
    """Raise what S3 would answer and moto does not."""
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    if "X-Amz-Signature" in query:
        check_signed_url(environ, query)
    bucket, key = place(environ)
    method = environ["REQUEST_METHOD"]
    if "HTTP_X_AMZ_COPY_SOURCE" in environ:
        check_copy(environ)
    if method == "PUT" and environ.get("HTTP_IF_NONE_MATCH") == "*" and found(bucket, key):
        raise PRECONDITION
    if method == "DELETE" and "HTTP_IF_MATCH" in environ:
        there = found(bucket, key)
        if there and there.etag != environ["HTTP_IF_MATCH"]:
            raise PRECONDITION
    if "uploadId" in query:
        check_upload(bucket, key, query["uploadId"][0])
    declared = environ.get("HTTP_X_AMZ_CHECKSUM_CRC32C")
    if method == "PUT" and declared and declared != crc32c(body):
        raise Refused("400 Bad Request", "BadDigest")


def check_copy(environ: Environ) -> None:
    path, _, version = environ["HTTP_X_AMZ_COPY_SOURCE"].partition("?versionId=")
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    source = found(bucket, key, version or None)
    if source is None:
        raise Refused("404 Not Found", "NoSuchVersion" if version else "NoSuchKey")
    if environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH", source.etag) != source.etag:
        raise PRECONDITION


def check_upload(bucket: str, key: str, token: str) -> None:
    """Moto takes any upload's id for any key."""
    upload = backend().buckets[bucket].multiparts.get(token)
    if upload is None or upload.key_name != key:
        raise Refused("404 Not Found", "NoSuchUpload")


def with_checksum(
    environ: Environ, body: bytes, answer: bytes, headers: list[tuple[str, str]]
) -> tuple[bytes, list[tuple[str, str]]]:
    """What S3 tells of the CRC-32C of what it stores: moto knows CRC-32 only."""
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    method, declared = environ["REQUEST_METHOD"], environ.get("HTTP_X_AMZ_CHECKSUM_CRC32C")
    if method == "PUT" and declared:
        told = ("x-amz-checksum-crc32c", declared)
        headers = [*(pair for pair in headers if pair[0].lower() != told[0]), told]
    if method not in ("PUT", "POST") or query.keys() & {"partNumber", "uploads", "tagging"}:
        return answer, headers
    whole = found(*place(environ))
    if whole is None or not (declared or sums(environ, whole)):
        return answer, headers
    whole.checksum_algorithm, whole.checksum_type = "CRC32C", "FULL_OBJECT"
    whole.checksum_value = crc32c(whole.value)
    told_xml = f"<ChecksumCRC32C>{whole.checksum_value}</ChecksumCRC32C>\\1".encode()
    answer = re.sub(rb"<ChecksumCRC32C>[^<]*</ChecksumCRC32C>", b"", answer)
    answer = re.sub(rb"(</(?:CopyObject|CompleteMultipartUpload)Result>)", told_xml, answer)
    headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
    return answer, [*headers, ("Content-Length", str(len(answer)))]


def sums(environ: Environ, whole: Any) -> bool:
    """Whether a copy or an upload was to have one checksum."""
    begun = whole.multipart.metadata if whole.multipart else {}
    copied = environ.get("HTTP_X_AMZ_CHECKSUM_ALGORITHM")
    return "CRC32C" in (copied, begun.get("x-amz-checksum-algorithm"))


def check_signed_url(environ: Environ, query: dict[str, list[str]]) -> None:
    """As botocore computes it, and by its date; a header of S3's own must be signed."""
    given = {name: values[0] for name, values in query.items() if name != "X-Amz-Signature"}
    at = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    region = given["X-Amz-Credential"].split("/")[2]
    signer = S3SigV4QueryAuth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", region)
    path = quote(unquote(environ["RAW_URI"].partition("?")[0]), safe="/~")
    url = f"http://{environ['HTTP_HOST']}{path}"
    signed = given["X-Amz-SignedHeaders"].split(";")
    told = {"content-length": environ.get("CONTENT_LENGTH", "")} | {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    unsigned = [name for name in told if name.startswith("x-amz-") and name not in signed]
    headers = {name: told.get(name, "") for name in signed}
    request = AWSRequest(environ["REQUEST_METHOD"], url, headers=headers, params=given)
    request.context["timestamp"] = given["X-Amz-Date"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    lives = at + timedelta(seconds=int(given["X-Amz-Expires"])) > datetime.now(UTC)
    if signer.signature(text, request) != query["X-Amz-Signature"][0] or not lives or unsigned:
        raise Refused("403 Forbidden", "AccessDenied")


def backend() -> Any:
    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def place(environ: Environ) -> tuple[str, str]:
    bucket, _, key = unquote(environ["RAW_URI"].partition("?")[0][1:]).partition("/")
    return bucket, key


def found(bucket: str, key: str, version: str | None = None) -> Any:
    """Moto's object, or None."""
    if bucket not in backend().buckets:
        return None
    return backend().get_object(bucket, key, version_id=version)


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


@contextmanager
def s3_server(*, careless: bool = False) -> Iterator[str]:
    """The base URL of a simulated S3; its objects are the process's, so buckets need new names."""
    server = make_server(
        "127.0.0.1", 0, Gate(careless=careless), threaded=True, request_handler=Quiet
    )
    # A daemon: one that lasts is stopped when the process ends, after all other threads.
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@functools.cache
def lasting_s3() -> str:
    """The base URL of one that is there until this process ends: clients cost more than tests."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(s3_server())
