"""Pages of a file: facts, copies, bundles that contain it, the download, and a preview.

The preview is a document in a sandboxed frame with its own policy: no script, no form, no request
but the stylesheet; images are part of the document. So deposited content can neither act for the
visitor nor reach others.
"""

import re
from base64 import b64encode
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

import nh3
from flask import Response, render_template
from markdown_it import MarkdownIt
from markupsafe import Markup

from api.http.responses import encode_disposition
from api.schemas.fields import TextField, page_token_field
from pipelines import bundle_contents, bundles, failover, files, replication
from pipelines.previews import Preview, build_preview
from storage.errors import DomainError, NotFoundError
from storage.model import FQID, FileVersion
from web.bundles import VersionPageParameters, find_titles
from web.formats import is_web_url, reveal
from web.pages import PageContext, page, protect, redirect_to

BUNDLES_PER_PAGE = 50
VERSIONS_MAX = 50
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
FRAME_POLICY = (
    "sandbox; default-src 'none'; style-src 'self'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'self'"
)
MARKDOWN_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote"),
    *("pre", "code", "em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td"),
}
"""Tags that Markdown may become: neither links nor images, which a sandbox does not follow."""
MARKDOWN_CHARS_MAX = 16 * 1024
"""Longer texts are shown as they are: some take a time that grows with the square of the length."""
MARKDOWN_CELLS_MAX = 10_000
"""Cells of tables; the renderer fills each row up to the length of the first."""


@dataclass(frozen=True)
class FileParameters(VersionPageParameters):
    """Parameters of a file's pages."""

    name: Annotated[str, TextField(load_default="")]


@dataclass(frozen=True)
class FilePageParameters(FileParameters):
    """Parameters of a file's page; `search_after` pages the bundles."""

    search_after: Annotated[str | None, page_token_field()]


def find_file(context: PageContext[Any]) -> FileVersion:
    """Return the file version that a request names, in any replica; raise NotFoundError."""
    query, uuid = context.query, context.uuid
    found = files.locate(context.stores, query.replica, uuid, query.version)
    if found.file is None or found.state == "pending":
        raise NotFoundError(f"The file {uuid} is still being verified; reload in a moment.")
    return found.file


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


@page("GET", "/preview/files/<uuid>", access="get_file", query=FileParameters)
def show_preview(context: PageContext[FileParameters]) -> Response:
    """Show the preview of a file, for a sandboxed frame."""
    query = context.query
    try:
        file = find_file(context)
        preview = build_preview(context.stores, query.replica, file, query.name)
    except NotFoundError:
        raise
    except DomainError as error:
        preview = Preview("none", note=f"The content cannot be read now: {error.detail}")
    return render_frame(preview, query.name)


def render_frame(preview: Preview, name: str) -> Response:
    """Render a preview as a document with its own policy."""
    image = b64encode(preview.image).decode() if preview.kind == "image" else ""
    if preview.kind == "markdown" and not _is_renderable(preview.text):
        preview = replace(preview, kind="text")
    markdown = render_markdown(preview.text) if preview.kind == "markdown" else None
    body = render_template(
        "preview.html", preview=preview, name=name, image=image, markdown=markdown
    )
    response = Response(body, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = FRAME_POLICY
    response.headers["X-Frame-Options"] = "SAMEORIGIN"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-store"
    return response


def _is_renderable(text: str) -> bool:
    """Return whether Markdown is rendered in bounded time and space."""
    if len(text) > MARKDOWN_CHARS_MAX:
        return False
    lines = text.splitlines()
    columns = max((line.count("|") for line in lines), default=0)
    return columns * len(lines) <= MARKDOWN_CELLS_MAX


def render_markdown(text: str) -> Markup:
    """Return Markdown as HTML: the renderer escapes HTML, and a sanitizer keeps known tags only."""
    html = _renderer().render(text)
    return Markup(nh3.clean(html, tags=MARKDOWN_TAGS, attributes={}, link_rel=None))


HEADING_LEVEL = 2
"""Level of a description's highest headings: the page's own is the only one above."""


def render_description(text: str) -> Markup | None:
    """Return a description as part of a page, with links to web addresses.

    None if it cannot be rendered in bounded time; show it as text then.
    """
    if not _is_renderable(text):
        return None
    renderer = _renderer()
    tokens = renderer.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + HEADING_LEVEL - 1)}"
    html = renderer.renderer.render(tokens, renderer.options, {})
    return Markup(
        nh3.clean(
            html,
            tags=MARKDOWN_TAGS | {"a"},
            attributes={"a": {"href"}},
            attribute_filter=_keep_web_urls,
            link_rel="nofollow noopener noreferrer",
        )
    )


def _keep_web_urls(_tag: str, name: str, value: str) -> str | None:
    return value if name != "href" or is_web_url(value) else None


@cache
def _renderer() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable("table")
