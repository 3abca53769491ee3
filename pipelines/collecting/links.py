"""Links of a collection: to what they lead, and whether it is there.

A link's type is a kind of ours, or any other word for a fragment of a file's JSON, which its path
names as a JSON Pointer.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipelines.collecting.json_pointers import is_pointer, resolves
from pipelines.finding.documents import MAX_DOCUMENT_BYTES, MAX_FILE_BYTES
from pipelines.finding.metadata import Unreadable, parse
from pipelines.keeping import failover
from storage import keys
from storage.catalog import Tx, collections, files
from storage.catalog.collections import Target
from storage.errors import Damaged, NotFound, Unavailable, Unprocessable
from storage.model import FQID, Link, Replica
from storage.stores import Stores

REPORTED = 20
"""How many of the links that lead nowhere an error names."""
ALL_AT_ONCE_BYTES = MAX_DOCUMENT_BYTES
"""Metadata that one request has read, for the fragments that it names."""

Faults = dict[int, str]
"""What is wrong, by the link's place."""


@dataclass(frozen=True, slots=True)
class _Content:
    """The bytes that some fragments are to be found in."""

    fqid: FQID
    size: int
    sha256: str


def once(links: Iterable[Link]) -> list[Link]:
    """Each link once, where it came first."""
    return list(dict.fromkeys(links))


def is_fragment(link: Link) -> bool:
    """Whether it leads into a file's JSON."""
    return link.type not in keys.KINDS


def target(link: Link) -> Target:
    """What must be there for a link to lead anywhere."""
    return ("file" if is_fragment(link) else link.type, link.target)


def check(
    stores: Stores, replica: Replica, owner: str, links: Sequence[Link], *, pointer: str
) -> None:
    """Every target exists in the replica, every fragment in its file; Unprocessable
    (`invalid_link`) names the links that lead nowhere. Two or three queries, and one object for
    each file of which a fragment is named."""
    if not links:
        return
    with stores.catalog.read() as tx:
        faults = _absent(tx, replica, owner, links) | _unspelled(links)
        contents = [] if faults else _contents(tx, replica, links)
    _refuse(faults or _unresolved(stores, replica, links, contents), links, pointer)


def still_there(
    tx: Tx, replica: Replica, owner: str, links: Sequence[Link], *, pointer: str
) -> None:
    """Called in the reservation that names them: what was deleted since it was checked is not
    linked to."""
    if links:
        _refuse(_absent(tx, replica, owner, links), links, pointer)


def _absent(tx: Tx, replica: Replica, owner: str, links: Sequence[Link]) -> Faults:
    # Another's collection is told from an absent one by nobody but its owner.
    there = collections.seen(tx, [replica], owner, [target(link) for link in links])
    return {
        place: f"There is no {kind} {fqid} in replica {replica}."
        for place, (kind, fqid) in enumerate(map(target, links))
        if (kind, fqid) not in there
    }


def _unspelled(links: Sequence[Link]) -> Faults:
    return {
        place: "Its path must be a JSON Pointer into the file: empty, or beginning with '/'."
        for place, link in enumerate(links)
        if is_fragment(link) and (link.path is None or not is_pointer(link.path))
    }


def _contents(tx: Tx, replica: Replica, links: Sequence[Link]) -> list[_Content]:
    wanted = sorted({link.target for link in links if is_fragment(link)})
    if not wanted:
        return []
    found = files.lookup(tx, replica, wanted)
    return [_Content(wanted[row[0]], row[3], row[5]) for row in found]


def _unresolved(
    stores: Stores, replica: Replica, links: Sequence[Link], contents: Sequence[_Content]
) -> Faults:
    of_file: dict[FQID, Faults] = defaultdict(dict)
    for place, link in enumerate(links):
        if is_fragment(link):
            of_file[link.target][place] = link.path or ""
    faults, small = _too_large(contents, of_file)
    with ThreadPoolExecutor(stores.copy_parallel) as pool:
        read = pool.map(lambda one: _read(stores, replica, one), small)
        for content, data in zip(small, read, strict=True):
            faults |= _in_file(data, of_file[content.fqid])
    return faults


def _too_large(
    contents: Sequence[_Content], of_file: Mapping[FQID, Faults]
) -> tuple[Faults, list[_Content]]:
    """What is not even looked at, and what is."""
    said = f"The file has more than {MAX_FILE_BYTES} bytes."
    small = [one for one in contents if one.size <= MAX_FILE_BYTES]
    if sum(one.size for one in small) > ALL_AT_ONCE_BYTES:
        small = []
        said = f"The files of these fragments have more than {ALL_AT_ONCE_BYTES} bytes together."
    looked_at = {one.fqid for one in small}
    left = [one.fqid for one in contents if one.fqid not in looked_at]
    return {place: said for fqid in left for place in of_file[fqid]}, small


def _read(stores: Stores, replica: Replica, content: _Content) -> bytes:
    try:
        return failover.read_blob(stores, replica, content.sha256)
    except (Damaged, NotFound) as error:
        raise Unavailable(f"The bytes of {content.fqid} are not in {replica} now.") from error


def _in_file(data: bytes, pointers: Faults) -> Faults:
    """What is wrong with these pointers into one file, by the links' places."""
    try:
        value, _ = parse(data)
    except Unreadable as error:
        said = f"The file cannot be read: {error}."
        return dict.fromkeys(pointers, said)
    return {
        place: "The file has nothing at this pointer."
        for place, pointer in pointers.items()
        if not resolves(value, pointer)
    }


def _refuse(faults: Mapping[int, str], links: Sequence[Link], pointer: str) -> None:
    if not faults:
        return
    shown = sorted(faults)[:REPORTED]
    named = ", ".join(_named(links[place]) for place in shown)
    raise Unprocessable(
        f"These links lead nowhere ({len(faults)}): {named}",
        code="invalid_link",
        errors={pointer.format(place): [faults[place]] for place in shown},
    )


def _named(link: Link) -> str:
    fragment = f" at '{link.path}'" if is_fragment(link) and link.path is not None else ""
    return f"{link.type} {link.target}{fragment}"
