"""Bundle operations over HTTP: list, read, write, patch, delete, and the schemas of metadata."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
from flask import Response
from marshmallow import fields

from api.http.operation import ResponseDoc, StoreContext, json_response, operation, page_responses
from api.http.paging import add_paging_headers, next_page_url
from api.replication import SERVED_BY_DOC, format_replica_states, served_by_header
from api.schemas.bundles import (
    BundleAnswer,
    BundleBody,
    BundleList,
    BundleName,
    BundleWritten,
    ListBundles,
    PatchBody,
    ReadBundle,
    ReasonBody,
    decode_bundle,
)
from api.schemas.fields import (
    Empty,
    JsonObject,
    NoParameters,
    PatchParameters,
    ResponseSchema,
    VersionParameters,
    WriteParameters,
    describe_field,
)
from pipelines import bundles, failover, files, flow, records
from pipelines.bundles import BundleDraft, BundlePatch, FilesPending
from pipelines.manifests import WriteResult
from storage.errors import Invalid
from storage.model import FQID, BundleVersion, ManifestEntry, Replica

TAG = "bundles"


@operation(
    "GET",
    "/bundles/all",
    may_lag=True,
    tag=TAG,
    query=ListBundles,
    responses=page_responses(BundleList),
    paged="bundles",
    description="Lists every live version of every bundle, ordered by uuid, then version.",
)
def get_bundles_all(context: StoreContext[ListBundles, None]) -> Response:
    """List bundles."""
    query, prefix = context.query, context.query.prefix.lower()
    scope = ("get_bundles_all", query.replica, prefix)
    position = context.open_cursor(scope, query.search_after)
    after = FQID(*position) if position else None
    rows = bundles.list_versions(context.stores, query.replica, prefix, after, query.per_page + 1)
    return page_of_bundles(context, scope, rows)


def page_of_bundles(
    context: StoreContext[Any, None], scope: Sequence[str], rows: Sequence[FQID]
) -> Response:
    """Return a page of a list of bundle versions; `rows` has one more if another page follows."""
    size = context.query.per_page
    page, more = rows[:size], len(rows) > size
    content = {
        "bundles": [{"uuid": fqid.uuid, "version": fqid.version} for fqid in page],
        "has_more": more,
        "page_count": len(page),
        "per_page": size,
    }
    last = [page[-1].uuid, page[-1].version] if more else None
    return context.page_response(content, "bundles", scope=scope, last=last)


@operation(
    "GET",
    "/bundles/{uuid}",
    tag=TAG,
    query=ReadBundle,
    responses=page_responses(BundleAnswer, SERVED_BY_DOC),
    errors=(404,),
    paged="bundle.files",
    description="Reads the latest version unless `version` is given. Files come in the order of the"
    " manifest.",
)
def get_bundle(context: StoreContext[ReadBundle, None]) -> Response:
    """Read a bundle."""
    query = context.query
    _check_url_type(context)
    bundle, entries = bundles.read_page(
        context.stores,
        query.replica,
        context.uuid,
        query.version,
        start=query.start_at,
        limit=query.per_page,
    )
    end = query.start_at + len(entries)
    more = bool(entries) and end < bundle.file_count
    served = _find_serving_replica(context, bundle)
    value = _format_bundle(bundle, entries, _make_url_builder(context, served, entries))
    if query.replication:
        value["replication"] = format_replica_states(
            context.stores, "bundle", bundle.id, bundle.fqid
        )
    response = json_response({"bundle": value}, headers=served_by_header(query.replica, served))
    return add_paging_headers(
        response, "bundle.files", _next_files_url(context, bundle, end) if more else None
    )


def _find_serving_replica(
    context: StoreContext[ReadBundle, None], bundle: BundleVersion
) -> Replica:
    """Return the replica that the file URLs point to; without URLs, only the catalog is read."""
    query = context.query
    if not (query.directurls or query.presignedurls):
        return query.replica
    served = failover.choose_replica(context.stores, "bundle", query.replica, bundle.fqid)
    if query.directurls:
        check_direct_urls(context, served, "directurls")
    return served


def _check_url_type(context: StoreContext[ReadBundle, None]) -> None:
    if context.query.directurls and context.query.presignedurls:
        message = "Must not be combined with presignedurls."
        raise Invalid(
            f"directurls: {message}", code="only_one_urltype", errors={"directurls": [message]}
        )
    if context.query.directurls:
        check_direct_urls(context, context.query.replica, "directurls")


def check_direct_urls(context: StoreContext[Any, Any], replica: Replica, parameter: str) -> None:
    """Refuse to reveal paths of this machine's file system unless the settings allow it."""
    settings = context.services.settings
    if settings.bucket(replica).startswith("file:") and not settings.direct_file_urls:
        message = f"Replica {replica} has no direct URLs; use presigned URLs instead"
        raise Invalid(message, errors={parameter: [message]})


