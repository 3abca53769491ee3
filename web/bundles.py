"""Pages of a bundle: contents, history, differences, withdrawal."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from flask import Response

from api.archives import find_publisher
from api.schemas.fields import (
    MAX_TEXT,
    TextField,
    one_of,
    replica_field,
    text_length,
    version_field,
)
from pipelines import (
    bundle_contents,
    bundle_versions,
    bundles,
    failover,
    replication,
    search_results,
)
from pipelines.archives import ARCHIVE_FORMATS, CONTENT_TYPES, ArchiveFormat
from pipelines.bundle_contents import MetadataFile, SubscriptionMatches
from pipelines.bundle_versions import BundleState, HistoryVersion
from pipelines.documents import is_metadata_file
from pipelines.limits import ARCHIVE_FILES_MAX
from pipelines.linked_data import Download, describe_dataset
from storage.errors import ConflictError
from storage.model import FQID, REPLICAS, BundleVersion, Replica
from web.formats import TreeBuilder, format_version, reveal
from web.pages import FormErrors, PageContext, page

FILES_PER_PAGE = 100
RECENT_VERSIONS = 5
VERSIONS_PER_PAGE = 50
MATCH_TIME_S = 0.2
"""Time for the caller's subscriptions; without JavaScript the page waits for it."""
README = re.compile(r"readme(\.(md|markdown|txt))?", re.IGNORECASE)


def replica_parameter() -> TextField:
    """Return the query parameter of a replica, by default the first one."""
    return replica_field(required=False, load_default=REPLICAS[0])


@dataclass(frozen=True)
class VersionPageParameters:
    """Parameters of pages of a version, by default of the latest."""

    replica: Annotated[Replica, replica_parameter()]
    version: Annotated[str | None, version_field(load_default=None)]


@dataclass(frozen=True)
class BundleParameters(VersionPageParameters):
    """Parameters of a bundle's page: the folder that is shown, and the name it begins after."""

    path: Annotated[str, TextField(load_default="")]
    after: Annotated[str, TextField(load_default="")]


@page("GET", "/bundles/<uuid>", access="get_bundle", query=BundleParameters)
def show_bundle(context: PageContext[BundleParameters]) -> Response:
    """Show a bundle version, or say why it is not there."""
    query = context.query
    state = bundle_versions.find_state(context.stores, query.replica, context.uuid, query.version)
    if state.state != "live" or state.row is None:
        return _show_absent(context, state)
    row = state.row
    metadata = read_metadata(context, row)
    heading = find_title(context, metadata) or row.fqid.uuid
    listed = bundle_versions.list_history(context.stores, row.fqid.uuid, limit=RECENT_VERSIONS + 1)
    history = _filter_readable(context, listed)
    files = _list_files(context, row)
    size = _measure_size(context, row, files)
    exports = _find_exports(context, row)
    return context.render(
        "bundle.html",
        heading,
        row=row,
        size=size,
        trees=_build_trees(metadata),
        history=history[:RECENT_VERSIONS],
        has_more_versions=len(listed) > RECENT_VERSIONS,
        citation=cite_bundle(context, row, heading),
        base=context.base,
        may_withdraw=context.may("delete_bundle", query=replace(query, version=row.fqid.version)),
        exports=exports,
        dataset=_describe_dataset(context, row, heading, size, exports["formats"]),
        **files,
        **_find_copies(context, row),
        **_find_references(context, row, any(file.is_away for file in metadata)),
    )


def read_metadata(context: PageContext[Any], row: BundleVersion) -> list[MetadataFile]:
    """Return a bundle's metadata files from the replica that serves it."""
    served = failover.choose_replica(context.stores, "bundle", context.query.replica, row.fqid)
    return bundle_contents.read_metadata(context.stores, served, row)


def find_title(context: PageContext[Any], metadata: Sequence[MetadataFile]) -> str | None:
    """Return the first value of the fields that the settings name."""
    files: dict[str, list[Any]] = {}
    for file in metadata:
        if file.problem is None:
            files.setdefault(file.key, []).append(file.value)
    fields = context.services.settings.web_title_fields
    return reveal(search_results.find_title(files, fields)) or None


