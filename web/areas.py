"""Pages of upload areas: list, create, fill, lock, and delete them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Response

from api.areas import area_uri
from api.http.form_files import UploadedFile
from api.schemas.fields import NoParameters, PageParameters, TextField, one_of
from pipelines import area_files, area_uploads, areas, flow, formats
from pipelines.area_files import AreaFileInfo
from pipelines.areas import DELETING, LOCKED, UNLOCKED, IncomingFile
from storage.catalog.areas import Area
from storage.errors import ConflictError, DomainError, Invalid, TooLarge
from web.live import LivePage
from web.pages import PageContext, page

AREAS_PER_PAGE = 20
FILES_PER_PAGE = 100
WAITING = ("SCHEDULED", "CHECKSUMMING", "VALIDATING")
"""States of checks that go on."""


@page("GET", "/areas", access="post_area", login=True, query=PageParameters)
def list_areas(context: PageContext[PageParameters]) -> Response:
    """List the caller's upload areas."""
    owner, scope = context.caller.email, ("web_areas", context.caller.email)
    position = context.open_cursor(scope, context.query.search_after)
    before = (int(position[0]), position[1]) if position else None
    rows = areas.list_owned(context.stores, owner, before=before, limit=AREAS_PER_PAGE + 1)
    shown, next_page = context.cut_page(
        rows, AREAS_PER_PAGE, scope, lambda last: [str(last.created_us), last.uuid]
    )
    return context.render(
        "areas.html",
        "Deposit",
        areas=shown,
        now_us=int(context.site.clock() * 1e6),
        next_page=next_page,
    )


@page("POST", "/areas", access="post_area")
def create_area(context: PageContext[NoParameters]) -> Response:
    """Create an area with a random uuid."""
    uuid = formats.new_uuid()
    context.authorize("post_area", path={"uuid": uuid})
    areas.create(context.stores, uuid, context.caller.email)
    return context.redirect(f"/areas/{uuid}", "The upload area is open. Put your files in.")


@page("GET", "/areas/<uuid>", access="get_area", login=True, query=PageParameters)
def show_area(context: PageContext[PageParameters]) -> LivePage:
    """Show an area with its files."""
    area, files = _find_area(context), _summarize_files(context)
    return LivePage(
        "area.html",
        "Upload area",
        part="area_files.html",
        version=files,
        read=lambda: _read_area(context, area, files),
        is_over=not _count_pending(files),
        topics=[flow.area_topic(area.uuid)],
    )


def _find_area(context: PageContext[Any]) -> Area:
    return areas.find_owned(context.stores, context.uuid, context.caller.email)


FileSummary = Mapping[str, tuple[int, int]]
"""Count and latest change of an area's files by validation state."""


def _summarize_files(context: PageContext[Any]) -> FileSummary:
    return area_files.summarize_files(context.stores, context.uuid)


def _count_pending(files: FileSummary) -> int:
    return files.get("VALIDATING", (0, 0))[0]


def _render_refusals(context: PageContext[Any], refused: Mapping[str, str]) -> Response:
    """Render an area with messages about files that were just uploaded, by name."""
    values = _read_area(context, _find_area(context), _summarize_files(context))
    values["refused"] = refused
    return context.render("area.html", "Upload area", status=400, **values)


def _read_area(context: PageContext[Any], area: Area, summary: FileSummary) -> dict[str, Any]:
    """Return an area, a page of its files, and counts of all that are registered."""
    scope = ("web_area", area.uuid)
    token = getattr(context.query, "search_after", None)
    position = context.open_cursor(scope, token)
    rows = area_files.list_files(
        context.stores, area.uuid, position[0] if position else "", FILES_PER_PAGE + 1
    )
    shown, next_page = context.cut_page(rows, FILES_PER_PAGE, scope, lambda last: [last.name])
    checks = {state: count for state, (count, _) in summary.items()}
    is_open = area.state == UNLOCKED
    direct = area_uploads.find_direct_uploads(context.stores) if is_open else None
    return {
        "connect": direct.url if direct else "",
        "area": area,
        "refused": {},
        "is_open": is_open,
        "is_direct": direct is not None,
        "is_going": area.state == DELETING,
        "max_bytes": context.services.settings.max_upload_bytes,
        "folder_url": area_uri(context),
        "files": shown,
        "unregistered": sum(file.status == area_files.UNSCHEDULED for file in shown),
        "checks": checks,
        "count": sum(checks.values()),
        "pending": _count_pending(summary),
        "file_states": {file.name: describe_state(file) for file in shown},
        "next_page": next_page,
        "is_first_page": position is None,
        "here": context.url(),
    }


