"""Segments of a collection: immutable runs of links, shared by the versions that hold them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import delete, select

from storage.catalog import bulk
from storage.catalog.engine import Tx, sql
from storage.catalog.schema import collection_segments, link_segments
from storage.model import FQID, Link

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """A segment that is there already."""

    segment_id: int
    links: Sequence[Link]


Run = Kept | Sequence[Link]
"""A segment of before, or the links of a new one."""


def links_of(run: Run) -> Sequence[Link]:
    """The links that it holds."""
    return run.links if isinstance(run, Kept) else run


def cut(links: Sequence[Link], size: int) -> list[Run]:
    """New segments of at most so many links."""
    return [links[start : start + size] for start in range(0, len(links), size)]


def write(tx: Tx, collection_id: int, runs: Sequence[Run]) -> None:
    """Give a collection its links, in this order; two statements whatever the size."""
    if not runs:
        return
    made = iter(_made(tx, [run for run in runs if not isinstance(run, Kept)]))
    idents = [run.segment_id if isinstance(run, Kept) else next(made) for run in runs]
    columns: bulk.Columns = {
        "position": ("integer", list(range(len(runs)))),
        "segment_id": ("bigint", idents),
    }
    source, parameters = bulk.derived(tx, "fresh", columns)
    tx.execute(
        sql(
            "INSERT INTO collection_segments (collection_id, position, segment_id)"
            f" SELECT :collection_id, position, segment_id FROM {source}"
        ),
        {**parameters, "collection_id": collection_id},
    )


def _made(tx: Tx, runs: Sequence[Sequence[Link]]) -> list[int]:
    """The ids of new segments; those of the same links are interchangeable."""
    if not runs:
        return []
    texts = [_dump(run) for run in runs]
    source, parameters = bulk.derived(tx, "fresh", {"links": ("text", texts)})
    inserted = tx.execute(
        sql(f"INSERT INTO link_segments (links) SELECT links FROM {source} RETURNING id, links"),
        parameters,
    )
    of_text: dict[str, list[int]] = defaultdict(list)
    for row in inserted:
        of_text[row.links].append(row.id)
    return [of_text[text].pop() for text in texts]


def of_collection(tx: Tx, collection_id: int) -> list[Kept]:
    """A collection's segments in their order, with their links: one query."""
    query = (
        select(link_segments.c.id, link_segments.c.links)
        .join(collection_segments, collection_segments.c.segment_id == link_segments.c.id)
        .where(collection_segments.c.collection_id == collection_id)
        .order_by(collection_segments.c.position)
    )
    return [Kept(row.id, _load(row.links)) for row in tx.execute(query)]


def remove(tx: Tx, collection_id: int) -> None:
    """Remove a collection's segments, but for those that others share; the caller holds its head,
    and only versions of one uuid share any."""
    held = collection_segments.c.collection_id == collection_id
    idents = list(tx.execute(select(collection_segments.c.segment_id).where(held)).scalars())
    tx.execute(delete(collection_segments).where(held))
    for start in range(0, len(idents), _CHUNK):
        chunk = idents[start : start + _CHUNK]
        shared = collection_segments.c.segment_id
        used = set(tx.execute(select(shared).where(shared.in_(chunk))).scalars())
        tx.execute(delete(link_segments).where(link_segments.c.id.in_(sorted(set(chunk) - used))))


def _dump(links: Sequence[Link]) -> str:
    return orjson.dumps([(one.type, *one.target, one.path) for one in links]).decode()


def _load(text: str) -> list[Link]:
    return [
        Link(type_, FQID(uuid, version), path) for type_, uuid, version, path in orjson.loads(text)
    ]
