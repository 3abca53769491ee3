"""Exports for other programs: archives, file lists and metadata of a bundle, and lists of bundles.

The lists of new bundles are Atom (RFC 4287, in pages by RFC 5005) and DCAT.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from flask import Response, render_template

from api.archives import find_publisher, format_field, stream_archive
from api.http.responses import apply_etag
from api.schemas.fields import TextField, version_field
from pipelines import bundle_contents, bundles, events
from pipelines.archives import ARCHIVE_FORMATS, ArchiveFormat
from pipelines.limits import ARCHIVE_FILES_MAX
from pipelines.linked_data import (
    CatalogDataset,
    describe_catalog,
    describe_datacite,
    make_default_title,
)
from pipelines.search_results import list_bundle_lines
from pipelines.statistics import list_published_bundles
from storage import json_codec
from storage.catalog.statistics import PublishedBundle
from storage.model import FQID, Replica
from web.bundles import (
    VersionPageParameters,
    find_title,
    find_titles,
    list_downloads,
    read_metadata,
    replica_parameter,
)
from web.formats import reveal
from web.pages import PageContext, page, protect
from web.search import send_manifest

ENTRIES = 50
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# A bundle ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArchiveParameters(VersionPageParameters):
    """Parameters of an archive."""

    format: Annotated[ArchiveFormat, format_field()]


@page("GET", "/bundles/<uuid>/archive", access="get_bundle_archive", query=ArchiveParameters)
def download_archive(context: PageContext[ArchiveParameters]) -> Response:
    """Send all files of a bundle version as one archive."""
    return protect(stream_archive(context), context.site)


@page("GET", "/bundles/<uuid>/manifest", access="get_bundle", query=VersionPageParameters)
def download_file_list(context: PageContext[VersionPageParameters]) -> Response:
    """Send a table of a bundle's files, for `store download-manifest`."""
    query, stores = context.query, context.stores
    row = bundles.find(stores, query.replica, context.uuid, query.version)
    lines = list_bundle_lines(stores, query.replica, row.fqid)
    return send_manifest(context, lines, f"{row.fqid}.tsv")


@dataclass(frozen=True)
class MetadataParameters(VersionPageParameters):
    """Parameters of a metadata document."""

    version: Annotated[str, version_field(required=True)]


@page("GET", "/bundles/<uuid>/metadata", access="get_event", query=MetadataParameters)
def show_metadata(context: PageContext[MetadataParameters]) -> Response:
    """Send the metadata document of a bundle version."""
    query = context.query
    fqid = FQID(context.uuid, query.version)
    document = events.load_event_document(context.stores, query.replica, fqid)
    return protect(Response(document, mimetype="application/json"), context.site)


DATACITE_TYPE = "application/vnd.datacite.datacite+json"


@page(
    "GET",
    "/bundles/<uuid>/datacite",
    access="get_bundle",
    query=VersionPageParameters,
    bearer=True,
)
def show_datacite(context: PageContext[VersionPageParameters]) -> Response:
    """Send the DataCite metadata of a bundle version."""
    query, stores = context.query, context.stores
    row = bundles.find(stores, query.replica, context.uuid, query.version)
    described = describe_datacite(
        row,
        find_publisher(context),
        title=find_title(context, read_metadata(context, row)) or make_default_title(row.fqid),
        size=bundle_contents.measure_size(stores, row),
    )
    response = Response(json_codec.encode(described), mimetype=DATACITE_TYPE)
    if context.session is not None:
        # After the logout, nothing stays in the browser's cache.
        return protect(response, context.site)
    return protect_tagged(context, response)


# Lists of new bundles ----------------------------------------------------------------------


@dataclass(frozen=True)
class FeedParameters:
    """Parameters of the feed; `after` is the token of a page."""

    replica: Annotated[Replica, replica_parameter()]
    after: Annotated[str | None, TextField(load_default=None)]


