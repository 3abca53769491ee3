"""Search results as a pandas frame."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from store_client.client import Client
from store_client.errors import Misused
from store_client.library import open_client
from store_client.references import Reference, parse_reference
from store_client.search import FieldNames, build_query, named_fields, read_field

if TYPE_CHECKING:
    import pandas

IDENTITY = ("uuid", "version")
"""The first columns of every frame."""
COUNTS = ("count", "size")
"""Columns that the store knows of each bundle: files, and bytes."""
PAGE, RAW_PAGE = 500, 10
"""Bundles in one answer, and those with their metadata."""


def search_frame(
    query: str | Mapping[str, Any] = "",
    fields: Sequence[str] = (),
    *,
    filters: Mapping[str, str | Sequence[str]] | None = None,
    limit: int | None = None,
    client: Client | None = None,
    replica: str | None = None,
) -> "pandas.DataFrame":
    """Search for bundles; a frame of one row each, the newest first.

    query: words as in `store search`, or an `es_query`; all bundles by default.
    fields: columns beside `uuid` and `version`: fields of the metadata, whole or by their last
        parts, as `organism`; `count` and `size` are those of the files.
    filters: fields with the exact value that they should have, or one of several.
    limit: bundles at most. Pages are requested as they are needed.

    A cell is empty where a bundle has no such field, and a list where it has different values.
    Misused for an unknown field, with the nearest, or without pandas.
    """
    if limit is not None and limit < 1:
        raise Misused(f"limit: must be 1 or more (got {limit})")
    if isinstance(fields, str):
        raise Misused("fields: must be a list of names", hint=f"give [{fields!r}]")
    make_frame = _import_pandas().DataFrame
    words = query if isinstance(query, str) else ""
    wanted = [name for name in dict.fromkeys(fields) if name not in IDENTITY]
    with open_client(client) as store:
        chosen = store.config.choose_replica(replica)
        names = None
        if filters or named_fields(words) or set(wanted) - {*COUNTS}:
            known = store.items("get_search_fields", replica=chosen)
            names = FieldNames(tuple(row["name"] for row in known))
        columns = {name: _resolve_column(name, names) for name in wanted}
        clause = _build_clause(query, filters or {}, names)
        rows = list(_read_rows(store, chosen, clause, columns, limit=limit))
    frame: pandas.DataFrame = make_frame(rows, columns=[*IDENTITY, *columns])
    return frame.convert_dtypes()


def _resolve_column(name: str, names: FieldNames | None) -> tuple[str, ...]:
    """The fields of a column; none for the store's own columns."""
    return () if name in COUNTS or names is None else names.resolve(name)


def _build_clause(
    query: str | Mapping[str, Any],
    filters: Mapping[str, str | Sequence[str]],
    names: FieldNames | None,
) -> Mapping[str, Any]:
    if isinstance(query, str):
        pairs = [
            (field, value)
            for field, said in filters.items()
            for value in ([said] if isinstance(said, str) else said)
        ]
        return build_query(query, pairs, names)
    if filters:
        raise Misused("filters: give them with words, or inside the es_query")
    return query


def _read_rows(
    client: Client,
    replica: str,
    clause: Mapping[str, Any],
    columns: Mapping[str, tuple[str, ...]],
    *,
    limit: int | None,
) -> Iterator[dict[str, Any]]:
    """A row for each bundle, page by page."""
    most = RAW_PAGE if columns else PAGE
    paging: dict[str, Any] = {"output_format": "raw"} if columns else {}
    paging["per_page"] = min(most, limit or most)
    hits = client.items("post_search", replica=replica, es_query=clause, **paging)
    for hit in islice(hits, limit):
        named = parse_reference(str(hit["bundle_fqid"]), "bundle")
        yield _build_row(named, hit.get("metadata", {}), columns)


def _build_row(
    named: Reference, document: Mapping[str, Any], columns: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    row: dict[str, Any] = {"uuid": named.uuid, "version": named.version}
    for name, fields in columns.items():
        values = [value for field in fields for value in read_field(document, field)]
        row[name] = _pick_value(values) if fields else _count(document, name)
    return row


def _count(document: Mapping[str, Any], name: str) -> int:
    files = read_field(document, "manifest.files")
    return len(files) if name == "count" else sum(file["size"] for file in files)


def _pick_value(values: Sequence[Any]) -> Any:
    """One value as it is, different ones as a list, none as nothing."""
    found: list[Any] = []
    for value in values:
        if value is not None and value not in found:
            found.append(value)
    return found[0] if len(found) == 1 else found or None


def _import_pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise Misused(
            "frames need pandas", hint="pip install 'consortium-store-client[pandas]'"
        ) from error