def _next_files_url(
    context: StoreContext[ReadBundle, None], bundle: BundleVersion, start_at: int
) -> str:
    changes = {"version": bundle.fqid.version, "start_at": str(start_at)}
    return next_page_url(context.request, context.base, changes)


def _make_url_builder(
    context: StoreContext[ReadBundle, None], replica: Replica, entries: list[ManifestEntry]
) -> Callable[[ManifestEntry], str] | None:
    """Return a function from an entry to its URL, or None if the request wants no URLs.

    Presigned URLs of damaged files point to the other replica.
    """
    if context.query.directurls:
        return lambda entry: files.direct_url(context.stores, replica, entry.checksums.sha256)
    if context.query.presignedurls:
        replicas = failover.find_intact_replicas(context.stores, replica, entries)
        return lambda entry: _signed_url(context, replicas[entry.checksums.sha256], entry)
    return None


def _signed_url(
    context: StoreContext[ReadBundle, None], replica: Replica, entry: ManifestEntry
) -> str:
    expires_s = context.services.settings.signed_url_s
    url = files.content_url(context.stores, replica, entry, expires_s=expires_s)
    return absolute_url(context, url)


def absolute_url(context: StoreContext[Any, Any], url: str) -> str:
    """Prefix a signed URL of a folder bucket, which is a path of this API, with the base URL."""
    return context.base + url if url.startswith("/") else url


def _format_bundle(
    bundle: BundleVersion,
    entries: list[ManifestEntry],
    build_url: Callable[[ManifestEntry], str] | None,
) -> dict[str, Any]:
    lines = records.format_entries(entries)
    if build_url is not None:
        pairs = zip(lines, entries, strict=True)
        lines = [{**line, "url": build_url(entry)} for line, entry in pairs]
    return {
        "uuid": bundle.fqid.uuid,
        "version": bundle.fqid.version,
        "creator_uid": bundle.creator_uid,
        "files": lines,
    }


@operation(
    "PUT",
    "/bundles/{uuid}",
    tag=TAG,
    query=WriteParameters,
    body=BundleBody,
    responses={
        201: ResponseDoc("Written.", BundleWritten),
        200: ResponseDoc("The same content is already stored.", BundleWritten),
    },
    errors=(409, 422, 503),
    max_body_bytes=None,
    decode=decode_bundle,
    description="The order of files does not matter. The request waits for files that are still"
    " being verified, as long as `Prefer: wait=<seconds>` or `respond-async` says."
    " Metadata that does not satisfy the schemas of the store (`GET /schemas`) is 422"
    " `metadata_invalid`.",
)
def put_bundle(context: StoreContext[WriteParameters, BundleBody]) -> Response:
    """Write a bundle version."""
    fqid = FQID(context.uuid, context.query.version)
    draft = BundleDraft(fqid, context.query.replica, context.body.creator_uid, context.body.files)
    write = partial(
        bundles.put, context.stores, draft, context.caller.email, request_id=context.request_id
    )
    written = _write_when_complete(context, draft.replica, write)
    context.send(written.jobs)
    answer = {"version": fqid.version, "manifest": orjson.Fragment(written.manifest)}
    return json_response(answer, 201 if written.created else 200)


