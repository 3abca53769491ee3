"""Unfinished multipart uploads: rows, so that a sweep can abort what a dead worker left."""

from sqlalchemy import delete, insert, select, update

from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import uploads


def opened(tx: Tx, replica: str, key: str, token: str) -> None:
    """An upload began."""
    tx.execute(insert(uploads).values(replica=replica, key=key, token=token, at_us=now_us(tx)))


def touched(tx: Tx, replica: str, key: str, token: str) -> None:
    """An upload goes on: the sweep lets it be for as long again."""
    ours = update(uploads).where(uploads.c.replica == replica, uploads.c.key == key)
    tx.execute(ours.where(uploads.c.token == token).values(at_us=now_us(tx)))


def closed(tx: Tx, replica: str, key: str, token: str) -> None:
    """An upload was completed or aborted."""
    gone = delete(uploads).where(uploads.c.replica == replica, uploads.c.key == key)
    tx.execute(gone.where(uploads.c.token == token))


def latest(tx: Tx, replica: str, key: str) -> str | None:
    """The token of the upload of a key that was touched last."""
    query = select(uploads.c.token).where(uploads.c.replica == replica, uploads.c.key == key)
    return tx.execute(query.order_by(uploads.c.at_us.desc()).limit(1)).scalar_one_or_none()


def older_than(tx: Tx, us: int, *, limit: int = 100) -> list[tuple[str, str, str]]:
    """(replica, key, token) of uploads that nobody touched since a moment."""
    query = select(uploads.c.replica, uploads.c.key, uploads.c.token).where(uploads.c.at_us < us)
    return [(row[0], row[1], row[2]) for row in tx.execute(query.limit(limit))]
