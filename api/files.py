"""File operations over HTTP: write by reference, read by redirect, ingest tasks."""

from typing import Any

from flask import Response

from api.bundles import absolute_url, check_direct_urls, page_of_bundles
from api.http.auth import find_source_replica
from api.http.errors import compute_retry_after_s, http_status
from api.http.operation import (
    ResponseDoc,
    StoreContext,
    json_response,
    operation,
    page_responses,
    redirect,
)
from api.http.responses import check_inline
from api.replication import REPLICATION_DOCS, format_replication_header, served_by_header
from api.schemas.bundles import BundleList
from api.schemas.fields import NoParameters, ReplicaParameters
from api.schemas.files import (
    FILE_HEADERS,
    FileBody,
    FilesWritten,
    FileWritten,
    HeadFile,
    ListFileBundles,
    NewFilesBody,
    ReadFile,
    TaskAnswer,
    WriteFile,
)
from pipelines import bundles, failover, files, flow, ingest
from pipelines.files import FileLocation
from pipelines.ingest import IngestRequest, IngestTask
from pipelines.limits import PENDING_RETRY_S
from storage.catalog.ingest import IngestTaskRow
from storage.errors import ConflictError, DomainError, QuotaExceeded, Unprocessable
from storage.model import FQID, Checksums, FileVersion, Replica

TAG = "files"


# Listed before put_file: clients that name methods after paths keep the last of a name.
@operation(
    "PUT",
    "/files",
    tag=TAG,
    query=ReplicaParameters,
    body=NewFilesBody,
    responses={200: ResponseDoc("The result of each file, in order.", FilesWritten)},
    errors=(403, 503),
    description="For many small files: each is accepted or refused as by put_file,"
    " without waiting for its verification. The status is 200 even if all"
    " are refused: each refused item has `status`, `code`, `detail` and,"
    " where put_file has them, `errors` and `retry_after_s`. An item with"
    " neither `task_id` nor `code` is stored already.",
)
def put_files(context: StoreContext[ReplicaParameters, NewFilesBody]) -> Response:
    """Write several file versions."""
    accepted = ingest.start_tasks(
        context.stores,
        [
            IngestRequest(
                FQID(item.uuid, item.version),
                context.query.replica,
                item.source_url,
                item.creator_uid,
            )
            for item in context.body.files
        ],
        context.caller.email,
        prefixes=context.services.settings.checksum_prefixes,
        request_id=context.request_id,
    )
    context.send(
        [row for item in accepted if isinstance(item, ingest.AcceptedIngest) for row in item.jobs]
    )
    results = [
        {"uuid": item.uuid, "version": item.version, **_format_result(result)}
        for item, result in zip(context.body.files, accepted, strict=True)
    ]
    return json_response({"files": results})


@operation(
    "PUT",
    "/files/{uuid}",
    tag=TAG,
    query=WriteFile,
    body=FileBody,
    responses={
        201: ResponseDoc("Verified and stored.", FileWritten),
        200: ResponseDoc("The same content is stored already.", FileWritten),
        202: ResponseDoc(
            "Still being verified.", FileWritten, {"Location": "URL of the task to ask."}
        ),
    },
    errors=(403, 409, 422, 503),
    aliases=("/file/{uuid}",),
    description="The source must carry `store-sha1`, `store-sha256`, `store-crc32c` and"
    " `store-s3_etag` as metadata. `Prefer: wait=<seconds>` or `respond-async` says how long to"
    " wait.",
)
def put_file(context: StoreContext[WriteFile, FileBody]) -> Response:
    """Write a file version."""
    fqid = FQID(context.uuid, context.query.version)
    accepted = _deposit_file(context, fqid)
    context.send(accepted.jobs)
    if accepted.task_id is None:
        return json_response({"version": fqid.version})
    task = _wait_for_task(context, accepted.task_id)
    if task.state == "SUCCEEDED":
        return json_response({"version": fqid.version}, 201 if accepted.is_new else 200)
    if task.state == "FAILED":
        raise _task_error(task)
    location = {"Location": f"{context.base}/v1/tasks/{task.id}"}
    return json_response({"version": fqid.version, "task_id": task.id}, 202, location)


def _deposit_file(context: StoreContext[WriteFile, FileBody], fqid: FQID) -> ingest.AcceptedIngest:
    body = context.body
    replica = context.query.replica or find_source_replica(body.source_url, context.stores.sources)
    return ingest.start_task(
        context.stores,
        IngestRequest(fqid, replica, body.source_url, body.creator_uid),
        context.caller.email,
        prefixes=context.services.settings.checksum_prefixes,
        request_id=context.request_id,
    )


