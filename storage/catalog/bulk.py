"""Many rows in one statement: a derived table of the rows given, on either engine."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from storage.catalog.engine import Tx, sql

Columns = Mapping[str, tuple[str, Sequence[Any]]]
"""Column name → (SQL type on PostgreSQL, values); all of one length."""


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


def insert(tx: Tx, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows; `columns` are their names and types, in order."""
    names = ", ".join(columns)
    if not rows:
        return
    if tx.dialect.name == "sqlite":
        # Its own many executions of one prepared statement are faster than JSON taken apart.
        places = ", ".join("?" * len(columns))
        tx.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({places})", [*rows])
        return
    values = zip(*rows, strict=True)
    typed = zip(columns.items(), values, strict=True)
    source, parameters = derived(tx, "fresh", {name: (kind, [*v]) for (name, kind), v in typed})
    tx.execute(sql(f"INSERT INTO {table} ({names}) SELECT {names} FROM {source}"), parameters)


def fetch(tx: Tx, statement: str, parameters: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
    """All rows of a statement as the driver gives them: tuples, not SQLAlchemy's rows, which cost
    as much as the statement where they are thousands."""
    with tx.execute(sql(statement), parameters) as result:
        cursor = result.cursor
        return [] if cursor is None else cursor.fetchall()


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
