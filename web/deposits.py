"""Pages of deposits: make a bundle of an area's files, and see what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from flask import Response

from api.schemas.fields import (
    NoParameters,
    PageParameters,
    QueryInteger,
    UuidField,
    WriteParameters,
    in_range,
    replica_field,
)
from pipelines import area_files, areas, deposits, formats
from pipelines import statistics as store_statistics
from pipelines.area_files import AreaFileInfo
from pipelines.deposits import MAX_FILES, ChosenFile, DepositRequest
from storage.catalog.deposits import Deposit
from storage.errors import Invalid
from storage.model import REPLICAS, Replica
from web.areas import describe_state
from web.bundles import find_titles
from web.live import LivePage
from web.pages import FormErrors, PageContext, page

LISTED_FILES = 200
"""Most files of an area that can be chosen one by one."""
DEPOSITS_PER_PAGE = 20
FILES_PER_PAGE = 100
LATEST = 10
INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class NewBundleParameters:
    """Parameters of the form for a bundle; `bundle` is one that gets a new version."""

    bundle: Annotated[str | None, UuidField(load_default=None)]


@dataclass(frozen=True)
class BundleForm:
    """The form that makes a bundle, except for the files; sent twice, it makes one deposit."""

    deposit: Annotated[str | None, UuidField(load_default=None)]

    replica: Annotated[Replica, replica_field()]
    uuid: Annotated[str | None, UuidField(load_default=None)]
    creator_uid: Annotated[int, QueryInteger(load_default=0, validate=in_range(0, INT64_MAX))]


@dataclass(frozen=True)
class FileChoice:
    """A row of the form: a file of the area, whether it is taken, and its name in the bundle."""

    file: AreaFileInfo
    is_taken: bool
    name: str
    is_indexed: bool

    @property
    def state(self) -> tuple[str, str]:
        """The state of its checks."""
        return describe_state(self.file)


@page("GET", "/areas/<uuid>/bundle", access="get_area", login=True, query=NewBundleParameters)
def choose_files(context: PageContext[NewBundleParameters]) -> Response:
    """Show the form that makes a bundle of an area's files."""
    files = _list_area(context, LISTED_FILES + 1)
    choices = [_propose_choice(file) for file in files]
    given = {
        "deposit": formats.new_uuid(),
        "uuid": context.query.bundle or "",
        "replica": REPLICAS[0],
        "creator_uid": "0",
    }
    return _render_form(context, choices, given)


def _list_area(context: PageContext[Any], limit: int) -> list[AreaFileInfo]:
    uuid = context.uuid
    areas.find_owned(context.stores, uuid, context.caller.email)
    return area_files.list_files(context.stores, uuid, "", limit)


def _propose_choice(file: AreaFileInfo) -> FileChoice:
    is_ready = file.status == "CHECKSUMMED" and file.validation == "VALIDATED"
    is_json = area_files.is_json_file(file.name, file.content_type or "")
    return FileChoice(file, is_ready, file.name, is_json)


def _render_form(
    context: PageContext[Any],
    choices: Sequence[FileChoice],
    given: Mapping[str, Any],
    errors: Mapping[str, Sequence[str]] | None = None,
) -> Response:
    is_listed = len(choices) <= LISTED_FILES
    return context.render(
        "area_bundle.html",
        "Make a bundle",
        status=400 if errors else 200,
        uuid=context.uuid,
        choices=choices if is_listed else [],
        is_listed=is_listed,
        waiting=sum(not choice.is_taken for choice in choices),
        listed_most=LISTED_FILES,
        max_files=MAX_FILES,
        replicas=[(replica, replica) for replica in REPLICAS],
        given=given,
        errors=errors or {},
    )


@page("POST", "/areas/<uuid>/bundle", access="get_area")
def make_bundle(context: PageContext[NoParameters]) -> Response:
    """Start the deposit of a bundle; its page shows how far it is."""
    is_listed = "file" in context.request.form
    files = _list_area(context, LISTED_FILES + 1 if is_listed else MAX_FILES + 1)
    choices = _read_choices(context, files) if is_listed else [_propose_choice(f) for f in files]
    try:
        form = context.load_form(BundleForm)
        request = DepositRequest(
            area=context.uuid,
            replica=form.replica,
            uuid=form.uuid or formats.new_uuid(),
            creator_uid=form.creator_uid,
            files=_choose(choices),
        )
        planned = deposits.plan(context.stores, request, context.caller.email)
    except Invalid as error:
        return _render_form(context, choices, context.request.form, _name_errors(error, choices))
    deposit = replace(planned, id=form.deposit or planned.id)
    _authorize(context, deposit)
    context.send(deposits.start(context.stores, deposit, request_id=context.request_id))
    return context.redirect(f"/deposits/{deposit.id}")


def _read_choices(context: PageContext[Any], files: Sequence[AreaFileInfo]) -> list[FileChoice]:
    """Return the rows as they were sent, of the files that are still there."""
    form = context.request.form
    known = {file.name: file for file in files}
    taken, indexed = set(form.getlist("take")), set(form.getlist("indexed"))
    rows = zip(form.getlist("file"), form.getlist("name"), strict=False)
    return [
        FileChoice(known[source], str(place) in taken, name.strip(), str(place) in indexed)
        for place, (source, name) in enumerate(rows)
        if source in known
    ]


