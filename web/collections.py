"""Pages of the caller's collections: list, show, create, edit, delete."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from uuid import uuid4

from flask import Response

from api.schemas.fields import (
    PageParameters,
    QueryInteger,
    TextField,
    UuidField,
    optional_text,
    text_length,
    version_field,
)
from pipelines import bundle_contents, collections, formats
from pipelines.collections import CollectionDraft, CollectionPatch
from pipelines.limits import (
    COLLECTION_DESCRIPTION_MAX,
    COLLECTION_ITEMS_MAX,
    COLLECTION_NAME_MAX,
)
from storage import json_codec
from storage.catalog.collections import Collection
from storage.errors import ConflictError, Invalid, Unprocessable
from storage.model import FQID, REPLICAS, CollectionLink, Replica
from web.bundles import VersionPageParameters, find_titles, replica_parameter
from web.files import render_description
from web.formats import TreeBuilder
from web.pages import FormErrors, PageContext, page

COLLECTIONS_PER_PAGE = 50
LINKS_PER_PAGE = 50
MAX_LINK_TEXT = 200_000
LINK_LINE = re.compile(r"(?:(bundle|file|collection)\s+)?([0-9a-fA-F-]{36})\.(\S+)")


@page("GET", "/collections", access="get_collections", login=True, query=PageParameters)
def list_collections(context: PageContext[PageParameters]) -> Response:
    """List the caller's collections."""
    owner = context.caller.email
    scope = ("web_collections", owner)
    position = context.open_cursor(scope, context.query.search_after)
    rows = bundle_contents.list_own_collections(
        context.stores,
        owner,
        after=position[0] if position else "",
        limit=COLLECTIONS_PER_PAGE + 1,
    )
    shown, next_page = context.cut_page(
        rows, COLLECTIONS_PER_PAGE, scope, lambda last: [last.fqid.uuid]
    )
    return context.render(
        "collections.html",
        "My collections",
        collections=shown,
        next_page=next_page,
        may_create=_may(context, "put_collection"),
        errors={},
        given={},
    )


def _may(context: PageContext[Any], operation: str) -> bool:
    principal = context.principal
    return principal is not None and context.site.guard_of(operation).may(principal, operation)


@dataclass(frozen=True)
class CollectionParameters(VersionPageParameters):
    """Parameters of a collection's page; `start_at` is the index of the first link."""

    start_at: Annotated[int, QueryInteger(load_default=0)]


@page(
    "GET",
    "/collections/<uuid>",
    access="get_collection",
    login=True,
    query=CollectionParameters,
)
def show_collection(context: PageContext[CollectionParameters]) -> Response:
    """Show one of the caller's collections."""
    row = _find(context)
    details = json_codec.decode(row.details.encode())
    return context.render(
        "collection.html",
        row.name or "Collection without a name",
        row=row,
        description=render_description(row.description),
        **_list_links(context, row),
        details=TreeBuilder().build("details", details) if details else None,
        may_edit=_may(context, "patch_collection"),
        may_delete=_may(context, "delete_collection"),
    )


def _list_links(context: PageContext[CollectionParameters], row: Collection) -> dict[str, Any]:
    """Return a page of the links, each with its place, and the titles of the bundles."""
    links = collections.read_links(context.stores, row)
    start, end = context.query.start_at, context.query.start_at + LINKS_PER_PAGE
    shown = list(enumerate(links))[start:end]
    return {
        "contents": shown,
        "titles": find_titles(context, [one.target for _, one in shown if one.type == "bundle"]),
        "count": len(links),
        "start": start,
        "next_start": end if end < len(links) else None,
    }


def _find(context: PageContext[Any]) -> Collection:
    """Return the collection of a request; raise NotFoundError, Forbidden (another owner's)."""
    query, uuid = context.query, context.uuid
    return collections.find(
        context.stores, query.replica, uuid, query.version, context.caller.email
    )


# Writing -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewCollectionForm:
    """The form of a new collection."""

    name: Annotated[str, TextField(required=True, validate=text_length(COLLECTION_NAME_MAX))]
    description: Annotated[str, optional_text(COLLECTION_DESCRIPTION_MAX)]


