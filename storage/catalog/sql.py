"""Statements on either database: cached SQL, the clock, row mappers, and many rows at once."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from inspect import signature
from types import FunctionType
from typing import Any, TypeVar

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Executable,
    Row,
    Select,
    Table,
    TextClause,
    literal,
    literal_column,
    text,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite

from storage.model import CHECKSUM_NAMES, FQID, Checksums

Tx = Connection
"""An open transaction; opaque outside of `storage.catalog`."""
Answer = TypeVar("Answer")

POSTGRESQL_CLOCK = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
"""Start of the statement, constant within it, so that an index applies."""


@lru_cache(maxsize=512)
def parse(statement: str) -> TextClause:
    """Return a parsed statement, cached: parsing costs more than running most of them."""
    return text(statement)


def execute(
    tx: Tx, statement: str, parameters: Mapping[str, Any]
) -> CursorResult[*tuple[Any, ...]]:
    """Run a SQL statement with `:name` parameters, in which `:now` is the catalog's clock.

    On SQLite the driver binds such names itself, which halves the overhead of SQLAlchemy.
    """
    if tx.dialect.name == "sqlite":
        now = time.time_ns() // 1000
        return tx.exec_driver_sql(statement, {**parameters, "now": now})
    return tx.execute(parse(statement.replace(":now", POSTGRESQL_CLOCK)), parameters)


def now_us(tx: Tx) -> int:
    """Return the time of the catalog's clock, in microseconds since 1970 UTC."""
    if tx.dialect.name == "sqlite":
        return time.time_ns() // 1000
    return int(tx.execute(parse(f"SELECT {POSTGRESQL_CLOCK}")).scalar_one())