def _choose(choices: Sequence[FileChoice]) -> list[ChosenFile]:
    """Return the chosen files; raise FormErrors if one of them cannot be taken."""
    errors = {
        f"name-{place}": [f"It is {choice.state[0]}: wait for its checks, or leave it out."]
        for place, choice in enumerate(choices)
        if choice.is_taken and choice.file.status != "CHECKSUMMED"
    }
    if errors:
        raise FormErrors("Some files cannot be taken.", errors=errors)
    return [
        ChosenFile(choice.file.name, choice.name, choice.is_indexed)
        for choice in choices
        if choice.is_taken
    ]


def _name_errors(error: Invalid, choices: Sequence[FileChoice]) -> dict[str, list[str]]:
    """Return messages by the form's fields: the names' pointers count only the chosen files."""
    taken = [place for place, choice in enumerate(choices) if choice.is_taken]
    found: dict[str, list[str]] = {}
    for pointer, messages in (error.errors or {"files": [error.detail]}).items():
        parts = pointer.split("/")
        is_name = len(parts) == 4 and parts[1] == "files" and parts[2].isdigit()
        found[f"name-{taken[int(parts[2])]}" if is_name else pointer] = list(messages)
    return found


@dataclass(frozen=True)
class FileName:
    """A file version, as policies name it."""

    uuid: str
    version: str


@dataclass(frozen=True)
class DepositedFiles:
    """The files of a deposit, for the policies of `put_files`."""

    files: Sequence[FileName]


def _authorize(context: PageContext[Any], deposit: Deposit) -> None:
    """Raise Forbidden unless policies allow the caller to put these files and this bundle."""
    query = WriteParameters(deposit.version, deposit.replica)
    context.authorize("put_bundle", path={"uuid": deposit.uuid}, query=query)
    named = DepositedFiles([FileName(uuid, deposit.version) for _, _, uuid, _ in deposit.entries])
    context.authorize("put_files", path={}, query=query, body=named)


@page("GET", "/deposits", access="post_area", login=True, query=PageParameters)
def list_deposits(context: PageContext[PageParameters]) -> Response:
    """List the caller's deposits, unfinished files and latest bundles."""
    owner, scope = context.caller.email, ("web_deposits", context.caller.email)
    position = context.open_cursor(scope, context.query.search_after)
    before = (int(position[0]), position[1]) if position else None
    rows = deposits.list_owned(context.stores, owner, before=before, limit=DEPOSITS_PER_PAGE + 1)
    shown, next_page = context.cut_page(
        rows, DEPOSITS_PER_PAGE, scope, lambda last: [str(last.created_us), last.id]
    )
    bundles = store_statistics.list_bundles_of_author(context.stores, owner, limit=LATEST)
    written = [one.fqid for one in shown if one.state == deposits.DONE]
    return context.render(
        "deposits.html",
        "My deposits",
        deposits=shown,
        next_page=next_page,
        tasks=deposits.list_unfinished_tasks(context.stores, owner, limit=LATEST),
        bundles=bundles,
        titles=find_titles(context, [*written, *(one.fqid for one in bundles)]),
    )


@dataclass(frozen=True)
class DepositParameters:
    """Parameters of a deposit's page; `start_at` is the index of the first file."""

    start_at: Annotated[int, QueryInteger(load_default=0)]


@page("GET", "/deposits/<uuid>", login=True, query=DepositParameters)
def show_deposit(context: PageContext[DepositParameters]) -> LivePage:
    """Show how far a deposit is."""
    deposit, start = _find_deposit(context), context.query.start_at
    end = start + FILES_PER_PAGE
    counts = deposits.count_files(context.stores, deposit)
    files = deposits.list_file_states(context.stores, deposit, start, FILES_PER_PAGE)
    values = {
        "deposit": deposit,
        "files": files,
        "counts": counts,
        "total": len(deposit.entries),
        "start": start,
        "next_start": end if end < len(deposit.entries) else None,
        "here": context.url(),
    }
    return LivePage(
        "deposit.html",
        "Deposit",
        part="deposit_files.html",
        version=(deposit.state, counts, files),
        read=lambda: values,
        is_over=deposit.state in (deposits.DONE, deposits.FAILED),
        topics=deposits.list_topics(deposit, start, FILES_PER_PAGE),
    )


def _find_deposit(context: PageContext[Any]) -> Deposit:
    """Return a deposit of the caller, who may still see the area; raise Forbidden."""
    deposit = deposits.find_owned(context.stores, context.uuid, context.caller.email)
    context.authorize("get_area", path={"uuid": deposit.area})
    return deposit


@page("POST", "/deposits/<uuid>/retry", login=True)
def retry_deposit(context: PageContext[NoParameters]) -> Response:
    """Carry out a failed deposit again."""
    deposit = _find_deposit(context)
    _authorize(context, deposit)
    jobs = deposits.retry(
        context.stores, deposit.id, context.caller.email, request_id=context.request_id
    )
    context.send(jobs)
    return context.redirect(f"/deposits/{deposit.id}", "The deposit is tried again.")
