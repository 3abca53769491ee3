"""Many rows in one statement: a derived table of the rows given, on either engine."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from storage.catalog.engine import Tx, sql
from storage.model import FQID

Columns = Mapping[str, tuple[str, Sequence[Any]]]
"""Column name → (SQL type on PostgreSQL, values); all of one length."""


def fqids(named: Iterable[FQID]) -> Columns:
    """The columns `uuid` and `version` of these."""
    rows = list(named)
    return {
        "uuid": ("text", [fqid.uuid for fqid in rows]),
        "version": ("text", [fqid.version for fqid in rows]),
    }


def derived(tx: Tx, name: str, columns: Columns) -> tuple[str, dict[str, Any]]:
    """The FROM item `name(columns)` holding the rows, and its parameters."""
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


def fetch(
    tx: Tx, columns: tuple[str, ...], source: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return all rows of `SELECT columns FROM source`, where they may be thousands.

    Integers and texts only. Rows of SQLAlchemy would cost as much as the statement.
    """
    if tx.dialect.name == "sqlite":
        arrays = tx.exec_driver_sql(_select_arrays(columns, source), dict(parameters)).one()
        return [*zip(*map(orjson.loads, arrays), strict=True)]
    statement = f"SELECT {', '.join(columns)} FROM {source}"
    with tx.execute(sql(statement), parameters) as result:
        cursor = result.cursor
        return [] if cursor is None else [*cursor.fetchall()]


def fetch_columns(
    tx: Tx, columns: tuple[str, ...], source: str, order: str, parameters: Mapping[str, Any]
) -> list[Sequence[Any]]:
    """The same, column by column. On SQLite the source alone makes the order: its outermost table
    and those that it joins by CROSS JOIN are read by indexes in this order."""
    if tx.dialect.name == "sqlite":
        # ORDER BY would sort what is sorted: half as much time again.
        arrays = tx.exec_driver_sql(_select_arrays(columns, source), dict(parameters)).one()
        return [*map(orjson.loads, arrays)]
    rows = fetch(tx, columns, f"{source} ORDER BY {order}", parameters)
    return [*zip(*rows, strict=True)] or [()] * len(columns)


@lru_cache(maxsize=64)
def _select_arrays(columns: tuple[str, ...], source: str) -> str:
    """One JSON array for each column: sqlite3 takes longer to step through the rows."""
    picks = ", ".join(f"json_group_array({column})" for column in columns)
    return f"SELECT {picks} FROM {source}"


def one_each(tx: Tx, table: str, name: str, condition: str, *, lock: bool = False) -> str:
    """The join of at most one row of a table to each row before, by the index that the condition
    names: for many rows a planner would rather read the whole table, however large. With `lock`
    they are held, in the order of the rows before."""
    # SQLite keeps the order of CROSS JOINs; a LATERAL with a LIMIT never becomes a hash join.
    if tx.dialect.name == "sqlite":
        return f"CROSS JOIN {table} AS {name} ON {condition}"
    locking = " FOR UPDATE" if lock else ""
    one = f"SELECT * FROM {table} AS {name} WHERE {condition} LIMIT 1{locking}"
    return f"CROSS JOIN LATERAL ({one}) AS {name}"