def _format_result(result: ingest.AcceptedIngest | DomainError) -> dict[str, Any]:
    """Format the result of one file."""
    if isinstance(result, DomainError):
        status = http_status(result)
        wait_s = compute_retry_after_s(status, result.code, result.retry_after_s, "PUT")
        return {
            "status": status,
            "code": result.code,
            "detail": result.detail,
            **({"errors": result.errors} if result.errors else {}),
            **({"quota": result.quota} if isinstance(result, QuotaExceeded) else {}),
            **({} if wait_s is None else {"retry_after_s": wait_s}),
        }
    return {"task_id": result.task_id} if result.task_id else {}


def _wait_for_task(context: StoreContext[WriteFile, FileBody], task_id: str) -> IngestTask:
    """Return the task when it ends, or when the wait times out."""
    return context.services.waiting.wait_until(
        lambda: ingest.get_task(context.stores, task_id),
        lambda task: task.state in ("SUCCEEDED", "FAILED"),
        client=context.client,
        topics=[flow.task_topic(task_id)],
        within_s=context.wait_s(context.services.settings.wait_s),
    )


def _task_error(task: IngestTask) -> Exception:
    """Return the error for the client that waits for verification."""
    cause = task.cause or {}
    code, detail = str(cause.get("code", "checksum_mismatch")), str(cause.get("detail", "Failed."))
    if code == "file_already_exists":
        return ConflictError(detail, code=code)
    mismatch = f"declared {cause.get('declared')}, computed {cause.get('computed')}"
    errors = {f"/{cause['field']}": [mismatch]} if "field" in cause else {}
    return Unprocessable(detail, code=code, errors=errors)


@operation(
    "GET",
    "/tasks/{task_id}",
    tag=TAG,
    responses={200: ResponseDoc("The progress.", TaskAnswer)},
    errors=(404,),
)
def get_task(context: StoreContext[NoParameters, None]) -> Response:
    """Show how far a file's verification is."""
    task = ingest.get_task(context.stores, context.path["task_id"])
    answer: dict[str, Any] = {
        "task_id": task.id,
        "status": task.state,
        "uuid": task.fqid.uuid,
        "version": task.fqid.version,
        "replica": task.replica,
        "bytes_done": task.bytes_done,
        "bytes_total": task.size,
    }
    return json_response({**answer, "cause": task.cause} if task.cause else answer)


_RETRY_LATER = ResponseDoc(
    "Not here yet: the same URL again after Retry-After.",
    headers={"Location": "This URL.", "Retry-After": "Seconds to wait."},
)


@operation(
    "GET",
    "/files/{uuid}",
    tag=TAG,
    query=ReadFile,
    responses={
        302: ResponseDoc(
            "Where the content is.",
            headers={"Location": "Its URL.", **FILE_HEADERS, **REPLICATION_DOCS},
        ),
        301: _RETRY_LATER,
    },
    errors=(404, 422),
    description="Reads the latest verified version unless `version` is given. The"
    " request waits for a file that is not here yet, as long as `Prefer:"
    " wait=<seconds>` or `respond-async` says.",
)
def get_file(context: StoreContext[ReadFile, None]) -> Response:
    """Read a file: a redirect to its content."""
    query = context.query
    if query.directurl:
        check_direct_urls(context, query.replica, "directurl")
    else:
        in_folder = context.services.settings.bucket(query.replica).startswith("file:")
        check_inline(query.content_disposition, from_folder=in_folder)
    location = _wait_for_file(context, query.replica, query.version)
    served = failover.choose_file_replica(context.stores, query.replica, location)
    if served is None or location.file is None:
        return _retry_response(context, location)
    served = failover.choose_blob_replica(context.stores, served, location.file)
    return redirect(
        _content_location(context, served, location.file),
        302,
        _read_headers(context, served, location.file),
    )


def _read_headers(
    context: StoreContext[Any, Any], served: Replica, file: FileVersion
) -> dict[str, str]:
    """Return all headers of a readable file."""
    headers = file_headers(file) | {"ETag": f'"{file.fqid}"'}
    if context.query.replication:
        headers |= format_replication_header(context.stores, file.id, file.fqid)
    return headers | served_by_header(context.query.replica, served)


