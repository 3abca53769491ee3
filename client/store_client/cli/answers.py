"""The answer of an operation, in the form that was asked for; pages become one document."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from store_client.cli import output, raw

if TYPE_CHECKING:
    from store_client.cli.frame import Here
    from store_client.definition import Operation


def show(here: "Here", operation: "Operation", given: dict[str, Any], *, all_pages: bool) -> None:
    """Call it and write what it answers."""
    pages = bool(operation.paged) and all_pages
    if here.output == "raw":
        raw.write(here.client, operation, given, pages=pages)
    elif not pages:
        answer = here.client.call(operation.name, **given)
        _one(here, operation, answer)
    elif here.output == "lines":
        output.lines(here.client.items(operation.name, **given))
    else:
        whole = merged(here.client.pages(operation.name, **given), operation.paged)
        _one(here, operation, whole)


def merged(pages: Iterator[Any], key: str) -> Any:
    """The last page, with the items of all: what one page of any length would be."""
    items: list[Any] = []
    last: Any = None
    for last in pages:
        items.extend(listed(last, key))
    if last is None:
        return None
    if not key_parts(key):
        return items
    return _with(last, key_parts(key), items)


def listed(page: Any, key: str) -> list[Any]:
    """The items of one page: `bundle.files` is the list `files` in the object `bundle`."""
    for part in key_parts(key):
        page = page.get(part) if isinstance(page, dict) else None
    return page if isinstance(page, list) else []


def key_parts(key: str) -> list[str]:
    """`bundle.files` → its two names."""
    return [part for part in key.split(".") if part]


def _with(page: Any, path: list[str], items: list[Any]) -> Any:
    if not path:
        return items
    inner = page.get(path[0]) if isinstance(page, dict) else None
    changed = {**(page if isinstance(page, dict) else {}), path[0]: _with(inner, path[1:], items)}
    if "page_count" in changed:
        changed["page_count"] = len(items)
    return changed


def _one(here: "Here", operation: "Operation", answer: Any) -> None:
    if answer is None:
        return
    if not operation.paged or here.output not in ("table", "lines"):
        here.show(answer)
        return
    items = listed(answer, operation.paged)
    here.show_items(items)
    if here.output == "table":
        here.note(facts(answer, operation.paged, count=len(items)))


def facts(page: Any, key: str, *, count: int) -> str:
    """What a page says besides its items, on one line: a table has no room for it."""
    said = []
    for part in key_parts(key):
        members = page.items() if isinstance(page, dict) else ()
        said += [
            f"{name}: {output.cell(value)}"
            for name, value in members
            if isinstance(value, str | int | float) and name not in COUNTED
        ]
        page = page.get(part) if isinstance(page, dict) else None
    return ", ".join([f"{key_parts(key)[-1]}: {count}", *said])


COUNTED = ("page_count", "per_page")
"""Of pages, which are one here."""
