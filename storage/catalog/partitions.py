"""Hash partitions of large tables on PostgreSQL: conversion to any number of parts, and to none.

A conversion locks the table and writes it again in one transaction, so that whatever ends it
leaves the table as it was.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from storage.catalog.engine import Catalog
from storage.catalog.sql import Tx, parse
from storage.errors import DomainError, Invalid, Unavailable

PARTITION_KEYS: Mapping[str, str] = {
    "visible": "uuid",
    "presence": "id",
    "blob_replicas": "blob_id",
    "entries": "segment_id",
}
"""Tables that can be partitioned → the column whose hash chooses the part.

Each of their unique constraints contains it, as PostgreSQL requires, and no table refers to them.
"""
MAX_PARTS = 256
LOCK_TIMEOUT_S = 10
"""Longest wait for the lock: all later statements queue behind it meanwhile."""
_LOCK_STATES = ("55P03", "40P01")
"""SQLSTATEs of a lock that cannot be had: timeout, deadlock."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table with its parts (1 if it is not partitioned), rows as the planner estimates them."""

    name: str
    parts: int
    rows: int
    bytes: int
    indexes: int

    def count_locks(self, parts: int) -> int:
        """Return how many locks a transaction takes that reads all of so many parts."""
        return parts * (1 + self.indexes)


_FAMILY = (
    "(SELECT CAST(to_regclass(:name) AS oid) UNION ALL"
    " SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(:name))"
)
"""A table and its partitions."""
_SELECT_STATE = (
    "SELECT count(*) AS parts, CAST(coalesce(sum(greatest(reltuples, 0)), 0) AS bigint) AS rows,"
    " CAST(coalesce(sum(pg_total_relation_size(oid)), 0) AS bigint) AS bytes,"
    " (SELECT count(*) FROM pg_index WHERE indrelid = to_regclass(:name)) AS indexes"
    f" FROM pg_class WHERE oid IN {_FAMILY} AND relkind = 'r'"
)
_SELECT_LOCKS = "SELECT CAST(current_setting('max_locks_per_transaction') AS integer)"


def require_server(catalog: Catalog) -> None:
    """Raise Invalid unless the catalog is on PostgreSQL."""
    if catalog.sqlite:
        raise Invalid(
            "The catalog is SQLite, which has no partitions: they need a catalog on PostgreSQL"
            " (STORE_CATALOG_URL)."
        )


def read_state(tx: Tx, table: str) -> TableState:
    """Return the parts and the size of a table."""
    row = tx.execute(parse(_SELECT_STATE), {"name": table}).one()
    return TableState(table, *row)


def require_convertible(tx: Tx, state: TableState, parts: int) -> None:
    """Raise Invalid if the table cannot be converted to so many parts; the reason names it."""
    if state.parts == parts:
        has = "is not partitioned" if parts == 1 else f"already has {parts} parts"
        raise Invalid(f"{state.name}: {has}.")
    for lost in tx.execute(parse(_SELECT_DEPENDENTS), {"name": state.name}).scalars():
        raise Invalid(
            f"{state.name}: a conversion would lose the {lost}: drop it, and create it again after."
        )
    others = [read_state(tx, name) for name in PARTITION_KEYS if name != state.name]
    needed = sum(one.count_locks(one.parts) for one in others if one.parts > 1)
    needed += state.count_locks(parts)
    allowed = tx.execute(parse(_SELECT_LOCKS)).scalar_one()
    if parts > 1 and needed > allowed:
        raise Invalid(
            f"{state.name}: with {parts} parts a transaction may take {needed} locks, and"
            f" max_locks_per_transaction of PostgreSQL is {allowed}: choose fewer parts, or set it"
            f" to at least {needed} and restart PostgreSQL."
        )