def _write_when_complete(
    context: StoreContext[Any, Any], replica: Replica, write: Callable[[], WriteResult]
) -> WriteResult:
    """Write the bundle now, or once the files that are still being verified are stored."""

    def attempt() -> WriteResult | FilesPending:
        try:
            # Checks only the missing files, and without the lock of a write. If one of them can
            # no longer arrive, the write reports it.
            with suppress(Invalid):
                bundles.require_files(context.stores, replica, missing)
            return write()
        except FilesPending as pending:
            return pending

    try:
        return write()
    except FilesPending as pending:
        within_s = context.wait_s(context.services.settings.pending_wait_s)
        if within_s <= 0:
            raise
        missing = pending.missing
    result = context.services.waiting.wait_until(
        attempt,
        lambda result: isinstance(result, WriteResult),
        client=context.client,
        topics=[flow.file_topic(replica, fqid) for fqid in missing],
        within_s=within_s,
    )
    if isinstance(result, FilesPending):
        raise result
    return result


@operation(
    "PATCH",
    "/bundles/{uuid}",
    tag=TAG,
    query=PatchParameters,
    body=PatchBody,
    body_optional=True,
    responses={200: ResponseDoc("A new version was written.", BundleName)},
    errors=(404, 409, 422, 503),
    description="Writes the version that follows the patched one, which stays as it is."
    " Entries to remove that the bundle does not have are ignored. Added"
    " metadata has to satisfy the schemas of the store. With an"
    " `Idempotency-Key`, a repeated request gets the first response again.",
)
def patch_bundle(context: StoreContext[WriteParameters, PatchBody]) -> Response:
    """Add files to a bundle and remove files from it."""
    patch = BundlePatch(
        FQID(context.uuid, context.query.version),
        context.query.replica,
        context.body.new_entries,
        context.body.remove_files,
    )
    repeatable = context.parse_idempotency_key(bundles.patch_digest(patch))

    def write() -> WriteResult:
        return bundles.patch_bundle(
            context.stores,
            patch,
            context.caller.email,
            repeatable=repeatable,
            request_id=context.request_id,
        )

    written = _write_when_complete(context, patch.replica, write)
    context.send(written.jobs)
    return json_response({"uuid": written.fqid.uuid, "version": written.fqid.version})


@operation(
    "DELETE",
    "/bundles/{uuid}",
    tag=TAG,
    query=VersionParameters,
    body=ReasonBody,
    responses={200: ResponseDoc("Deleted.", Empty)},
    errors=(404, 409),
    body_from_query=("reason",),
    description="Hides the version, or the whole bundle when none is named, in all replicas at"
    " once.",
)
def delete_bundle(context: StoreContext[VersionParameters, ReasonBody]) -> Response:
    """Delete a bundle, or one version of it."""
    jobs = bundles.delete(
        context.stores,
        context.query.replica,
        context.uuid,
        context.query.version,
        reason=context.body.reason,
        author=context.caller.email,
        request_id=context.request_id,
    )
    context.send(jobs)
    return json_response({})


class SchemaPattern(ResponseSchema):
    """Files whose names match the pattern have to satisfy the schema."""

    pattern = fields.String(
        required=True,
        metadata=describe_field(
            "A shell pattern, for the whole name or its last part; case-sensitive.",
            example="*.json",
        ),
    )
    name = fields.String(
        required=True,
        metadata=describe_field("The schema's name in `documents`.", example="sample.json"),
    )
    digest = fields.String(
        required=True,
        metadata=describe_field(
            "SHA-256 that changes with the schema or what it refers to.", example="0" * 64
        ),
    )


class MetadataSchemaList(ResponseSchema):
    """The schemas that metadata of new bundles has to satisfy; none by default."""

    schemas = fields.List(fields.Nested(SchemaPattern), required=True)
    documents = JsonObject(
        required=True,
        metadata=describe_field(
            "All schemas by name. They refer to each other by relative name or by `$id`.",
            example={"sample.json": {"type": "object", "required": ["organism"]}},
        ),
    )


@operation(
    "GET",
    "/schemas",
    tag=TAG,
    responses={200: ResponseDoc("The schemas.", MetadataSchemaList)},
    description="Metadata files (`indexed`) of a new bundle version have to satisfy every schema"
    " whose pattern matches their name. Without a `$schema` a schema is of draft 2020-12; `format`"
    " is checked.",
)
def get_schemas(context: StoreContext[NoParameters, None]) -> Response:
    """List the schemas of metadata."""
    found = context.stores.metadata_schemas
    documents: dict[str, Any] = {}
    for schema in found:
        documents |= schema.documents
    listed = [{"pattern": one.pattern, "name": one.name, "digest": one.digest} for one in found]
    return json_response({"schemas": listed, "documents": documents})