def _content_location(
    context: StoreContext[ReadFile, None], replica: Replica, file: FileVersion
) -> str:
    query = context.query
    if query.directurl:
        check_direct_urls(context, replica, "directurl")
        return files.direct_url(context.stores, replica, file.checksums.sha256)
    url = files.content_url(
        context.stores,
        replica,
        file,
        expires_s=context.services.settings.signed_url_s,
        disposition=query.content_disposition,
    )
    return absolute_url(context, url)


@operation(
    "HEAD",
    "/files/{uuid}",
    tag=TAG,
    query=HeadFile,
    responses={
        200: ResponseDoc("Its metadata.", headers={**FILE_HEADERS, **REPLICATION_DOCS}),
        301: _RETRY_LATER,
    },
    errors=(404, 422),
    description="Reads the latest verified version unless `version` is given. The"
    " request waits for a file that is not here yet, as long as `Prefer:"
    " wait=<seconds>` or `respond-async` says.",
)
def head_file(context: StoreContext[HeadFile, None]) -> Response:
    """Read a file's metadata."""
    location = _wait_for_file(context, context.query.replica, context.query.version)
    served = failover.choose_file_replica(context.stores, context.query.replica, location)
    if served is None or location.file is None:
        return _retry_response(context, location)
    served = failover.choose_blob_replica(context.stores, served, location.file)
    return Response(
        b"", headers=_read_headers(context, served, location.file), mimetype="text/plain"
    )


@operation(
    "GET",
    "/files/{uuid}/bundles",
    may_lag=True,
    tag=TAG,
    query=ListFileBundles,
    responses=page_responses(BundleList),
    errors=(404,),
    paged="bundles",
    description="Lists the live bundle versions that contain the file, ordered by uuid, then"
    " version. Any version of the file counts unless `version` is given.",
)
def get_file_bundles(context: StoreContext[ListFileBundles, None]) -> Response:
    """List the bundles that contain a file."""
    query = context.query
    scope = ("get_file_bundles", query.replica, context.uuid, query.version or "")
    position = context.open_cursor(scope, query.search_after)
    rows = bundles.list_containing(
        context.stores,
        query.replica,
        context.uuid,
        query.version,
        after=FQID(*position) if position else None,
        limit=query.per_page + 1,
    )
    return page_of_bundles(context, scope, rows)


def _wait_for_file(
    context: StoreContext[Any, Any], replica: Replica, version: str | None
) -> FileLocation:
    """Return where the file is, once it is here or the wait ends."""
    location = files.locate(context.stores, replica, context.uuid, version)
    if failover.choose_file_replica(context.stores, replica, location) is not None:
        return location
    fqid = (
        location.task.fqid
        if location.file is None and location.task
        else getattr(location.file, "fqid", None)
    )
    topics = [flow.file_topic(replica, fqid)] if fqid else []
    topics += [flow.task_topic(location.task.id)] if location.task else []
    return context.services.waiting.wait_until(
        lambda: files.locate(context.stores, replica, context.uuid, version),
        lambda current: current.state == "here",
        client=context.client,
        topics=topics,
        within_s=context.wait_s(context.services.settings.wait_s),
    )


def _retry_response(context: StoreContext[Any, Any], location: FileLocation) -> Response:
    """Redirect to the same URL, with the file's stored or declared metadata."""
    headers = {"Retry-After": str(PENDING_RETRY_S), "Cache-Control": "no-store"}
    if location.file is not None:
        headers |= file_headers(location.file)
    elif location.task is not None:
        headers |= _format_headers(location.task, location.task.declared)
    query = context.request.query_string.decode("ascii", "replace")
    url = f"{context.base}{context.request.path}" + (f"?{query}" if query else "")
    return redirect(url, 301, headers)


def file_headers(file: FileVersion) -> dict[str, str]:
    """Return the response headers that the specification defines."""
    return _format_headers(file, file.checksums)


def _format_headers(file: FileVersion | IngestTaskRow, sums: Checksums) -> dict[str, str]:
    return {
        "X-STORE-SHA1": sums.sha1,
        "X-STORE-SHA256": sums.sha256,
        "X-STORE-S3-ETAG": sums.s3_etag,
        "X-STORE-CRC32C": sums.crc32c,
        "X-STORE-CONTENT-TYPE": file.content_type,
        "X-STORE-CREATOR-UID": str(file.creator_uid),
        "X-STORE-VERSION": file.fqid.version,
        "X-STORE-SIZE": str(file.size),
    }
