"""Exports of a bundle: archives, the list of its files, its metadata document, DataCite."""

from dataclasses import dataclass
from typing import Annotated

from flask import Response

from api.archives import find_publisher, format_field, stream_archive
from api.schemas.fields import version_field
from pipelines import bundle_contents, bundles, events
from pipelines.archives import ArchiveFormat
from pipelines.linked_data import describe_datacite, make_default_title
from pipelines.search_results import list_bundle_lines
from storage import json_codec
from storage.model import FQID
from web.bundles import VersionPageParameters, find_title, read_metadata
from web.feed import protect_tagged
from web.pages import PageContext, page, protect
from web.search import send_manifest


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