def clock(tx: Tx) -> ColumnElement[int]:
    """Return the catalog's clock as a value of statements that SQLAlchemy builds."""
    if tx.dialect.name == "sqlite":
        return literal(time.time_ns() // 1000)
    return literal_column(POSTGRESQL_CLOCK)


def map_row(make: Callable[..., Answer], row: Row[Any], **given: Any) -> Answer:
    """Return an instance of a class: from columns named like its fields, or as given.

    `fqid`, `checksums` and `published` are made of several columns. A function instead of a class
    maps the row itself.
    """
    if isinstance(make, FunctionType):
        mapped: Answer = make(row)
        return mapped
    columns = row._mapping
    for name, is_flag in _list_fields(make):
        if name in given:
            continue
        if name == "fqid":
            given[name] = FQID(columns["uuid"], columns["version"])
        elif name == "checksums":
            sums = [columns[each] for each in CHECKSUM_NAMES]
            given[name] = None if None in sums else Checksums(*sums)
        elif name == "published":
            given[name] = columns["published_us"] is not None
        else:
            # SQLite returns 0 and 1 for booleans.
            given[name] = bool(columns[name]) if is_flag else columns[name]
    return make(**given)


@cache
def _list_fields(make: Callable[..., Any]) -> list[tuple[str, bool]]:
    """Return the fields of a class, and which are booleans."""
    parameters = signature(make).parameters.values()
    return [(one.name, one.annotation is bool) for one in parameters]


def map_rows(make: Callable[..., Answer], rows: Iterable[Row[Any]]) -> list[Answer]:
    """Return all rows, each mapped by `map_row`."""
    return [map_row(make, row) for row in rows]


@cache
def list_columns(table: Table, name: str) -> str:
    """Return the columns of `table AS name`: a prepared `*` fails once there is another column."""
    return ", ".join(f"{name}.{column.name}" for column in table.columns)


def find_row(
    tx: Tx,
    make: Callable[..., Answer],
    query: Executable,
    parameters: Mapping[str, Any] | None = None,
) -> Answer | None:
    """Return the first row of a query, mapped by `map_row`; None without rows."""
    row: Row[Any] | None = tx.execute(query, parameters).first()
    return None if row is None else map_row(make, row)


def lock_clause(connection: Connection, *, of: str = "", skip_locked: bool = False) -> str:
    """Return the FOR UPDATE clause of a query; empty on SQLite, whose writers lock the catalog.

    `of` is the alias of the one table to lock.
    """
    if connection.dialect.name == "sqlite":
        return ""
    return " FOR UPDATE" + (f" OF {of}" if of else "") + (" SKIP LOCKED" if skip_locked else "")


def limit_idle_time(tx: Tx, seconds: float) -> None:
    """Have PostgreSQL end this transaction if its client is silent for so long.

    The locks of a host that is cut off are released then; other transactions wait for them until
    the limit of the session, a minute. SQLite has no clients that vanish.
    """
    if tx.dialect.name != "sqlite":
        setting = "SELECT set_config('idle_in_transaction_session_timeout', :limit, true)"
        tx.execute(parse(setting), {"limit": f"{int(seconds * 1000)}ms"})


Columns = Mapping[str, tuple[str, Sequence[Any]]]
"""Column name → (SQL type on PostgreSQL, values); all of one length."""


def tuple_columns(rows: Iterable[Sequence[Any]], **kinds: str) -> Columns:
    """Return columns of these SQL types with the members of tuples, in their order."""
    values = list(zip(*rows, strict=True)) or [()] * len(kinds)
    return {name: (kinds[name], column) for name, column in zip(kinds, values, strict=True)}


def fqid_columns(fqids: Iterable[FQID]) -> Columns:
    """Return the columns `uuid` and `version` of versions."""
    return attribute_columns(list(fqids), text="uuid version")


def attribute_columns(rows: Sequence[Any], **names: str) -> Columns:
    """Return columns with attributes of the rows; `names` has those of each SQL type."""
    return {
        name: (kind, [getattr(row, name) for row in rows])
        for kind, listed in names.items()
        for name in listed.split()
    }


def derive_table(tx: Tx, name: str, columns: Columns) -> tuple[str, dict[str, Any]]:
    """Return the FROM item `name(columns)` with these rows, and its parameters."""
    if tx.dialect.name == "sqlite":
        rows = list(zip(*(values for _, values in columns.values()), strict=True))
        picks = ", ".join(
            f"json_extract(value, '$[{place}]') AS {column}" for place, column in enumerate(columns)
        )
        body = orjson.dumps(rows).decode()
        return f"(SELECT {picks} FROM json_each(:{name}_rows)) AS {name}", {f"{name}_rows": body}
    arrays = ", ".join(
        f"CAST(:{name}_{column} AS {kind}[])" for column, (kind, _) in columns.items()
    )
    parameters = {f"{name}_{column}": list(values) for column, (_, values) in columns.items()}
    return f"unnest({arrays}) AS {name}({', '.join(columns)})", parameters


def fetch_versions(
    tx: Tx, query: Select[Any], *, after: FQID | None = None, limit: int
) -> list[FQID]:
    """Return the rows of a query of uuid and version, in this order, after a given one."""
    place = tuple_(*query.selected_columns)
    if after is not None:
        query = query.where(place > (after.uuid, after.version))
    rows = tx.execute(query.order_by(*query.selected_columns).limit(limit))
    return [FQID(row.uuid, row.version) for row in rows]


def execute_with(
    tx: Tx, statement: str, name: str, columns: Columns, **parameters: Any
) -> CursorResult[*tuple[Any, ...]]:
    """Run a statement: `{source}` is the table `name` of these rows, `:now` the catalog's clock."""
    source, values = derive_table(tx, name, columns)
    return execute(tx, statement.format(source=source), {**values, **parameters})


def fetch_rows(
    tx: Tx, columns: tuple[str, ...], source: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return all rows of `SELECT columns FROM source`, possibly thousands.

    For integers and texts only. It bypasses SQLAlchemy's rows, which would cost as much as the
    statement.
    """
    if tx.dialect.name == "sqlite":
        arrays = tx.exec_driver_sql(_select_arrays(columns, source), dict(parameters)).one()
        return [*zip(*map(orjson.loads, arrays), strict=True)]
    statement = f"SELECT {', '.join(columns)} FROM {source}"
    with tx.execute(parse(statement), parameters) as result:
        cursor = result.cursor
        return [] if cursor is None else [*cursor.fetchall()]


def fetch_columns(
    tx: Tx, columns: tuple[str, ...], source: str, order: str, parameters: Mapping[str, Any]
) -> list[Sequence[Any]]:
    """Return the values of each column, in order.

    On SQLite the source itself defines the order: its outermost table and those it joins by CROSS
    JOIN are read by indexes in this order.
    """
    if tx.dialect.name == "sqlite":
        # ORDER BY would sort sorted rows, at half as much time again.
        arrays = tx.exec_driver_sql(_select_arrays(columns, source), dict(parameters)).one()
        return [*map(orjson.loads, arrays)]
    rows = fetch_rows(tx, columns, f"{source} ORDER BY {order}", parameters)
    return [*zip(*rows, strict=True)] or [()] * len(columns)


@lru_cache(maxsize=64)
def _select_arrays(columns: tuple[str, ...], source: str) -> str:
    """Select one JSON array per column: sqlite3 takes longer to step through the rows."""
    picks = ", ".join(f"json_group_array({column})" for column in columns)
    return f"SELECT {picks} FROM {source}"


def insert_missing(tx: Tx, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert rows that do not exist; return how many."""
    if not rows:
        return 0
    engine = sqlite if tx.dialect.name == "sqlite" else postgresql
    # One statement: rows are not counted when statements are sent in batches.
    fresh = engine.insert(table).values(list(rows)).on_conflict_do_nothing()
    return tx.execute(fresh, execution_options={"preserve_rowcount": True}).rowcount


def upsert(tx: Tx, table: Table, row: Mapping[str, Any]) -> None:
    """Insert a row, or set these columns of the one with the same primary key."""
    engine = sqlite if tx.dialect.name == "sqlite" else postgresql
    fresh = engine.insert(table).values(row)
    key = table.primary_key.columns.keys()
    changed = {name: fresh.excluded[name] for name in row if name not in key}
    tx.execute(fresh.on_conflict_do_update(index_elements=key, set_=changed))


def join_one(tx: Tx, table: str, name: str, condition: str, *, lock: bool = False) -> str:
    """Return a join of each row with at most one row of a table, by the index of the condition.

    Without it, planners read the whole table for many rows, however large it is. With `lock`, the
    joined rows are locked in the order of the rows before.
    """
    # SQLite keeps the order of CROSS JOINs; a LATERAL with a LIMIT never becomes a hash join.
    if tx.dialect.name == "sqlite":
        return f"CROSS JOIN {table} AS {name} ON {condition}"
    locking = " FOR UPDATE" if lock else ""
    one = f"SELECT * FROM {table} AS {name} WHERE {condition} LIMIT 1{locking}"
    return f"CROSS JOIN LATERAL ({one}) AS {name}"


def look_up_rows(
    tx: Tx, columns: str, wanted: Columns, *joins: tuple[str, str, str], **parameters: Any
) -> CursorResult[*tuple[Any, ...]]:
    """Return columns of the table `wanted` joined to each of (table, name, condition) in turn.

    See `join_one`.
    """
    source, values = derive_table(tx, "wanted", wanted)
    joined = " ".join([source, *(join_one(tx, *join) for join in joins)])
    return tx.execute(parse(f"SELECT {columns} FROM {joined}"), {**values, **parameters})


EXPIRE_BATCH = 200
"""Most rows that `delete_oldest` deletes where each insert into a table calls it."""


def delete_oldest(
    tx: Tx,
    table: str,
    *,
    before_us: int,
    key: str = "id",
    time: str = "ends_us",
    limit: int = EXPIRE_BATCH,
) -> int:
    """Delete up to `limit` rows whose `time` is before a moment, the oldest first; return how many.

    `key` names one column, or several with commas.
    """
    # Without SKIP LOCKED two transactions that expire rows could deadlock.
    oldest = (
        f"SELECT {key} FROM {table} WHERE {time} < :before ORDER BY {time} LIMIT {limit}"
        f"{lock_clause(tx, skip_locked=True)}"
    )
    statement = parse(f"DELETE FROM {table} WHERE ({key}) IN ({oldest})")
    return tx.execute(statement, {"before": before_us}).rowcount
