"""Files over HTTP: write by reference, read by redirect, and the tasks in between."""

from typing import Any

from flask import Response

from api.bundles import absolute, check_direct
from api.dispositions import check_inline
from api.errors import retry_after_s, status_of
from api.operation import Answer, Call, Operation, operation, redirect, reply
from api.replication import SHOWN, served_by, standing_header
from api.schemas.common import InReplica, InReplicaQuery, NoQuery, Nothing
from api.schemas.files import (
    HEADERS,
    FileBody,
    FileSource,
    FilesWritten,
    FileWritten,
    HeadFile,
    HeadFileQuery,
    NewFiles,
    NewFilesBody,
    ReadFile,
    ReadFileQuery,
    TaskAnswer,
    WriteFile,
    WriteFileQuery,
)
from api.settling import replica_of
from pipelines import topics
from pipelines.depositing import files, ingest, replicas
from pipelines.depositing.files import Located
from pipelines.depositing.ingest import Deposit, Task
from pipelines.limits import PENDING_RETRY_S
from storage.catalog.tasks import TaskRow
from storage.errors import Conflict, StoreError, Unprocessable
from storage.model import FQID, Checksums, FileVersion, Replica

TAG = "files"


@operation(
    "PUT",
    "/files/{uuid}",
    tag=TAG,
    query=WriteFileQuery,
    body=FileBody,
    answers={
        201: Answer("Verified and stored.", FileWritten),
        200: Answer("The same content is stored already.", FileWritten),
        202: Answer("Still being verified.", FileWritten, {"Location": "URL of the task to ask."}),
    },
    errors=(403, 409, 422, 503),
    aliases=("/file/{uuid}",),
    about="The source must carry `store-sha1`, `store-sha256`, `store-crc32c` and `store-s3_etag`"
    " as metadata. `Prefer: wait=<seconds>` or `respond-async` says how long to wait.",
)
def put_file(call: Call[WriteFile, FileSource]) -> Response:
    """Write a file version."""
    fqid = FQID(call.uuid, call.query.version)
    accepted = _deposited(call, fqid)
    call.send(accepted.todo)
    if accepted.task_id is None:
        return reply({"version": fqid.version})
    task = _watched(call, accepted.task_id)
    if task.state == "SUCCEEDED":
        return reply({"version": fqid.version}, 201 if accepted.ours else 200)
    if task.state == "FAILED":
        raise _failure(task)
    location = {"Location": f"{call.base}/v1/tasks/{task.id}"}
    return reply({"version": fqid.version, "task_id": task.id}, 202, location)


def _deposited(call: Call[WriteFile, FileSource], fqid: FQID) -> ingest.Accepted:
    body = call.body
    replica = call.query.replica or replica_of(body.source_url, call.stores.sources)
    return ingest.deposit(
        call.stores,
        Deposit(fqid, replica, body.source_url, body.creator_uid),
        call.who.email,
        prefixes=call.services.settings.checksum_prefixes,
        request_id=call.request_id,
    )


@operation(
    "PUT",
    "/files",
    tag=TAG,
    query=InReplicaQuery,
    body=NewFilesBody,
    answers={200: Answer("What became of each, in their order.", FilesWritten)},
    errors=(403, 503),
    about="For many small files: each is taken, or refused, as put_file does, and its verification"
    " is not waited for. The status is 200 even if all are refused: each refused item has `status`,"
    " `code`, `detail` and, where put_file has them, `errors` and `retry_after_s`. One with neither"
    " `task_id` nor `code` is stored already.",
)
def put_files(call: Call[InReplica, NewFiles]) -> Response:
    """Write several file versions."""
    accepted = ingest.deposit_all(
        call.stores,
        [
            Deposit(
                FQID(one.uuid, one.version), call.query.replica, one.source_url, one.creator_uid
            )
            for one in call.body.files
        ],
        call.who.email,
        prefixes=call.services.settings.checksum_prefixes,
        request_id=call.request_id,
    )
    call.send([row for one in accepted if isinstance(one, ingest.Accepted) for row in one.todo])
    shown = [
        {"uuid": one.uuid, "version": one.version, **_became(found)}
        for one, found in zip(call.body.files, accepted, strict=True)
    ]
    return reply({"files": shown})


def _became(found: ingest.Accepted | StoreError) -> dict[str, Any]:
    """What one of several files has become."""
    if isinstance(found, StoreError):
        status = status_of(found)
        wait_s = retry_after_s(status, found.code, found.retry_after_s, "PUT")
        return {
            "status": status,
            "code": found.code,
            "detail": found.detail,
            **({"errors": found.errors} if found.errors else {}),
            **({} if wait_s is None else {"retry_after_s": wait_s}),
        }
    return {"task_id": found.task_id} if found.task_id else {}


def _watched(call: Call[WriteFile, FileSource], task_id: str) -> Task:
    """The task when it ended, or as it stands when the time to wait is over."""
    return call.services.waiting.until(
        lambda: ingest.task(call.stores, task_id),
        lambda task: task.state in ("SUCCEEDED", "FAILED"),
        client=call.client,
        topics=[topics.of_task(task_id)],
        within_s=call.wait_s(call.services.settings.wait_s),
    )


def _failure(task: Task) -> Exception:
    """What verification found, as the answer to the one who waited for it."""
    cause = task.cause or {}
    code, detail = str(cause.get("code", "checksum_mismatch")), str(cause.get("detail", "Failed."))
    if code == "file_already_exists":
        return Conflict(detail, code=code)
    named = f"declared {cause.get('declared')}, computed {cause.get('computed')}"
    errors = {f"/{cause['field']}": [named]} if "field" in cause else {}
    return Unprocessable(detail, code=code, errors=errors)


