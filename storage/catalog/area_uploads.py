"""Files that come into upload areas by parts: rows, so that whoever goes on finds what is there,
and a sweep, or the end of the area, aborts what nobody goes on with."""

from dataclasses import asdict, dataclass

from sqlalchemy import delete, insert, select, update

from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import area_uploads


@dataclass(frozen=True, slots=True)
class AreaUpload:
    """One unfinished file; `token` is the bucket's own name of it."""

    id: str
    area: str
    name: str
    token: str
    size: int
    content_type: str
    part_size: int


_COLUMNS = [area_uploads.c[name] for name in AreaUpload.__slots__]


def opened(tx: Tx, upload: AreaUpload) -> None:
    """An upload began."""
    tx.execute(insert(area_uploads).values(**asdict(upload), at_us=now_us(tx)))


def get(tx: Tx, ident: str) -> AreaUpload | None:
    """The upload of that id."""
    row = tx.execute(select(*_COLUMNS).where(area_uploads.c.id == ident)).first()
    return None if row is None else AreaUpload(*row)


def touched(tx: Tx, ident: str) -> bool:
    """An upload goes on: the sweep lets it be for as long again. False when it is gone."""
    ours = update(area_uploads).where(area_uploads.c.id == ident)
    return tx.execute(ours.values(at_us=now_us(tx))).rowcount == 1


def closed(tx: Tx, ident: str) -> bool:
    """An upload was completed or aborted; False when somebody else said so before."""
    return tx.execute(delete(area_uploads).where(area_uploads.c.id == ident)).rowcount == 1


def of_area(tx: Tx, area: str, *, limit: int = 100) -> list[AreaUpload]:
    """What is on its way into an area."""
    query = select(*_COLUMNS).where(area_uploads.c.area == area).order_by(area_uploads.c.name)
    return [AreaUpload(*row) for row in tx.execute(query.limit(limit))]


def older_than(tx: Tx, us: int, *, limit: int = 100) -> list[AreaUpload]:
    """Uploads that nobody touched since a moment."""
    query = select(*_COLUMNS).where(area_uploads.c.at_us < us).limit(limit)
    return [AreaUpload(*row) for row in tx.execute(query)]