_SELECT_DEPENDENTS = (
    "SELECT DISTINCT pg_describe_object(classid, objid, 0) AS object FROM pg_depend"
    f" WHERE refclassid = CAST('pg_class' AS regclass) AND refobjid IN {_FAMILY}"
    " AND (classid = ANY(CAST(ARRAY['pg_rewrite', 'pg_policy', 'pg_publication_rel',"
    " 'pg_statistic_ext'] AS regclass[])) OR classid = CAST('pg_trigger' AS regclass)"
    " AND objid IN (SELECT oid FROM pg_trigger WHERE NOT tgisinternal))"
    " UNION SELECT pg_describe_object(CAST('pg_constraint' AS regclass), oid, 0)"
    f" FROM pg_constraint WHERE confrelid IN {_FAMILY} AND conrelid NOT IN {_FAMILY}"
    " UNION SELECT 'privileges on columns of ' || relname FROM pg_attribute JOIN pg_class AS c"
    f" ON c.oid = attrelid WHERE attrelid IN {_FAMILY} AND attacl IS NOT NULL ORDER BY object"
)
"""What operators attached to a table; the store itself attaches nothing of the kind."""


def convert(
    catalog: Catalog, table: str, parts: int, *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> int:
    """Convert a table to `parts` hash partitions, or with 1 to a plain table; return its rows.

    Raise Invalid if it cannot be converted, Unavailable while it cannot be locked. Either changes
    nothing.
    """
    require_server(catalog)
    with catalog.write() as tx:
        _prepare(tx)
        _lock(tx, table, lock_timeout_s)
        require_convertible(tx, read_state(tx, table), parts)
        definition = _read_definition(tx, table)
        fresh = f"{table}_new"
        _execute(tx, _describe_table(table, fresh, parts, definition.options))
        _execute(tx, [f"INSERT INTO {fresh} SELECT * FROM {table}"])
        counts = f"SELECT (SELECT count(*) FROM {table}), (SELECT count(*) FROM {fresh})"
        before, copied = tx.execute(parse(counts)).one()
        if before != copied:
            raise DomainError(f"{table}: {copied} of {before} rows were copied: nothing changed.")
        _execute(tx, [f"DROP TABLE {table}", f"ALTER TABLE {fresh} RENAME TO {table}"])
        _execute(tx, definition.statements)
        _execute(tx, [f"ANALYZE {table}"])
        _end_older_snapshots(tx)
    return int(copied)


def _prepare(tx: Tx) -> None:
    """Set what a transaction of hours needs."""
    _execute(
        tx,
        [
            "SET LOCAL statement_timeout TO 0",
            # Without it, a conversion whose process was killed keeps its lock until the end.
            "SET LOCAL client_connection_check_interval TO '5s'",
            "SET LOCAL enable_seqscan TO on",
            "SET LOCAL enable_bitmapscan TO on",
        ],
    )


def _lock(tx: Tx, table: str, timeout_s: float) -> None:
    """Lock a table and those it refers to, all at once, instead of one more after hours."""
    referenced = tx.execute(parse(_SELECT_REFERENCED), {"name": table}).scalars()
    tx.execute(text(f"SET LOCAL lock_timeout TO '{timeout_s * 1000:.0f}ms'"))
    try:
        for name in (table, *referenced):
            tx.execute(text(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) not in _LOCK_STATES:
            raise
        raise Unavailable(
            f"{table}: cannot be locked within {timeout_s:g} s, as other transactions use it:"
            " try again at a quiet moment, or stop the store's processes. Nothing changed."
        ) from error


_SELECT_REFERENCED = (
    "SELECT DISTINCT CAST(CAST(confrelid AS regclass) AS text) FROM pg_constraint"
    " WHERE contype = 'f' AND conrelid = to_regclass(:name) ORDER BY 1"
)


@dataclass(frozen=True, slots=True)
class _Definition:
    """The storage parameters of a table, and what completes a new one after its rows."""

    options: str
    statements: list[str]


def _read_definition(tx: Tx, table: str) -> _Definition:
    """Return what a new table must have like the old one; set the tablespace for it."""
    named = {"name": table}
    tx.execute(parse(_SET_TABLESPACE), named)
    options = tx.execute(parse(_SELECT_OPTIONS), named).scalar()
    statements = [
        *tx.execute(parse(_SELECT_CONSTRAINTS), named).scalars(),
        *tx.execute(parse(_SELECT_INDEXES), named).scalars(),
        *tx.execute(parse(_SELECT_OWNER), named).scalars(),
        *tx.execute(parse(_SELECT_GRANTS), named).scalars(),
    ]
    return _Definition(f" WITH ({options})" if options else "", statements)


_SET_TABLESPACE = (
    "SELECT set_config('default_tablespace', spcname, true) FROM pg_class AS c"
    " JOIN pg_tablespace AS t ON t.oid = reltablespace WHERE c.oid = to_regclass(:name)"
)
_SELECT_OPTIONS = (
    "SELECT array_to_string(reloptions, ', ') FROM pg_class"
    f" WHERE oid IN {_FAMILY} AND relkind = 'r' ORDER BY oid LIMIT 1"
)
# Foreign keys last: they compare all rows, by the indexes.
_SELECT_CONSTRAINTS = (
    "SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', CAST(:name AS text), conname,"
    " pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid = to_regclass(:name)"
    " AND contype IN ('p', 'u', 'c', 'f') ORDER BY contype = 'f', conname"
)
_SELECT_INDEXES = (
    "SELECT replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') FROM pg_index"
    " WHERE indrelid = to_regclass(:name)"
    " AND indexrelid NOT IN (SELECT conindid FROM pg_constraint WHERE conrelid = indrelid)"
    " ORDER BY indexrelid"
)
_SELECT_OWNER = (
    "SELECT format('ALTER TABLE %s OWNER TO %I', CAST(:name AS text), pg_get_userbyid(relowner))"
    " FROM pg_class WHERE oid = to_regclass(:name)"
)
_SELECT_GRANTS = (
    "SELECT format('GRANT %s ON %s TO %s%s', privilege_type, CAST(:name AS text),"
    " CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,"
    " CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)"
    " FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = to_regclass(:name)"
)


def _describe_table(table: str, fresh: str, parts: int, options: str) -> list[str]:
    """Return the statements that create a table like another one, without its indexes."""
    like = f"CREATE TABLE {fresh} (LIKE {table} INCLUDING ALL EXCLUDING INDEXES"
    like += " EXCLUDING CONSTRAINTS)"
    if parts == 1:
        return [like + options]
    digits = len(str(parts - 1))
    return [
        f"{like} PARTITION BY HASH ({PARTITION_KEYS[table]})",
        *(
            # The old parts still exist, and are never as many.
            f"CREATE TABLE {table}_{number:0{digits}}_of_{parts} PARTITION OF {fresh}"
            f" FOR VALUES WITH (MODULUS {parts}, REMAINDER {number}){options}"
            for number in range(parts)
        ),
    ]


def _end_older_snapshots(tx: Tx) -> None:
    """End the sessions whose transactions would find the new table empty.

    The rows are those of this transaction, which older snapshots do not see. READ COMMITTED takes
    another for the next statement, but readers of the catalog keep theirs.
    """
    tx.execute(parse(_END_SNAPSHOTS))


_END_SNAPSHOTS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    " AND xact_start IS NOT NULL AND pg_has_role(usesysid, 'MEMBER')"
)


def _execute(tx: Tx, statements: Iterable[str]) -> None:
    """Run statements without parameters, as they are."""
    for statement in statements:
        tx.exec_driver_sql(statement)


def list_partition_names(tx: Tx) -> set[Any]:
    """Return the names of all partitions, which are tables of their own on PostgreSQL."""
    if tx.dialect.name == "sqlite":
        return set()
    return {*tx.execute(parse("SELECT relname FROM pg_class WHERE relispartition")).scalars()}