@page("POST", "/collections", access="get_collections", login=True, query=PageParameters)
def create_collection(context: PageContext[PageParameters]) -> Response:
    """Create an empty collection."""
    try:
        form = context.load_form(NewCollectionForm)
    except FormErrors as error:
        return context.render(
            "collections.html",
            "My collections",
            status=400,
            collections=[],
            next_page=None,
            may_create=True,
            errors=error.errors,
            given=context.request.form,
        )
    fqid = put_collection(context, REPLICAS[0], form.name, form.description, [])
    return context.redirect(f"/collections/{fqid.uuid}", "The collection was created.")


@dataclass(frozen=True)
class _Naming:
    """What policies judge of a new collection."""

    uuid: str
    version: str
    replica: Replica


def put_collection(
    context: PageContext[Any],
    replica: Replica,
    name: str,
    description: str,
    links: Sequence[CollectionLink],
) -> FQID:
    """Write a new collection of the caller, if policies allow it."""
    fqid = FQID(str(uuid4()), formats.version_from_us(time.time_ns() // 1000))
    context.authorize("put_collection", path={}, query=_Naming(*fqid, replica))
    draft = CollectionDraft(fqid, replica, name, description, {}, links)
    written = collections.put(
        context.stores, draft, context.caller.email, request_id=context.request_id
    )
    context.send(written.jobs)
    return written.fqid


@page(
    "GET",
    "/collections/<uuid>/edit",
    access="patch_collection",
    login=True,
    query=CollectionParameters,
)
def edit_collection(context: PageContext[CollectionParameters]) -> Response:
    """Show the form that edits a collection."""
    return _show_editor(context)


def _show_editor(
    context: PageContext[CollectionParameters],
    errors: dict[str, Any] | None = None,
    *,
    status: int = 400,
) -> Response:
    row = _find(context)
    return context.render(
        "collection_edit.html",
        "Edit collection",
        status=status if errors else 200,
        row=row,
        **_list_links(context, row),
        errors=errors or {},
        given=context.request.form
        if errors
        else {"name": row.name, "description": row.description},
    )


@dataclass(frozen=True)
class EditForm:
    """The form that edits a collection; `add` has a link a line."""

    name: Annotated[str, optional_text(COLLECTION_NAME_MAX)]
    description: Annotated[str, optional_text(COLLECTION_DESCRIPTION_MAX)]
    add: Annotated[str, optional_text(MAX_LINK_TEXT)]


@page(
    "POST",
    "/collections/<uuid>/edit",
    access="patch_collection",
    login=True,
    query=CollectionParameters,
)
def save_collection(context: PageContext[CollectionParameters]) -> Response:
    """Write a new version of a collection."""
    row = _find(context)
    if row.fqid.version != context.query.version:
        # The form names the version that it was made from, so nothing is lost unseen.
        raise Invalid("The form does not name the version that it changes; open it again.")
    try:
        form = context.load_form(EditForm)
        patch = CollectionPatch(
            row.fqid,
            context.query.replica,
            add=parse_links(form.add),
            remove=_pick_links(context, row),
            name=form.name if form.name != row.name else None,
            description=_normalize_lines(form.description, row.description),
            details=None,
            latest_only=True,
        )
    except FormErrors as error:
        return _show_editor(context, error.errors)
    try:
        write_patch(context, patch)
    except Unprocessable as error:
        messages = [text for found in error.errors.values() for text in found]
        return _show_editor(context, {"add": [error.detail, *messages]})
    except ConflictError:
        changed = "The collection was changed meanwhile. Edit its latest version."
        return _show_editor(context, {"name": [changed]}, status=409)
    return context.redirect(f"/collections/{row.fqid.uuid}", "A new version was written.")


def write_patch(context: PageContext[Any], patch: CollectionPatch) -> None:
    """Write the version after the patched one, and send the jobs that follow."""
    written = collections.patch_collection(
        context.stores, patch, context.caller.email, request_id=context.request_id
    )
    context.send(written.jobs)


def _normalize_lines(given: str, stored: str) -> str | None:
    """Return a changed text; None if only the line ends differ, which browsers rewrite."""
    text = given.replace("\r\n", "\n")
    return None if text == stored.replace("\r\n", "\n") else text


def _pick_links(context: PageContext[Any], row: Collection) -> list[CollectionLink]:
    """Return the links whose boxes are ticked, by their index in the version."""
    chosen = set(context.request.form.getlist("remove"))
    links = collections.read_links(context.stores, row) if chosen else []
    return [link for place, link in enumerate(links) if str(place) in chosen]


def parse_links(text: str) -> list[CollectionLink]:
    """Parse lines like `bundle <uuid>.<version>`; raise FormErrors that name the first bad line."""
    links: list[CollectionLink] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found = LINK_LINE.fullmatch(line.strip())
        try:
            if found is None:
                raise Invalid('write "bundle", "file" or "collection", then <uuid>.<version>')
            uuid, version = formats.parse_uuid(found[2]), formats.parse_version(found[3])
        except Invalid as error:
            messages = {"add": [f"Line {number}: {error.detail}."]}
            raise FormErrors("Some links are not valid.", errors=messages) from error
        links.append(CollectionLink(found[1] or "bundle", FQID(uuid, version)))
    if len(links) > COLLECTION_ITEMS_MAX:
        messages = {"add": [f"Add at most {COLLECTION_ITEMS_MAX} links at a time."]}
        raise FormErrors("There are too many links.", errors=messages)
    return links


@dataclass(frozen=True)
class CollectForm:
    """The form that adds a bundle to a collection, or to a new one."""

    collection: Annotated[str | None, UuidField(load_default=None)]
    name: Annotated[
        str | None, TextField(load_default=None, validate=text_length(COLLECTION_NAME_MAX))
    ]


@dataclass(frozen=True)
class CollectParameters:
    """The bundle version that is added to a collection."""

    replica: Annotated[Replica, replica_parameter()]
    version: Annotated[str, version_field(required=True)]


@page("POST", "/bundles/<uuid>/collect", access="get_bundle", login=True, query=CollectParameters)
def add_bundle_to_collection(context: PageContext[CollectParameters]) -> Response:
    """Add a bundle version to one of the caller's collections, or to a new one."""
    query = context.query
    form = context.load_form(CollectForm)
    link = CollectionLink("bundle", FQID(context.uuid, query.version))
    if form.collection is None:
        if form.name is None:
            message = "Choose a collection, or name a new one."
            raise FormErrors(message, errors={"name": [message]})
        fqid = put_collection(context, query.replica, form.name, "", [link])
        return context.redirect(f"/collections/{fqid.uuid}", "The collection was created.")
    row = collections.find(
        context.stores, query.replica, form.collection, None, context.caller.email
    )
    where = replace(query, version=row.fqid.version)
    context.authorize("patch_collection", path={"uuid": form.collection}, query=where)
    patch = CollectionPatch(row.fqid, query.replica, [link], [], None, None, None, latest_only=True)
    write_patch(context, patch)
    return context.redirect(f"/collections/{form.collection}", "The bundle was added.")


# Deleting ----------------------------------------------------------------------------------


@page(
    "GET",
    "/collections/<uuid>/delete",
    access="delete_collection",
    login=True,
    query=VersionPageParameters,
)
def confirm_collection_deletion(context: PageContext[VersionPageParameters]) -> Response:
    """Say what deleting a collection does."""
    return context.render("collection_delete.html", "Delete this collection", row=_find(context))


@page(
    "POST",
    "/collections/<uuid>/delete",
    access="delete_collection",
    login=True,
    query=VersionPageParameters,
)
def delete_collection(context: PageContext[VersionPageParameters]) -> Response:
    """Delete a collection with all of its versions."""
    jobs = collections.delete(
        context.stores,
        context.query.replica,
        context.uuid,
        context.caller.email,
        request_id=context.request_id,
    )
    context.send(jobs)
    return context.redirect("/collections", "The collection was deleted.")
