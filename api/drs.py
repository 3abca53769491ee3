"""GA4GH DRS 1.2: file and bundle versions as objects, for programs that know that interface."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

from flask import Response
from marshmallow import fields, validate

from api.bundles import absolute_url
from api.http.errors import error_response
from api.http.operation import ResponseDoc, StoreContext, json_response, operation
from api.schemas.fields import (
    DrsError,
    NoParameters,
    ResponseSchema,
    VersionParameters,
    describe_field,
    query_flag,
)
from pipelines import drs, failover, files
from pipelines.drs import DrsBundle, DrsFile, ObjectPending
from storage.errors import NotFoundError
from storage.model import FQID, REPLICAS, FileVersion, Replica

TAG = "drs"
ROOT = "/ga4gh/drs/v1"
DRS_VERSION = "1.2.0"


@dataclass(frozen=True)
class ReadObject:
    """Parameters of get_drs_object."""

    expand: Annotated[
        bool, query_flag("List the contents of nested bundles, too; bundles here have none.")
    ]


class ServiceType(ResponseSchema):
    """What a service of GA4GH is."""

    group = fields.String(required=True, metadata={"example": "org.ga4gh"})
    artifact = fields.String(required=True, metadata={"example": "drs"})
    version = fields.String(required=True, metadata={"example": DRS_VERSION})


class Organization(ResponseSchema):
    """Who runs a service."""

    name = fields.String(required=True, metadata={"example": "Data store"})
    url = fields.String(required=True, metadata={"example": "https://store.example"})


class ServiceInfo(ResponseSchema):
    """What this service is (GA4GH service-info)."""

    id = fields.String(required=True, metadata={"example": "example.store.drs"})
    name = fields.String(required=True, metadata={"example": "Data store"})
    type = fields.Nested(ServiceType, required=True)
    description = fields.String(metadata={"example": "Files of the consortium."})
    organization = fields.Nested(Organization, required=True)
    contact_url = fields.String(
        data_key="contactUrl", metadata={"example": "mailto:curator@example.org"}
    )
    documentation_url = fields.String(
        data_key="documentationUrl",
        required=True,
        metadata={"example": "https://store.example/docs"},
    )
    version = fields.String(required=True, metadata={"example": "1"})


class DrsChecksum(ResponseSchema):
    """A checksum in hexadecimal digits."""

    type = fields.String(
        required=True,
        metadata=describe_field(
            "`sha-256`, and for files `sha1`, `crc32c`, and `md5` or (of several parts) `etag`.",
            example="sha-256",
        ),
    )
    checksum = fields.String(required=True, metadata={"example": "567b04600cc779603f2f"})


class AccessUrl(ResponseSchema):
    """Where the bytes of an object are."""

    url = fields.String(
        required=True, metadata={"example": "https://files.example/blobs/56/567b0460?signature=…"}
    )


class AccessMethod(ResponseSchema):
    """A way to the bytes of an object: a URL, or an id to ask for one."""

    type = fields.String(
        required=True, validate=validate.OneOf(["https", "s3", "gs"]), metadata={"example": "https"}
    )
    access_id = fields.String(metadata=describe_field("For get_drs_access.", example="aws"))
    access_url = fields.Nested(AccessUrl)
    region = fields.String(metadata={"example": "eu-1"})


class DrsContent(ResponseSchema):
    """A file of a bundle."""

    name = fields.String(
        required=True,
        metadata=describe_field("Its path in the bundle, with slashes.", example="sample.json"),
    )
    id = fields.String(required=True)
    drs_uri = fields.List(
        fields.String(metadata={"example": "drs://store.example/"}), required=True
    )


class DrsObject(ResponseSchema):
    """A file version, with access methods, or a bundle version, with contents."""

    id = fields.String(required=True)
    self_uri = fields.String(required=True, metadata={"example": "drs://store.example/"})
    size = fields.Integer(
        required=True, metadata=describe_field("Bytes; of a bundle the sum of its files.")
    )
    created_time = fields.String(
        required=True, metadata=describe_field("RFC 3339.", example="2026-01-31T23:59:59.000000Z")
    )
    updated_time = fields.String(
        required=True,
        metadata=describe_field(
            "The same: versions do not change.", example="2026-01-31T23:59:59Z"
        ),
    )
    version = fields.String(required=True)
    mime_type = fields.String(metadata={"example": "application/json"})
    checksums = fields.List(
        fields.Nested(DrsChecksum),
        required=True,
        metadata=describe_field(
            "Of a bundle: the SHA-256 of the sorted, joined SHA-256 checksums of its files."
        ),
    )
    access_methods = fields.List(fields.Nested(AccessMethod))
    contents = fields.List(fields.Nested(DrsContent))


_PENDING = ResponseDoc(
    "Still being verified: the same request again after Retry-After.",
    DrsError,
    headers={"Retry-After": "Seconds to wait."},
)


@operation(
    "GET",
    f"{ROOT}/service-info",
    tag=TAG,
    responses={200: ResponseDoc("The service.", ServiceInfo)},
    description="Also at `/ga4gh/drs/v1/service-info`, like all operations of DRS.",
)
def get_drs_service_info(context: StoreContext[NoParameters, None]) -> Response:
    """Describe this service to clients of GA4GH DRS."""
    settings, base = context.services.settings, context.base
    contact = settings.web_contact
    answer: dict[str, Any] = {
        "id": f"{_reverse_host(base)}.drs",
        "name": settings.web_name,
        "type": {"group": "org.ga4gh", "artifact": "drs", "version": DRS_VERSION},
        "organization": {"name": settings.web_name, "url": base},
        "documentationUrl": f"{base}/docs",
        "version": "1",
    }
    if settings.web_about:
        answer["description"] = settings.web_about
    if contact:
        answer["contactUrl"] = f"mailto:{contact}" if "://" not in contact else contact
    return json_response(answer)


def _reverse_host(base: str) -> str:
    """Return the host of a URL in reverse domain name notation."""
    host = urlsplit(base).hostname or "localhost"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return ".".join(reversed(host.split(".")))
    return host


@operation(
    "GET",
    f"{ROOT}/objects/{{object_id}}",
    tag=TAG,
    query=ReadObject,
    responses={200: ResponseDoc("The object.", DrsObject), 202: _PENDING},
    errors=(404, 422),
    description="An id is `<uuid>.<version>` of a file or a bundle; the file, if both have it."
    " Needs the permission to read the file or bundle, too. Errors are `{msg, status_code}`.",
)
def get_drs_object(context: StoreContext[ReadObject, None]) -> Response:
    """Read an object of GA4GH DRS."""
    fqid = drs.parse_object_id(context.path["object_id"])
    readable = _find_readable(context, fqid)
    try:
        file = drs.find_file(context.stores, readable["get_file"], fqid)
    except ObjectPending as pending:
        return _pending_response(pending)
    if file is not None:
        return json_response(_format_file(context, file))
    host = urlsplit(context.base).netloc
    bundle = drs.find_bundle(
        context.stores, readable["get_bundle"], fqid, lambda object_id: f"drs://{host}/{object_id}"
    )
    if bundle is None:
        raise NotFoundError(f"There is no object {fqid}.")
    return json_response(_format_bundle(context, bundle))


def _find_readable(context: StoreContext[Any, None], fqid: FQID) -> Mapping[str, list[Replica]]:
    """Return in which replicas the caller may read the version, by operation.

    Raise Forbidden if there is none.
    """
    guard = context.services.guard
    named = [
        {"uuid": fqid.uuid, "version": fqid.version, "replica": replica} for replica in REPLICAS
    ]
    readable: dict[str, list[Replica]] = {}
    for name in ("get_file", "get_bundle"):
        allowed = guard.find_allowed(name, context, named)
        readable[name] = [one for one, may in zip(REPLICAS, allowed, strict=True) if may]
    if not any(readable.values()):
        guard.require(
            "get_file",
            replace(
                context, query=VersionParameters("aws", fqid.version), path={"uuid": fqid.uuid}
            ),
        )
    return readable


def _pending_response(pending: ObjectPending) -> Response:
    response = error_response(202, pending.code, pending.detail)
    response.headers["Retry-After"] = str(pending.retry_after_s)
    return response


def _format_file(context: StoreContext[Any, None], file: DrsFile) -> dict[str, Any]:
    row = file.version
    return {
        **_format_version(context, row.fqid, row.created_us),
        "size": row.size,
        "mime_type": row.content_type,
        "checksums": drs.list_checksums(row.checksums),
        "access_methods": [
            method
            for replica in file.replicas
            for method in _list_access_methods(context, replica, row)
        ],
    }


def _format_bundle(context: StoreContext[Any, None], bundle: DrsBundle) -> dict[str, Any]:
    return {
        **_format_version(context, bundle.version.fqid, bundle.version.created_us),
        "size": bundle.size,
        "checksums": [{"type": "sha-256", "checksum": bundle.sha256}],
        "contents": bundle.contents,
    }


def _format_version(
    context: StoreContext[Any, None], fqid: FQID, created_us: int
) -> dict[str, Any]:
    moment = datetime.fromtimestamp(created_us / 1_000_000, UTC)
    time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "id": str(fqid),
        "self_uri": f"drs://{urlsplit(context.base).netloc}/{fqid}",
        "created_time": time,
        "updated_time": time,
        "version": fqid.version,
    }


def _list_access_methods(
    context: StoreContext[Any, None], replica: Replica, file: FileVersion
) -> list[dict[str, Any]]:
    """Return the ways to a file in one replica; signed URLs are made when they are asked for."""
    methods: list[dict[str, Any]] = [{"type": "https", "access_id": replica}]
    url = files.direct_url(context.stores, replica, file.checksums.sha256)
    scheme = urlsplit(url).scheme
    if scheme in ("s3", "gs"):
        methods.append({"type": scheme, "access_url": {"url": url}})
    bucket = urlsplit(context.services.settings.bucket(replica))
    region = parse_qs(bucket.query).get("region")
    return [{**method, "region": region[0]} if region else method for method in methods]


@operation(
    "GET",
    f"{ROOT}/objects/{{object_id}}/access/{{access_id}}",
    tag=TAG,
    responses={200: ResponseDoc("Where the bytes are.", AccessUrl), 202: _PENDING},
    errors=(404,),
    description="The URL is signed, needs no token, and expires. If the copy of the replica is"
    " damaged or its bucket is down, the URL is of the other replica.",
)
def get_drs_access(context: StoreContext[NoParameters, None]) -> Response:
    """Get a URL of the bytes of an object of GA4GH DRS."""
    fqid, access_id = drs.parse_object_id(context.path["object_id"]), context.path["access_id"]
    replicas = [name for name in _find_readable(context, fqid)["get_file"] if name == access_id]
    try:
        file = drs.find_file(context.stores, replicas, fqid)
    except ObjectPending as pending:
        return _pending_response(pending)
    if file is None:
        raise NotFoundError(f"The object {fqid} has no access {access_id[:100]}.")
    row, stores = file.version, context.stores
    served = failover.choose_replica(stores, files.KIND, replicas[0], fqid)
    served = failover.choose_blob_replica(stores, served, row)
    expires_s = context.services.settings.signed_url_s
    url = files.content_url(stores, served, row, expires_s=expires_s)
    return json_response({"url": absolute_url(context, url)})