@page(
    "GET",
    "/feed.atom",
    access="get_bundles_all",
    query=FeedParameters,
    may_lag=True,
    bearer=True,
)
def send_feed(context: PageContext[FeedParameters]) -> Response:
    """Send the latest bundles that the caller may read, as an Atom feed.

    Withdrawn bundles are left out, so a page may have fewer entries than the others.
    """
    entries, titles, following = _read_page(context, "feed")
    newest_us = max((one.published_us for one in entries), default=0)
    body = render_template(
        "feed.xml",
        base=context.base,
        settings=context.services.settings,
        replica=context.query.replica,
        entries=entries,
        titles=titles,
        updated_us=newest_us,
        self_url=context.base + context.url(),
        first_url=context.base + context.url(after=None),
        next_url=following,
    )
    response = Response(body, content_type="application/atom+xml; charset=utf-8")
    response.last_modified = datetime.fromtimestamp(newest_us // 1_000_000, UTC)
    return protect_tagged(context, response)


@page(
    "GET",
    "/catalog.jsonld",
    access="get_bundles_all",
    query=FeedParameters,
    may_lag=True,
    bearer=True,
)
def send_catalog(context: PageContext[FeedParameters]) -> Response:
    """Send the bundles that the caller may read as a catalogue in DCAT 3, in the same pages."""
    entries, titles, following = _read_page(context, "catalog")
    may_archive = _find_allowed(context, "get_bundle_archive", entries)
    datasets = [
        CatalogDataset(
            one.fqid,
            titles[one.fqid],
            one.file_count,
            list_downloads(ARCHIVE_FORMATS)
            if allowed and one.file_count <= ARCHIVE_FILES_MAX
            else (),
        )
        for one, allowed in zip(entries, may_archive, strict=True)
    ]
    described = describe_catalog(
        find_publisher(context),
        context.query.replica,
        datasets,
        first_url=context.base + context.url(after=None),
        self_url=context.base + context.url(),
        next_url=following,
    )
    response = Response(json_codec.encode(described), content_type="application/ld+json")
    if following is not None:
        response.headers["Link"] = f'<{following}>; rel="next"'
    return protect_tagged(context, response)


def _read_page(
    context: PageContext[FeedParameters], name: str
) -> tuple[list[PublishedBundle], Mapping[FQID, str], str | None]:
    """Return the bundles of a page that the caller may read, their titles, and the next URL."""
    query = context.query
    scope = (name, query.replica)
    position = context.open_cursor(scope, query.after, "after")
    listed, before = list_published_bundles(
        context.stores, query.replica, before=int(position[0]) if position else None, limit=ENTRIES
    )
    readable = _find_allowed(context, "get_bundle", listed)
    entries = [one for one, allowed in zip(listed, readable, strict=True) if allowed]
    found = find_titles(context, [one.fqid for one in entries])
    titles = {
        one.fqid: _clean(found.get(one.fqid) or make_default_title(one.fqid)) for one in entries
    }
    following = None
    if before is not None:
        token = context.services.cursors.seal(scope, [str(before)])
        following = context.base + context.url(after=token)
    return entries, titles, following


def protect_tagged(context: PageContext[Any], response: Response) -> Response:
    """Add an ETag and the security headers to a document for programs, or answer 304."""
    digest = hashlib.blake2b(response.get_data(), digest_size=16).hexdigest()
    response.set_etag(digest, weak=True)
    response.vary.update(("Authorization", "Cookie"))
    return protect(apply_etag(context.request, response, private=True), context.site)


def _find_allowed(
    context: PageContext[FeedParameters], operation: str, listed: Sequence[PublishedBundle]
) -> Sequence[bool]:
    """Return for each bundle whether the caller may do this with it."""
    replica = context.query.replica
    named = [
        {"uuid": one.fqid.uuid, "version": one.fqid.version, "replica": replica} for one in listed
    ]
    return context.services.guard.find_allowed(operation, context, named)


def _clean(title: str) -> str:
    """Return a title without characters that XML cannot have."""
    return _NOT_IN_XML.sub("\ufffd", reveal(title))
