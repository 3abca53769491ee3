"""Search results for people: cards with values of chosen fields, and a manifest of all hits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines import bundles
from pipelines.failover import SearchPageRequest, search_with_failover
from pipelines.limits import PAGE_MAX, PAGE_RAW_MAX, SEGMENT_ENTRIES
from storage import json_codec
from storage.catalog import bundles as catalog_bundles
from storage.catalog import versions
from storage.errors import NotFoundError, TimeLimitExceeded, Unavailable
from storage.model import FQID, BundleVersion, Replica
from storage.protocols import SearchHit, SearchIndex, SearchPage
from storage.search.documents import format_leaf
from storage.search.grammar.clauses import Clause
from storage.search.grammar.parser import parse_query
from storage.stores import Stores

CARDS = 10
"""Cards of a page."""
MAX_CARD_BYTES = 1024 * 1024
"""Bytes of a document that is read for a card; of a larger one the fields are not shown."""
MAX_CARD_VALUES = 3
METADATA_PREFIX = "files."
MANIFEST_COLUMNS = (
    *("bundle_uuid", "bundle_version", "file_name", "file_uuid", "file_version"),
    *("file_sha256", "file_size"),
)
"""Columns of `store download-manifest`."""
MAX_TITLE = 200


@dataclass(frozen=True, slots=True)
class CardValues:
    """The first values of a field; `more` further ones are not shown."""

    name: str
    values: Sequence[str]
    more: int


@dataclass(frozen=True, slots=True)
class SearchCard:
    """A bundle among the results; `size` is None if its document is too large to read."""

    fqid: FQID
    title: str
    details: Sequence[CardValues]
    created_us: int
    file_count: int
    size: int | None
    is_latest: bool
    """False if the replica has a later version of the bundle."""


@dataclass(frozen=True, slots=True)
class CardPage:
    """A page of results; pass `after` for the next one, None on the last."""

    cards: Sequence[SearchCard]
    total: int
    after: str | None
    replica: Replica


@dataclass(frozen=True, slots=True)
class CardRequest:
    """A page to show: the first of `title_fields` that has a value is the title."""

    query: Clause
    title_fields: Sequence[str]
    fields: Sequence[str]
    after: str | None = None
    oldest_first: bool = False
    size: int = field(default=CARDS)


def find_cards(stores: Stores, replica: Replica, request: CardRequest) -> CardPage:
    """Return a page of results, from the other replica if this one's index is unavailable."""
    served, page = _search_documents(stores, replica, request)
    fqids = [FQID(hit.uuid, hit.version) for hit in page.hits]
    with stores.catalog.read() as tx:
        rows = {row.fqid: row for row in catalog_bundles.find_all(tx, fqids)}
        latest = {
            fqid.uuid: versions.find_latest(tx, bundles.KIND, served, fqid.uuid) for fqid in rows
        }
    cards = [
        _make_card(hit, rows[fqid], request, latest[fqid.uuid])
        for hit, fqid in zip(page.hits, fqids, strict=True)
        if fqid in rows
    ]
    return CardPage(cards, page.total, page.after, served)


def _search_documents(
    stores: Stores, replica: Replica, request: CardRequest
) -> tuple[Replica, SearchPage]:
    def search(index: SearchIndex, *, size: int, after: str | None) -> SearchPage:
        return index.search(
            request.query,
            size=size,
            after=after,
            raw=True,
            raw_limit=MAX_CARD_BYTES,
            oldest_first=request.oldest_first,
        )

    wanted = SearchPageRequest(request.size, PAGE_RAW_MAX, request.after)
    return search_with_failover(stores, replica, search, wanted)


def find_titles(
    stores: Stores, replica: Replica, fqids: Iterable[FQID], title_fields: Sequence[str]
) -> dict[FQID, str]:
    """Return the titles of those bundles that have one; none if no index answers.

    Documents are searched and read in batches of ten, as for results with their documents.
    """
    wanted, titles = list(dict.fromkeys(fqids)), dict[FQID, str]()
    for start in range(0, len(wanted), PAGE_RAW_MAX):
        some = wanted[start : start + PAGE_RAW_MAX]
        uuids = {"terms": {"uuid.keyword": [one.uuid for one in some]}}
        versions = {"terms": {"bundle_info.version.keyword": [one.version for one in some]}}
        query = parse_query({"query": {"bool": {"filter": [uuids, versions]}}})
        try:
            _, page = _search_documents(stores, replica, CardRequest(query, title_fields, ()))
        except (Unavailable, TimeLimitExceeded):
            break
        for hit in page.hits:
            found = _collect_values(_read_document(hit), title_fields)
            if title := _choose_title(found, title_fields):
                titles[FQID(hit.uuid, hit.version)] = title
    return titles


def _read_document(hit: SearchHit) -> dict[str, Any]:
    """Return a hit's document; empty if it is too large to read."""
    return json_codec.decode(hit.document) if hit.document else {}