def describe_state(file: AreaFileInfo) -> tuple[str, str]:
    """Return the state of a file's checks for people, and its kind: ok, warning or bad."""
    if file.status == "FAILED" or file.validation == "INVALID":
        return ("refused" if file.status == "FAILED" else "not valid"), "bad"
    if file.status == area_files.UNSCHEDULED:
        return "not registered", "warning"
    if file.validation in WAITING or file.status in WAITING:
        return "being checked", ""
    return "checked", "ok"


@page("POST", "/areas/<uuid>/register", access="post_area_file")
def register_files(context: PageContext[NoParameters]) -> Response:
    """Register the files of the first page that came directly into the bucket."""
    uuid = context.uuid
    areas.find_writable(context.stores, uuid, context.caller.email)
    found = area_files.list_files(context.stores, uuid, "", FILES_PER_PAGE)
    names = [file.name for file in found if file.status == area_files.UNSCHEDULED]
    for name in names:
        areas.check_file_name(name)
        registered = area_files.register_upload(
            context.stores, uuid, name, request_id=context.request_id
        )
        context.send(registered.jobs)
    return context.redirect(f"/areas/{uuid}", f"{len(names)} files are being checked.")


@page("POST", "/areas/<uuid>/files", access="put_area_file", uploads=True)
def upload_files(context: PageContext[NoParameters]) -> Response:
    """Store the files of a form, which works without JavaScript."""
    uuid = context.uuid
    areas.find_writable(context.stores, uuid, context.caller.email)
    refused: dict[str, str] = {}
    stored = 0
    for file in context.form_files or ():
        try:
            _store_file(context, uuid, file)
            stored += 1
        except (Invalid, TooLarge, ConflictError) as error:
            refused[file.name] = error.detail
    if not stored and not refused:
        refused[""] = "Choose at least one file."
    if refused:
        return _render_refusals(context, refused)
    uploaded = "1 file is" if stored == 1 else f"{stored:,} files are"
    return context.redirect(f"/areas/{uuid}", f"{uploaded} uploaded.")


def _store_file(context: PageContext[Any], uuid: str, file: UploadedFile) -> None:
    incoming = IncomingFile(
        area=uuid,
        name=file.name,
        content_type=file.content_type,
        blocks=file.blocks,
        length=None,
        limit=context.services.settings.max_upload_bytes,
    )
    received = areas.receive_file(
        context.stores, incoming, context.caller.email, request_id=context.request_id
    )
    context.send(received.jobs)


@dataclass(frozen=True)
class StateForm:
    """The form that locks an area or unlocks it."""

    state: Annotated[str, TextField(required=True, validate=one_of(LOCKED, UNLOCKED))]


@page("POST", "/areas/<uuid>/state", access="patch_area")
def change_area_state(context: PageContext[NoParameters]) -> Response:
    """Lock an area or unlock it."""
    uuid, state = context.uuid, context.load_form(StateForm).state
    areas.set_state(context.stores, uuid, state, context.caller.email)
    told = (
        "The area is locked: no file comes in or is replaced."
        if state == LOCKED
        else "The area is open for files."
    )
    return context.redirect(f"/areas/{uuid}", told)


@page("GET", "/areas/<uuid>/delete", access="delete_area", login=True)
def confirm_area_deletion(context: PageContext[NoParameters]) -> Response:
    """Say what deleting an area does, before it is done."""
    area = _find_area(context)
    count = sum(count for count, _ in _summarize_files(context).values())
    return context.render("area_delete.html", "Delete upload area", area=area, count=count)


@page("POST", "/areas/<uuid>/delete", access="delete_area")
def delete_area(context: PageContext[NoParameters]) -> Response:
    """Delete an area with its files."""
    try:
        jobs = areas.delete(
            context.stores,
            context.uuid,
            context.caller.email,
            request_id=context.request_id,
        )
    except DomainError as error:
        if error.code != "not_found":
            raise
        return context.redirect("/areas", "The area is deleted already.")
    context.send(jobs)
    return context.redirect("/areas", "The area is being deleted with its files.")
