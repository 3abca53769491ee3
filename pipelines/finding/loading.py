"""Loading a bundle's metadata document: its entries from the catalog, its JSON from a bucket.

A document is the same in every replica and for every step, so a worker keeps the latest ones. A
parsed one takes many times its size: its memory is reserved for as long as it is used.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pipelines.finding import documents
from pipelines.keeping import failover
from pipelines.keeping.copying import Beat
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.catalog import bundles
from storage.errors import NotFound
from storage.json_size import MAX_FACTOR, MAX_PARSED_BYTES
from storage.model import BundleVersion, Entry, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

PAGE = 5_000


@contextmanager
def document(
    stores: Stores, replica: Replica, bundle_id: int, beat: Beat
) -> Iterator[dict[str, Any]]:
    """The document of a bundle, as its CREATE event shows it; Unavailable without memory for it."""
    bundle = stores.catalog.ask(lambda tx: bundles.by_id(tx, bundle_id)).bundle
    kept, entries = _kept_or_entries(stores, bundle)
    with stores.memory.reserved(_memory([len(kept)] if kept else _sizes(entries))):
        found = _loaded(stores, replica, bundle, kept, entries, beat)
        try:
            yield found
        finally:
            # Callers still have the name of it: the memory is free before its reservation is.
            found.clear()


def small_document(
    stores: Stores, replica: Replica, bundle: BundleVersion, beat: Beat
) -> dict[str, Any] | None:
    """A document for which no memory needs to be reserved; None for any other."""
    kept, entries = _kept_or_entries(stores, bundle)
    if not stores.memory.is_small(_memory([len(kept)] if kept else _sizes(entries))):
        return None
    return _loaded(stores, replica, bundle, kept, entries, beat)


def _kept_or_entries(stores: Stores, bundle: BundleVersion) -> tuple[bytes | None, Sequence[Entry]]:
    # By name: an id may be given again once what had it was purged.
    kept = stores.documents.get(str(bundle.fqid))
    return kept, () if kept else _entries(stores, bundle)


def _loaded(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    kept: bytes | None,
    entries: Sequence[Entry],
    beat: Beat,
) -> dict[str, Any]:
    if kept:
        return documents.load(kept)
    return _assembled(stores, replica, bundle, entries, beat)[0]


def document_text(stores: Stores, replica: Replica, bundle_id: int, beat: Beat) -> bytes:
    """The same as JSON: what is cached is not parsed, which takes many times its size."""
    bundle = stores.catalog.ask(lambda tx: bundles.by_id(tx, bundle_id)).bundle
    kept, entries = _kept_or_entries(stores, bundle)
    if kept:
        return kept
    with stores.memory.reserved(_memory(_sizes(entries))):
        # Another thread may have assembled it while this one waited.
        found = stores.documents.get(str(bundle.fqid))
        return found or _assembled(stores, replica, bundle, entries, beat)[1]


def _memory(sizes: Iterable[int]) -> int:
    """Bytes that texts of these sizes, and what is parsed of them, may take together."""
    text = sum(size for size in sizes if size <= documents.MAX_DOCUMENT_BYTES)
    return min(text, documents.MAX_DOCUMENT_BYTES) + min(text * MAX_FACTOR, MAX_PARSED_BYTES)


def _sizes(entries: Iterable[Entry]) -> Iterator[int]:
    return (entry.size for entry in entries if documents.is_metadata(entry))


def _entries(stores: Stores, bundle: BundleVersion) -> list[Entry]:
    starts = range(0, bundle.file_count, PAGE)
    return [entry for start in starts for entry in _page(stores, bundle, start)]


def _page(stores: Stores, bundle: BundleVersion, start: int) -> list[Entry]:
    return stores.catalog.ask(
        lambda tx: bundles.page(tx, bundle.id, start=start, limit=PAGE, span=SEGMENT_ENTRIES)
    )


def _assembled(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    entries: Sequence[Entry],
    beat: Beat,
) -> tuple[dict[str, Any], bytes]:
    """The document from the bucket, and its text, which is cached."""
    made = documents.assemble(
        bundle.fqid,
        bundle.creator_uid,
        entries,
        _contents(stores, replica, entries, beat),
        field_limit=stores.search_fields,
    )
    for error in made.errors:
        log.warning("document of %s: %s", bundle.fqid, error)
    text = documents.dump(made.document)
    stores.documents.put(str(bundle.fqid), text)
    return made.document, text


def _contents(
    stores: Stores, replica: Replica, entries: Sequence[Entry], beat: Beat
) -> Iterator[tuple[Entry, bytes | None]]:
    """The bytes of each metadata file, None for one that is too large to look at."""
    for entry in entries:
        if not documents.is_metadata(entry):
            continue
        if entry.size > documents.MAX_FILE_BYTES:
            yield entry, None
            continue
        beat(entry.size)
        yield entry, _blob(stores, replica, entry)


def _blob(stores: Stores, replica: Replica, entry: Entry) -> bytes:
    sha256 = entry.checksums.sha256
    try:
        return failover.read_blob(stores, replica, sha256)
    except NotFound as error:
        raise NotFound(f"{replica} lacks {keys.blob(sha256)} of {entry.name}.") from error