def find_titles(context: PageContext[Any], fqids: Iterable[FQID]) -> Mapping[FQID, str]:
    """Return the titles of bundles by the search index, if the caller may search."""
    if not context.may("post_search"):
        return {}
    fields = context.services.settings.web_title_fields
    return search_results.find_titles(context.stores, REPLICAS[0], fqids, fields)


def _build_trees(metadata: Sequence[MetadataFile]) -> list[dict[str, Any]]:
    builder = TreeBuilder()
    return [
        {
            "name": file.entry.name,
            "problem": file.problem,
            "tree": None if file.problem else builder.build(file.entry.name, file.value),
        }
        for file in metadata
    ]


def _list_files(context: PageContext[BundleParameters], row: BundleVersion) -> dict[str, Any]:
    """Return one page of a folder, with links to the folders above."""
    query = context.query
    folder = query.path if not query.path or query.path.endswith("/") else query.path + "/"
    items = bundle_contents.list_folder(
        context.stores, row, folder, after=query.after, limit=FILES_PER_PAGE + 1
    )
    shown = items[:FILES_PER_PAGE]
    steps = folder.split("/")[:-1]
    readme = next((one.entry for one in shown if one.entry and README.fullmatch(one.name)), None)
    return {
        "folder": folder,
        "crumbs": [(step, "/".join(steps[: at + 1]) + "/") for at, step in enumerate(steps)],
        "items": shown,
        "next_files": shown[-1].name if len(items) > len(shown) else None,
        "readme": readme,
        "is_metadata": is_metadata_file,
    }


def _measure_size(
    context: PageContext[BundleParameters], row: BundleVersion, files: dict[str, Any]
) -> int:
    """Return the bytes of all files, from the list of them if the page shows all."""
    if context.query.path or context.query.after or files["next_files"]:
        return bundle_contents.measure_size(context.stores, row)
    return sum(item.size for item in files["items"])


def _find_exports(context: PageContext[BundleParameters], row: BundleVersion) -> dict[str, Any]:
    """Return the formats of archives, and whether there is a document, as far as policies allow."""
    query = replace(context.query, version=row.fqid.version)
    may_archive = row.file_count <= ARCHIVE_FILES_MAX and context.may(
        "get_bundle_archive", query=query
    )
    return {
        "formats": ARCHIVE_FORMATS if may_archive else (),
        "metadata": context.may("get_event", query=query),
    }


def list_downloads(formats: Sequence[ArchiveFormat]) -> list[Download]:
    """Return archives of these formats as what documents about bundles offer."""
    return [Download(form, CONTENT_TYPES[form], {"format": form}) for form in formats]


def _describe_dataset(
    context: PageContext[BundleParameters],
    row: BundleVersion,
    title: str,
    size: int,
    formats: Sequence[ArchiveFormat],
) -> Mapping[str, Any]:
    """Return what search engines for data read on the page, with the archives of these formats."""
    return describe_dataset(
        row,
        context.query.replica,
        find_publisher(context),
        title=title,
        size=size,
        archives=list_downloads(formats),
    )


def _find_copies(context: PageContext[Any], row: BundleVersion) -> dict[str, Any]:
    """Return how each replica has the bundle, and when it was verified there."""
    return {
        "copies": replication.find_status(context.stores, "bundle", row.id, row.fqid),
        "verification": bundle_contents.find_bundle_verification(context.stores, row),
    }


def _find_references(
    context: PageContext[Any], row: BundleVersion, is_away: bool
) -> dict[str, Any]:
    """Return the caller's collections and subscriptions that refer to the bundle."""
    principal, stores = context.principal, context.stores
    if principal is None:
        return {"collections": [], "own_collections": [], "matches": None, "may_collect": False}
    guard = context.site.guard_of("put_collection")
    may_collect = guard.may(principal, "put_collection")
    own = bundle_contents.list_own_collections(stores, principal.email) if may_collect else []
    return {
        "may_collect": may_collect,
        "collections": bundle_contents.list_collections(stores, principal.email, row.fqid),
        "own_collections": own,
        "matches": _match_subscriptions(context, row, principal.email, is_away),
    }