@operation(
    "GET",
    "/tasks/{task_id}",
    tag=TAG,
    query=NoQuery,
    answers={200: Answer("How far it is.", TaskAnswer)},
    errors=(404,),
)
def get_task(call: Call[Nothing, None]) -> Response:
    """Ask how far the verification of a file is."""
    task = ingest.task(call.stores, call.path["task_id"])
    shown: dict[str, Any] = {
        "task_id": task.id,
        "status": task.state,
        "uuid": task.fqid.uuid,
        "version": task.fqid.version,
        "replica": task.replica,
        "bytes_done": task.bytes_done,
        "bytes_total": task.size,
    }
    return reply({**shown, "cause": task.cause} if task.cause else shown)


_ELSEWHERE = Answer(
    "Not here yet: the same URL again after Retry-After.",
    headers={"Location": "This URL.", "Retry-After": "Seconds to wait."},
)


@operation(
    "GET",
    "/files/{uuid}",
    tag=TAG,
    query=ReadFileQuery,
    answers={
        302: Answer("Where the content is.", headers={"Location": "Its URL.", **HEADERS, **SHOWN}),
        301: _ELSEWHERE,
    },
    errors=(404, 422),
    about="The latest verified version when none is named. One that is not here yet is waited for:"
    " `Prefer: wait=<seconds>` or `respond-async` says how long.",
)
def get_file(call: Call[ReadFile, None]) -> Response:
    """Read a file: a redirect to its content."""
    query = call.query
    if query.directurl:
        check_direct(call, query.replica, "directurl")
    else:
        in_folder = call.services.settings.bucket(query.replica).startswith("file:")
        check_inline(query.content_disposition, served_here=in_folder)
    located = _located(call, query.replica, query.version)
    served = replicas.serving_file(call.stores, query.replica, located)
    if served is None or located.file is None:
        return _later(call, located)
    served = replicas.serving_bytes(call.stores, served, located.file)
    return redirect(_content(call, served, located.file), 302, _told(call, served, located.file))


def _told(call: Call[Any, Any], served: Replica, file: FileVersion) -> dict[str, str]:
    """All that is said of a file that can be read."""
    headers = file_headers(file) | {"ETag": f'"{file.fqid}"'}
    if call.query.replication:
        headers |= standing_header(call.stores, file.id, file.fqid)
    return headers | served_by(call.query.replica, served)


def _content(call: Call[ReadFile, None], replica: Replica, file: FileVersion) -> str:
    query = call.query
    if query.directurl:
        check_direct(call, replica, "directurl")
        return files.direct_url(call.stores, replica, file.checksums.sha256)
    url = files.content_url(
        call.stores,
        replica,
        file,
        expires_s=call.services.settings.signed_url_s,
        disposition=query.content_disposition,
    )
    return absolute(call, url)


@operation(
    "HEAD",
    "/files/{uuid}",
    tag=TAG,
    query=HeadFileQuery,
    answers={200: Answer("Its metadata.", headers={**HEADERS, **SHOWN}), 301: _ELSEWHERE},
    errors=(404, 422),
    about="The latest verified version when none is named. One that is not here yet is waited for:"
    " `Prefer: wait=<seconds>` or `respond-async` says how long.",
)
def head_file(call: Call[HeadFile, None]) -> Response:
    """Read a file's metadata."""
    located = _located(call, call.query.replica, call.query.version)
    served = replicas.serving_file(call.stores, call.query.replica, located)
    if served is None or located.file is None:
        return _later(call, located)
    served = replicas.serving_bytes(call.stores, served, located.file)
    return Response(b"", headers=_told(call, served, located.file), mimetype="text/plain")


def _located(call: Call[Any, Any], replica: Replica, version: str | None) -> Located:
    """Where the file is, once it is here or the time to wait is over."""
    seen = files.locate(call.stores, replica, call.uuid, version)
    if replicas.serving_file(call.stores, replica, seen) is not None:
        return seen
    fqid = seen.task.fqid if seen.file is None and seen.task else getattr(seen.file, "fqid", None)
    heard = [topics.of_file(replica, fqid)] if fqid else []
    heard += [topics.of_task(seen.task.id)] if seen.task else []
    return call.services.waiting.until(
        lambda: files.locate(call.stores, replica, call.uuid, version),
        lambda now: now.state == "here",
        client=call.client,
        topics=heard,
        within_s=call.wait_s(call.services.settings.wait_s),
    )


def _later(call: Call[Any, Any], located: Located) -> Response:
    """The same URL again, after a while; with what is known, or declared, of the file."""
    headers = {"Retry-After": str(PENDING_RETRY_S), "Cache-Control": "no-store"}
    if located.file is not None:
        headers |= file_headers(located.file)
    elif located.task is not None:
        headers |= _headers(located.task, located.task.declared)
    query = call.request.query_string.decode("ascii", "replace")
    location = f"{call.base}{call.request.path}" + (f"?{query}" if query else "")
    return redirect(location, 301, headers)


def file_headers(file: FileVersion) -> dict[str, str]:
    """What the specification puts into the headers of a file's answers."""
    return _headers(file, file.checksums)


def _headers(file: FileVersion | TaskRow, sums: Checksums) -> dict[str, str]:
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


OPERATIONS: tuple[Operation, ...] = (put_file, put_files, get_file, head_file, get_task)
