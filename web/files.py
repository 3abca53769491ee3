"""Pages of a file: facts, copies, bundles that contain it, and the download."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Response

from api.http.responses import encode_disposition
from api.schemas.fields import page_token_field
from pipelines import bundle_contents, bundles, failover, files, replication
from storage.errors import NotFoundError
from storage.model import FQID
from web.bundles import find_titles
from web.formats import reveal
from web.pages import PageContext, page, protect, redirect_to
from web.previews import FileParameters, find_file

BUNDLES_PER_PAGE = 50
VERSIONS_MAX = 50
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class FilePageParameters(FileParameters):
    """Parameters of a file's page; `search_after` pages the bundles."""

    search_after: Annotated[str | None, page_token_field()]


@page("GET", "/files/<uuid>", access="get_file", query=FilePageParameters)
def show_file(context: PageContext[FilePageParameters]) -> Response:
    """Show a file version."""
    query, uuid = context.query, context.uuid
    file = find_file(context)
    return context.render(
        "file.html",
        reveal(query.name.rpartition("/")[2]) or file.fqid.uuid,
        file=file,
        name=query.name,
        versions=files.list_versions(context.stores, uuid, limit=VERSIONS_MAX),
        copies=replication.find_status(context.stores, "file", file.id, file.fqid),
        verification=bundle_contents.find_file_verification(context.stores, file),
        base=context.base,
        **_list_bundles(context, file.fqid),
    )


def _list_bundles(context: PageContext[FilePageParameters], fqid: FQID) -> dict[str, Any]:
    """Return a page of the bundles that contain the file, if the caller may list them."""
    query = context.query
    if not context.may("get_file_bundles"):
        return {"bundles": [], "titles": {}, "next_bundles": None}
    scope = ("web_file_bundles", query.replica, *fqid)
    position = context.open_cursor(scope, query.search_after)
    try:
        rows = bundles.list_containing(
            context.stores,
            query.replica,
            *fqid,
            after=FQID(*position) if position else None,
            limit=BUNDLES_PER_PAGE + 1,
        )
    except NotFoundError:
        # The file is in the other replica only.
        rows = []
    shown, token = context.cut_page(rows, BUNDLES_PER_PAGE, scope, list)
    return {"bundles": shown, "titles": find_titles(context, shown), "next_bundles": token}


@page("GET", "/files/<uuid>/download", access="get_file", query=FileParameters)
def download_file(context: PageContext[FileParameters]) -> Response:
    """Redirect to a presigned URL of the file's bytes, as an attachment."""
    file, replica = find_file(context), context.query.replica
    located = files.locate(context.stores, replica, *file.fqid)
    served = failover.choose_file_replica(context.stores, replica, located)
    if served is None:
        served = failover.other_replica(replica)
    served = failover.choose_blob_replica(context.stores, served, file)
    url = files.content_url(
        context.stores,
        served,
        file,
        expires_s=context.services.settings.signed_url_s,
        disposition=make_disposition(context.query.name),
    )
    response = redirect_to(context.base + url if url.startswith("/") else url)
    return protect(response, context.site)


def make_disposition(name: str) -> str:
    """Return the disposition of an attachment; names that headers cannot have are left out.

    Directional controls are replaced: with them, `exe.png` may be shown of a file that ends in exe.
    """
    base = name.rpartition("/")[2].replace("\\", "_").replace('"', "'")
    base = DIRECTIONS.sub("_", base)
    try:
        return encode_disposition(f'attachment; filename="{base}"' if base else "attachment")
    except ValueError:
        return "attachment"