def _make_card(
    hit: SearchHit, bundle: BundleVersion, request: CardRequest, latest: tuple[str, int] | None
) -> SearchCard:
    document = _read_document(hit)
    manifest = document.pop("manifest", None)
    found = _collect_values(document, (*request.title_fields, *request.fields))
    sizes = _list_sizes(manifest)
    return SearchCard(
        bundle.fqid,
        _choose_title(found, request.title_fields),
        [_cut_values(name, found[name]) for name in request.fields if found[name]],
        bundle.created_us,
        bundle.file_count,
        sum(sizes) if sizes is not None and len(sizes) == bundle.file_count else None,
        latest is None or bundle.fqid.version >= latest[0],
    )


def find_title(files: Mapping[str, Sequence[Any]], title_fields: Sequence[str]) -> str:
    """Return the title of a bundle by its parsed metadata files, by their keys; empty if none."""
    return _choose_title(_collect_values({"files": files}, title_fields), title_fields)


def _choose_title(found: Mapping[str, Sequence[str]], title_fields: Sequence[str]) -> str:
    values = next((found[name] for name in title_fields if found[name]), [""])
    return " ".join(values[0].split())[:MAX_TITLE]


def _list_sizes(manifest: Any) -> list[int] | None:
    files = manifest.get("files") if isinstance(manifest, Mapping) else None
    return [int(file["size"]) for file in files] if isinstance(files, list) else None


def _collect_values(document: Any, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the distinct values of fields, or of all metadata fields that end so, in order.

    It walks over a document without collecting its other fields, which takes ten times as long.
    """
    found: dict[str, dict[str, None]] = {name: {} for name in names}
    ends = {name.rpartition(".")[2] for name in names}
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            start = f"{path}." if path else ""
            waiting += [
                (start + key, child)
                for key, child in reversed(value.items())
                if isinstance(child, dict | list) or key in ends or "." in key
            ]
            continue
        # A name without dots is that of a field below `files`, or a whole path.
        last = path.rpartition(".")[2] if path.startswith(METADATA_PREFIX) else path
        wanted = {path, last} & found.keys()
        if isinstance(value, list):
            waiting += [
                (path, child)
                for child in reversed(value)
                if wanted or isinstance(child, dict | list)
            ]
        elif wanted and (text := _format_value(value)):
            for name in wanted:
                found[name][text] = None
    return {name: list(values) for name, values in found.items()}


def _cut_values(name: str, values: Sequence[str]) -> CardValues:
    return CardValues(name, values[:MAX_CARD_VALUES], max(0, len(values) - MAX_CARD_VALUES))


def _format_value(value: Any) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return "" if value is None else format_leaf(int(value) if is_whole else value).strip()


ManifestLine = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class HitList:
    """All matching bundles, newest first, each with the replica that found it.

    `hits` is empty if there are more than wanted.
    """

    total: int
    hits: Sequence[tuple[Replica, FQID]]


def list_hits(stores: Stores, replica: Replica, query: Clause, most: int) -> HitList:
    """List all matching bundles, if they are no more than `most`."""

    def search(index: SearchIndex, *, size: int, after: str | None) -> SearchPage:
        return index.search(query, size=size, after=after)

    found: list[tuple[Replica, FQID]] = []
    after = None
    while True:
        wanted = SearchPageRequest(PAGE_MAX - 1, PAGE_MAX, after)
        served, page = search_with_failover(stores, replica, search, wanted)
        found += [(served, FQID(hit.uuid, hit.version)) for hit in page.hits]
        if max(page.total, len(found)) > most:
            return HitList(max(page.total, len(found)), [])
        after = page.after
        if after is None:
            return HitList(len(found), found)


def count_files(stores: Stores, hits: HitList) -> int:
    """Return how many files the bundles have, one that is in several of them several times."""
    fqids = [fqid for _, fqid in hits.hits]
    with stores.catalog.read() as tx:
        return sum(
            bundle.file_count
            for start in range(0, len(fqids), PAGE_MAX)
            for bundle in catalog_bundles.find_all(tx, fqids[start : start + PAGE_MAX])
        )


def list_manifest_lines(stores: Stores, hits: HitList) -> Iterator[ManifestLine]:
    """Yield a line for each file of the bundles."""
    for served, fqid in hits.hits:
        yield from list_bundle_lines(stores, served, fqid)


def list_bundle_lines(stores: Stores, replica: Replica, fqid: FQID) -> Iterator[ManifestLine]:
    """Yield a line for each file of a bundle, as long as it is visible."""
    start = 0
    while True:
        try:
            bundle, entries = bundles.read_page(
                stores, replica, *fqid, start=start, limit=SEGMENT_ENTRIES
            )
        except NotFoundError:
            # Withdrawn meanwhile.
            return
        for entry in entries:
            sha256 = entry.checksums.sha256
            yield (*fqid, entry.name, *entry.file, sha256, entry.size)
        start += len(entries)
        if not entries or start >= bundle.file_count:
            return