def _match_subscriptions(
    context: PageContext[Any], row: BundleVersion, owner: str, is_away: bool
) -> SubscriptionMatches:
    """Return the caller's subscriptions that match; a bucket that is away is not waited for."""
    if is_away:
        return SubscriptionMatches([], "The bundle's metadata cannot be read now.")
    return bundle_contents.find_matching_subscriptions(
        context.stores,
        context.query.replica,
        row,
        owner,
        time_s=MATCH_TIME_S,
        clock=time.monotonic,
    )


def _show_absent(context: PageContext[Any], state: BundleState) -> Response:
    """Say that a version was withdrawn or purged (410), or is in the other replica only (404)."""
    titles = {
        "withdrawn": "This bundle was withdrawn",
        "purged": "This bundle was deleted for good",
        "elsewhere": f"This bundle is not in replica {context.query.replica} yet",
    }
    uuid = context.uuid
    history = bundle_versions.list_history(context.stores, uuid, limit=VERSIONS_PER_PAGE)
    return context.render(
        "bundle_absent.html",
        titles[state.state],
        status=404 if state.state == "elsewhere" else 410,
        state=state,
        uuid=uuid,
        live=[one for one in _filter_readable(context, history) if one.is_live],
    )


def _filter_readable(
    context: PageContext[Any], listed: Sequence[HistoryVersion]
) -> list[HistoryVersion]:
    """Return the versions that the caller may read in a replica that has them, or had them."""
    pairs = [(one.row, replica) for one in listed for replica in one.replicas or REPLICAS]
    resources = [
        {"uuid": row.fqid.uuid, "version": row.fqid.version, "replica": replica}
        for row, replica in pairs
    ]
    allowed = context.services.guard.find_allowed("get_bundle", context, resources)
    readable = {row.id for (row, _), is_in in zip(pairs, allowed, strict=True) if is_in}
    return [one for one in listed if one.row.id in readable]


# Citation ----------------------------------------------------------------------------------


def cite_bundle(context: PageContext[Any], row: BundleVersion, title: str) -> dict[str, str]:
    """Return how to cite a bundle version, as text and as BibTeX."""
    uuid, version = row.fqid
    url = f"{context.base}/bundles/{uuid}?version={version}"
    store = context.services.settings.web_name
    name = "" if title == uuid else f"{title}. "
    bibtex = "\n".join(
        (
            f"@misc{{bundle-{uuid},",
            f"  title        = {{{_escape_tex(title)}}},",
            f"  author       = {{{{{_escape_tex(store)}}}}},",
            f"  year         = {{{version[:4]}}},",
            f"  howpublished = {{\\url{{{url}}}}},",
            f"  note         = {{Bundle {uuid}, version {version}}}",
            "}",
        )
    )
    return {
        "text": f"{name}{store}, bundle {uuid}, version {version}. {url}",
        "bibtex": bibtex,
    }


_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{letter: "\\" + letter for letter in "{}%&$#_"},
    }
)


def _escape_tex(text: str) -> str:
    return text.translate(_TEX)


# History -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistoryParameters(VersionPageParameters):
    """Parameters of a bundle's history; `before` is the version that the page ends before."""

    before: Annotated[str | None, version_field(load_default=None)]


@page("GET", "/bundles/<uuid>/versions", query=HistoryParameters)
def list_bundle_versions(context: PageContext[HistoryParameters]) -> Response:
    """List the versions of a bundle that the caller may read, and their events."""
    uuid, query = context.uuid, context.query
    found = bundle_versions.list_history(
        context.stores,
        uuid,
        before=query.before,
        limit=VERSIONS_PER_PAGE + 1,
        with_sizes=True,
    )
    shown = _filter_readable(context, found[:VERSIONS_PER_PAGE])
    if not shown:
        context.authorize("get_bundle")
    if not found and query.before is None:
        # Says why: not found, or purged.
        state = bundle_versions.find_state(context.stores, query.replica, uuid, None)
        return _show_absent(context, state)
    return context.render(
        "bundle_versions.html",
        "Versions of the bundle",
        uuid=uuid,
        versions=shown,
        comparable=[
            (one.row.fqid.version, format_version(one.row.fqid.version))
            for one in shown
            if query.replica in one.replicas
        ],
        next_before=(
            found[VERSIONS_PER_PAGE - 1].row.fqid.version
            if len(found) > VERSIONS_PER_PAGE
            else None
        ),
        events=bundle_contents.list_events(context.stores, [one.row.fqid for one in shown]),
    )


