"""Bundles over HTTP: list, read, write, patch, delete."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url, paged
from api.replication import SERVED, served_by, standings
from api.schemas.bundles import (
    BundleAnswer,
    BundleBody,
    BundleContent,
    BundleList,
    BundleName,
    BundleWritten,
    ListBundles,
    ListBundlesQuery,
    PatchBody,
    PatchBundle,
    PatchBundleQuery,
    PatchContent,
    ReadBundle,
    ReadBundleQuery,
    Reason,
    ReasonBody,
    WriteBundle,
    WriteBundleQuery,
    decode_bundle,
)
from api.schemas.common import Empty, Versioned, VersionedQuery
from pipelines import topics
from pipelines.depositing import files, manifests, patching, replicas, tombstones
from pipelines.depositing.manifests import FilesPending, NewBundle, Written
from pipelines.depositing.patching import Patch
from pipelines.keeping import records
from storage.errors import Invalid
from storage.model import FQID, BundleVersion, Entry, Replica

TAG = "bundles"


@operation(
    "GET",
    "/bundles/all",
    tag=TAG,
    query=ListBundlesQuery,
    answers={200: Answer("The last page.", BundleList), 206: Answer("A page.", BundleList)},
    paged="bundles",
    about="Every live version of every bundle, by uuid, then version.",
)
def get_bundles_all(call: Call[ListBundles, None]) -> Response:
    """List bundles."""
    query = call.query
    scope = ("get_bundles_all", query.replica, query.prefix.lower())
    after = _after(call, scope)
    found = manifests.listing(
        call.stores, query.replica, query.prefix.lower(), after, query.per_page + 1
    )
    page, more = found[: query.per_page], len(found) > query.per_page
    response = reply(_listed(page, more, query.per_page))
    return paged(response, "bundles", _next_listing(call, scope, page[-1]) if more else None)


def _after(call: Call[ListBundles, None], scope: tuple[str, ...]) -> FQID | None:
    pointer = call.query.search_after
    return None if pointer is None else FQID(*call.services.cursors.open(scope, pointer))


def _next_listing(call: Call[ListBundles, None], scope: tuple[str, ...], last: FQID) -> str:
    pointer = call.services.cursors.seal(scope, [last.uuid, last.version])
    return next_url(call.request, call.base, {"search_after": pointer})


def _listed(page: list[FQID], more: bool, per_page: int) -> dict[str, Any]:
    return {
        "bundles": [{"uuid": fqid.uuid, "version": fqid.version} for fqid in page],
        "has_more": more,
        "page_count": len(page),
        "per_page": per_page,
    }


@operation(
    "GET",
    "/bundles/{uuid}",
    tag=TAG,
    query=ReadBundleQuery,
    answers={
        200: Answer("The last page.", BundleAnswer, SERVED),
        206: Answer("A page.", BundleAnswer, SERVED),
    },
    errors=(404,),
    paged="bundle.files",
    about="The latest version when none is named; files in the order of the manifest.",
)
def get_bundle(call: Call[ReadBundle, None]) -> Response:
    """Read a bundle."""
    query = call.query
    _check_urltype(call)
    bundle, found = manifests.read_page(
        call.stores,
        query.replica,
        call.uuid,
        query.version,
        start=query.start_at,
        limit=query.per_page,
    )
    end = query.start_at + len(found)
    more = bool(found) and end < bundle.file_count
    served = _serving(call, bundle)
    shown = _shown(bundle, found, _url_of(call, served, found))
    if query.replication:
        shown["replication"] = standings(call.stores, "bundle", bundle.id, bundle.fqid)
    response = reply({"bundle": shown}, headers=served_by(query.replica, served))
    return paged(response, "bundle.files", _next_files(call, bundle, end) if more else None)


def _serving(call: Call[ReadBundle, None], bundle: BundleVersion) -> Replica:
    """Whose bytes the URLs point to; without URLs nothing but the catalog is asked."""
    query = call.query
    if not (query.directurls or query.presignedurls):
        return query.replica
    served = replicas.serving(call.stores, "bundle", query.replica, bundle.fqid)
    if query.directurls:
        check_direct(call, served, "directurls")
    return served


def _check_urltype(call: Call[ReadBundle, None]) -> None:
    if call.query.directurls and call.query.presignedurls:
        errors = {"directurls": ["Not together with presignedurls."]}
        raise Invalid(
            "Only one of directurls and presignedurls", code="only_one_urltype", errors=errors
        )
    if call.query.directurls:
        check_direct(call, call.query.replica, "directurls")


def check_direct(call: Call[Any, Any], replica: Replica, parameter: str) -> None:
    """A path of this machine's file system is told to nobody unless the settings allow it."""
    settings = call.services.settings
    if settings.bucket(replica).startswith("file:") and not settings.direct_file_urls:
        said = f"Replica {replica} has no direct URLs; ask for presigned ones"
        raise Invalid(said, errors={parameter: [said]})


def _next_files(call: Call[ReadBundle, None], bundle: BundleVersion, start_at: int) -> str:
    changes = {"version": bundle.fqid.version, "start_at": str(start_at)}
    return next_url(call.request, call.base, changes)


