"""Check that the links of a collection, and the JSON Pointers into files, resolve.

The type of a link is a kind of the store (`file`, `bundle`, `collection`), or any other word for a
fragment of a file's JSON. The path of such a link is a JSON Pointer.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pipelines import failover
from pipelines.documents import (
    MAX_DOCUMENT_BYTES,
    MAX_FILE_BYTES,
    UnreadableMetadata,
    parse_metadata,
)
from storage import keys
from storage.catalog import Tx, collections, files
from storage.catalog.collections import LinkTarget
from storage.errors import DamagedObjectError, NotFoundError, Unavailable, Unprocessable
from storage.model import FQID, CollectionLink, Replica
from storage.stores import Stores

_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*", re.DOTALL)
_ARRAY_INDEX = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


def is_json_pointer(text: str) -> bool:
    """Return whether a text is a JSON Pointer; the empty one points to the whole value."""
    return _POINTER.fullmatch(text) is not None


def has_value_at(value: Any, pointer: str) -> bool:
    """Return whether a valid pointer points to something in a value."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _ARRAY_INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return False
    return True


MAX_REPORTED = 20
"""Broken links that an error names."""
MAX_FRAGMENT_BYTES = MAX_DOCUMENT_BYTES
"""Bytes of files that one request may read to check its fragments."""

LinkFaults = dict[int, str]
"""What is wrong with links, by their places."""


@dataclass(frozen=True, slots=True)
class _FragmentFile:
    """A file to which some fragments point."""

    fqid: FQID
    size: int
    sha256: str


def remove_duplicates(links: Iterable[CollectionLink]) -> list[CollectionLink]:
    """Return each link once, in the order of first occurrence."""
    return list(dict.fromkeys(links))


def is_fragment(link: CollectionLink) -> bool:
    """Return whether a link points into a file's JSON."""
    return link.type not in keys.KINDS


def link_target(link: CollectionLink) -> LinkTarget:
    """Return the kind and version that a link refers to."""
    return ("file" if is_fragment(link) else link.type, link.target)


def check_targets(
    stores: Stores, replica: Replica, owner: str, links: Sequence[CollectionLink], *, pointer: str
) -> None:
    """Raise Unprocessable (`invalid_link`) if a target is not in the replica, or a fragment absent.

    Costs two or three queries, and reads one object per file with fragments.
    """
    if not links:
        return
    with stores.catalog.read() as tx:
        faults = _find_absent(tx, replica, owner, links) | _find_invalid_pointers(links)
        contents = [] if faults else _find_files(tx, replica, links)
    _raise_faults(faults or _find_unresolved(stores, replica, links, contents), links, pointer)


def recheck_targets(
    tx: Tx, replica: Replica, owner: str, links: Sequence[CollectionLink], *, pointer: str
) -> None:
    """Raise Unprocessable (`invalid_link`) if a target was deleted after it was checked."""
    if links:
        _raise_faults(_find_absent(tx, replica, owner, links), links, pointer)


def _find_absent(
    tx: Tx, replica: Replica, owner: str, links: Sequence[CollectionLink]
) -> LinkFaults:
    # The collection of another owner looks absent.
    visible = collections.filter_visible_targets(
        tx, [replica], owner, [link_target(link) for link in links]
    )
    return {
        place: f"There is no {kind} {fqid} in replica {replica}."
        for place, (kind, fqid) in enumerate(map(link_target, links))
        if (kind, fqid) not in visible
    }


def _find_invalid_pointers(links: Sequence[CollectionLink]) -> LinkFaults:
    return {
        place: "path: must be a JSON Pointer into the file (empty, or beginning with '/')."
        for place, link in enumerate(links)
        if is_fragment(link) and (link.path is None or not is_json_pointer(link.path))
    }


def _find_files(tx: Tx, replica: Replica, links: Sequence[CollectionLink]) -> list[_FragmentFile]:
    fqids = sorted({link.target for link in links if is_fragment(link)})
    if not fqids:
        return []
    rows = files.look_up(tx, replica, fqids)
    return [_FragmentFile(fqids[row[0]], row[3], row[5]) for row in rows]


def _find_unresolved(
    stores: Stores,
    replica: Replica,
    links: Sequence[CollectionLink],
    contents: Sequence[_FragmentFile],
) -> LinkFaults:
    by_file: dict[FQID, LinkFaults] = defaultdict(dict)
    for place, link in enumerate(links):
        if is_fragment(link):
            by_file[link.target][place] = link.path or ""
    faults, small = _split_by_size(contents, by_file)
    with ThreadPoolExecutor(stores.copy_parallel) as pool:
        read = pool.map(lambda content: _read_file(stores, replica, content), small)
        for content, data in zip(small, read, strict=True):
            faults |= _check_pointers(data, by_file[content.fqid])
    return faults


def _split_by_size(
    contents: Sequence[_FragmentFile], by_file: Mapping[FQID, LinkFaults]
) -> tuple[LinkFaults, list[_FragmentFile]]:
    """Return the faults of files that are too large to read, and the other files."""
    message = f"The file has more than {MAX_FILE_BYTES} bytes."
    small = [content for content in contents if content.size <= MAX_FILE_BYTES]
    if sum(content.size for content in small) > MAX_FRAGMENT_BYTES:
        small = []
        message = (
            f"The files of these fragments have more than {MAX_FRAGMENT_BYTES} bytes together."
        )
    large = {content.fqid for content in contents} - {content.fqid for content in small}
    return {place: message for fqid in large for place in by_file[fqid]}, small


def _read_file(stores: Stores, replica: Replica, content: _FragmentFile) -> bytes:
    try:
        return failover.read_blob(stores, replica, content.sha256)
    except (DamagedObjectError, NotFoundError) as error:
        raise Unavailable(
            f"The bytes of {content.fqid} cannot be read in {replica}; try again."
        ) from error


def _check_pointers(data: bytes, pointers: LinkFaults) -> LinkFaults:
    """Return the faults of pointers into one file, by the places of their links."""
    try:
        value, _ = parse_metadata(data)
    except UnreadableMetadata as error:
        return dict.fromkeys(pointers, f"The file cannot be read: {error}.")
    return {
        place: "The file has nothing at this pointer."
        for place, pointer in pointers.items()
        if not has_value_at(value, pointer)
    }


def _raise_faults(faults: Mapping[int, str], links: Sequence[CollectionLink], pointer: str) -> None:
    if not faults:
        return
    places = sorted(faults)[:MAX_REPORTED]
    names = ", ".join(_format_link(links[place]) for place in places)
    raise Unprocessable(
        f"{len(faults)} links are broken: {names}",
        code="invalid_link",
        errors={pointer.format(place): [faults[place]] for place in places},
    )


def _format_link(link: CollectionLink) -> str:
    fragment = f" at '{link.path}'" if is_fragment(link) and link.path is not None else ""
    return f"{link.type} {link.target}{fragment}"