@dataclass(frozen=True)
class DiffParameters:
    """Parameters of a diff: the two versions; `version` is the later one, as policies name it."""

    replica: Annotated[Replica, replica_parameter()]
    before: Annotated[str, version_field(required=True, data_key="from")]
    version: Annotated[str, version_field(required=True, data_key="to")]


@page("GET", "/bundles/<uuid>/diff", query=DiffParameters)
def compare_bundle_versions(context: PageContext[DiffParameters]) -> Response:
    """Show the differences of two versions of a bundle, each of which is authorized."""
    uuid, query = context.uuid, context.query
    for version in (query.before, query.version):
        context.authorize("get_bundle", query=VersionPageParameters(query.replica, version))
    diff = bundle_versions.compare_versions(
        context.stores, query.replica, uuid, query.before, query.version
    )
    return context.render(
        "bundle_diff.html",
        "Differences of two versions",
        uuid=uuid,
        diff=diff,
        is_equal=not any(diff.counts.values()),
    )


# Withdrawal --------------------------------------------------------------------------------


@dataclass(frozen=True)
class WithdrawalForm:
    """The form of a withdrawal."""

    scope: Annotated[
        Literal["version", "bundle"],
        TextField(load_default="version", validate=one_of("version", "bundle")),
    ]
    reason: Annotated[str, TextField(required=True, validate=text_length(MAX_TEXT))]


@page(
    "GET",
    "/bundles/<uuid>/withdraw",
    access="delete_bundle",
    login=True,
    query=VersionPageParameters,
)
def confirm_withdrawal(context: PageContext[VersionPageParameters]) -> Response:
    """Say what a withdrawal does, and ask for its reason."""
    return _ask_for_reason(context)


def _ask_for_reason(
    context: PageContext[VersionPageParameters], error: FormErrors | None = None
) -> Response:
    query = context.query
    state = bundle_versions.find_state(context.stores, query.replica, context.uuid, query.version)
    if state.row is None or state.state in ("withdrawn", "purged"):
        raise ConflictError("This bundle is withdrawn already.")
    live = [
        one
        for one in bundle_versions.list_history(
            context.stores, context.uuid, limit=VERSIONS_PER_PAGE
        )
        if one.is_live
    ]
    whole = replace(query, version=None)
    return context.render(
        "bundle_withdraw.html",
        "Withdraw this bundle",
        status=200 if error is None else 400,
        row=state.row,
        live=live,
        may_withdraw_all=context.may("delete_bundle", query=whole),
        errors={} if error is None else error.errors,
        given=context.request.form,
    )


@page(
    "POST",
    "/bundles/<uuid>/withdraw",
    access="delete_bundle",
    login=True,
    query=VersionPageParameters,
)
def withdraw_bundle(context: PageContext[VersionPageParameters]) -> Response:
    """Withdraw a version, or the whole bundle."""
    try:
        form = context.load_form(WithdrawalForm)
    except FormErrors as error:
        return _ask_for_reason(context, error)
    query, uuid = context.query, context.uuid
    version = None if form.scope == "bundle" else query.version
    if form.scope == "bundle":
        context.authorize("delete_bundle", query=replace(query, version=None))
    elif version is None:
        missing = FormErrors("Name a version.", errors={"scope": ["Name a version."]})
        return _ask_for_reason(context, missing)
    jobs = bundles.delete(
        context.stores,
        query.replica,
        uuid,
        version,
        reason=form.reason,
        author=context.caller.email,
        request_id=context.request_id,
    )
    context.send(jobs)
    shown = FQID(uuid, query.version or "")
    suffix = f"?version={shown.version}" if shown.version else ""
    return context.redirect(f"/bundles/{uuid}{suffix}", "The bundle was withdrawn.")