def _url_of(
    call: Call[ReadBundle, None], replica: Replica, found: list[Entry]
) -> Callable[[Entry], str] | None:
    """How a file's URL is made, when URLs are asked for; bytes that are known to be damaged have
    theirs in the other replica."""
    if call.query.directurls:
        return lambda entry: files.direct_url(call.stores, replica, entry.checksums.sha256)
    if call.query.presignedurls:
        placed = replicas.intact_replicas(call.stores, replica, found)
        return lambda entry: _signed(call, placed[entry.checksums.sha256], entry)
    return None


def _signed(call: Call[ReadBundle, None], replica: Replica, entry: Entry) -> str:
    expires_s = call.services.settings.signed_url_s
    url = files.content_url(call.stores, replica, entry, expires_s=expires_s)
    return absolute(call, url)


def absolute(call: Call[Any, Any], url: str) -> str:
    """A signed URL of a folder bucket is a path of our own."""
    return call.base + url if url.startswith("/") else url


def _shown(
    bundle: BundleVersion, found: list[Entry], url_of: Callable[[Entry], str] | None
) -> dict[str, Any]:
    shown = records.stored_entries(found)
    if url_of is not None:
        shown = [{**line, "url": url_of(entry)} for line, entry in zip(shown, found, strict=True)]
    return {
        "uuid": bundle.fqid.uuid,
        "version": bundle.fqid.version,
        "creator_uid": bundle.creator_uid,
        "files": shown,
    }


@operation(
    "PUT",
    "/bundles/{uuid}",
    tag=TAG,
    query=WriteBundleQuery,
    body=BundleBody,
    answers={
        201: Answer("Written.", BundleWritten),
        200: Answer("The same content is stored already.", BundleWritten),
    },
    errors=(409, 503),
    max_body_bytes=None,
    decode=decode_bundle,
    about="The order of files does not matter. Files that are still being verified are waited for;"
    " the header `Prefer: wait=<seconds>` or `respond-async` says how long.",
)
def put_bundle(call: Call[WriteBundle, BundleContent]) -> Response:
    """Write a bundle version."""
    fqid = FQID(call.uuid, call.query.version)
    new = NewBundle(fqid, call.query.replica, call.body.creator_uid, call.body.files)
    write = partial(manifests.write, call.stores, new, call.who.email, request_id=call.request_id)
    written = _when_whole(call, new.replica, write)
    call.send(written.todo)
    answer = {"version": fqid.version, "manifest": orjson.Fragment(written.manifest)}
    return reply(answer, 201 if written.created else 200)


def _when_whole(call: Call[Any, Any], replica: Replica, write: Callable[[], Written]) -> Written:
    """Written at once, or when the files that it waits for have come."""

    def attempt() -> Written | FilesPending:
        try:
            # Those alone that were missing, and without the lock that a write takes. A file that
            # is not to come is named by the write.
            with suppress(Invalid):
                manifests.require_files(call.stores, replica, missing)
            return write()
        except FilesPending as pending:
            return pending

    try:
        return write()
    except FilesPending as pending:
        within_s = call.wait_s(call.services.settings.pending_wait_s)
        if within_s <= 0:
            raise
        missing = pending.missing
    seen = call.services.waiting.until(
        attempt,
        lambda now: isinstance(now, Written),
        client=call.client,
        topics=[topics.of_file(replica, fqid) for fqid in missing],
        within_s=within_s,
    )
    if isinstance(seen, FilesPending):
        raise seen
    return seen


@operation(
    "PATCH",
    "/bundles/{uuid}",
    tag=TAG,
    query=PatchBundleQuery,
    body=PatchBody,
    body_optional=True,
    answers={200: Answer("A new version was written.", BundleName)},
    errors=(404, 409),
    about="Writes the version that follows the patched one, which stays as it is. Entries to remove"
    " that the bundle does not have are ignored. A request with the header `Idempotency-Key` that"
    " comes again is answered like the first time.",
)
def patch_bundle(call: Call[PatchBundle, PatchContent]) -> Response:
    """Add files to a bundle, and remove some."""
    patch = Patch(
        FQID(call.uuid, call.query.version),
        call.query.replica,
        call.body.added,
        call.body.remove_files,
    )
    author, repeatable = call.who.email, call.repeatable(patching.digest(patch))

    def write() -> Written:
        return patching.patch(
            call.stores, patch, author, repeatable=repeatable, request_id=call.request_id
        )

    written = _when_whole(call, patch.replica, write)
    call.send(written.todo)
    return reply({"uuid": written.fqid.uuid, "version": written.fqid.version})


@operation(
    "DELETE",
    "/bundles/{uuid}",
    tag=TAG,
    query=VersionedQuery,
    body=ReasonBody,
    answers={200: Answer("Deleted.", Empty)},
    errors=(404, 409),
    body_from_query=("reason",),
    about="Hides the version, or the whole bundle when none is named, in all replicas at once.",
)
def delete_bundle(call: Call[Versioned, Reason]) -> Response:
    """Delete a bundle, or one version of it."""
    todo = tombstones.bury(
        call.stores,
        call.query.replica,
        call.uuid,
        call.query.version,
        reason=call.body.reason,
        author=call.who.email,
        request_id=call.request_id,
    )
    call.send(todo)
    return reply({})


OPERATIONS: tuple[Operation, ...] = (
    get_bundles_all,
    get_bundle,
    put_bundle,
    patch_bundle,
    delete_bundle,
)
