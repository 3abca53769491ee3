"""Hash partitions of large tables on PostgreSQL: conversion to any number of parts, and to none.

A conversion locks the table and writes it again in one transaction, so that whatever ends it
leaves the table as it was.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
"""Longest wait for other sessions to end, and for the lock: later statements queue behind it."""
_POLL_S = 0.1
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
    lost = [
        name
        for query in (_SELECT_DEPENDENTS, _SELECT_SETTINGS, _SELECT_PRIVILEGES)
        for name in tx.execute(parse(query), {"name": state.name}).scalars()
    ]
    if lost:
        raise Invalid(
            f"{state.name}: a conversion would lose or change: {', '.join(lost)}. Remove them, and"
            " create them again after."
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


_INDEXES = f"(SELECT indexrelid FROM pg_index WHERE indrelid IN {_FAMILY})"
_OWN = (
    f"(SELECT CAST('pg_class' AS regclass) AS class, id FROM unnest(ARRAY{_FAMILY}) AS id"
    " UNION ALL SELECT CAST('pg_class' AS regclass), oid FROM pg_class WHERE (relispartition"
    f" OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = to_regclass(:name)))"
    f" AND oid IN {_INDEXES}"
    " UNION ALL SELECT CAST('pg_constraint' AS regclass), oid FROM pg_constraint"
    f" WHERE conrelid IN {_FAMILY} AND contype IN ('p', 'u', 'c', 'f', 'n')"
    " AND (conrelid = to_regclass(:name) OR NOT conislocal)"
    f" UNION ALL SELECT CAST('pg_attrdef' AS regclass), oid FROM pg_attrdef"
    f" WHERE adrelid IN {_FAMILY}"
    " UNION ALL SELECT CAST('pg_trigger' AS regclass), oid FROM pg_trigger WHERE tgisinternal)"
)
"""What a conversion makes again: the table, its parts, their indexes, constraints and defaults."""
_SELECT_DEPENDENTS = (
    "SELECT DISTINCT pg_describe_object(classid, objid, objsubid) AS object FROM pg_depend"
    " WHERE deptype IN ('n', 'a') AND (refclassid = CAST('pg_class' AS regclass)"
    f" AND refobjid IN {_FAMILY} OR refclassid = CAST('pg_type' AS regclass) AND refobjid IN"
    f" (SELECT unnest(ARRAY[oid, typarray]) FROM pg_type WHERE typrelid IN {_FAMILY}))"
    f" AND (classid, objid) NOT IN (SELECT class, id FROM {_OWN} AS own) ORDER BY object"
)
"""Objects of operators that depend on a table, its parts or their row types."""
_SELECT_SETTINGS = (
    "SELECT 'comment or security label of ' || pg_describe_object(classoid, objoid, objsubid)"
    " AS setting FROM (SELECT classoid, objoid, objsubid FROM pg_description"
    " UNION SELECT classoid, objoid, objsubid FROM pg_seclabel) AS label"
    f" WHERE (classoid, objoid) IN (SELECT class, id FROM {_OWN} AS own)"
    " UNION SELECT format('statistics settings of column %s of %s', attname,"
    " CAST(attrelid AS regclass)) FROM pg_attribute"
    f" WHERE attrelid IN {_FAMILY} AND attnum > 0 AND NOT attisdropped"
    " AND (coalesce(attstattarget, -1) <> -1 OR attoptions IS NOT NULL)"
    " UNION SELECT format('%s of %s', setting, CAST(c.oid AS regclass)) FROM pg_class AS c"
    " LEFT JOIN pg_class AS toast ON toast.oid = c.reltoastrelid,"
    " LATERAL (VALUES ('replica identity', c.relreplident <> 'd'),"
    " ('row security', c.relrowsecurity OR c.relforcerowsecurity),"
    " ('state UNLOGGED', c.relpersistence <> 'p'),"
    " ('TOAST parameters', toast.reloptions IS NOT NULL)) AS set (setting, is_set)"
    f" WHERE is_set AND c.oid IN {_FAMILY}"
    " UNION SELECT format('%s of %s', setting, CAST(i.indexrelid AS regclass)) FROM pg_index AS i"
    " JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS t ON t.oid = i.indrelid,"
    " LATERAL (VALUES ('CLUSTER order', i.indisclustered),"
    " ('tablespace', c.reltablespace <> t.reltablespace),"
    " ('storage parameters', c.reloptions IS NOT NULL AND EXISTS (SELECT FROM pg_constraint"
    " WHERE conindid = i.indexrelid))) AS set (setting, is_set)"
    f" WHERE is_set AND i.indrelid IN {_FAMILY}"
    " UNION SELECT 'storage parameters that differ between parts' FROM pg_class"
    f" WHERE oid IN {_FAMILY} AND relkind = 'r'"
    " HAVING count(DISTINCT coalesce(CAST(reloptions AS text), '')) > 1 ORDER BY setting"
)
"""Settings of a table, its parts, columns and indexes that a conversion does not set again."""
_SELECT_PRIVILEGES = (
    "SELECT format('privileges on column %s of %s', attname, CAST(attrelid AS regclass))"
    f" AS privilege FROM pg_attribute WHERE attrelid IN {_FAMILY} AND attacl IS NOT NULL"
    " UNION SELECT format('privileges on %s', CAST(oid AS regclass)) FROM pg_class"
    f" WHERE oid IN {_FAMILY} AND relispartition"
    " AND EXISTS (SELECT FROM aclexplode(relacl) WHERE grantee <> relowner)"
    " UNION SELECT format('REVOKE %s on %s from the owner', standard.privilege_type,"
    " CAST(c.oid AS regclass)) FROM pg_class AS c,"
    f" aclexplode(acldefault('r', relowner)) AS standard WHERE c.oid IN {_FAMILY}"
    " AND relacl IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(c.relacl) AS granted"
    " WHERE granted.grantee = relowner AND granted.privilege_type = standard.privilege_type)"
    " UNION SELECT format('privileges, by the default privileges of %s',"
    " pg_get_userbyid(defaclrole)) FROM pg_default_acl WHERE defaclobjtype = 'r'"
    " AND defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user)"
    " AND defaclnamespace IN (0, (SELECT relnamespace FROM pg_class"
    " WHERE oid = to_regclass(:name))) ORDER BY privilege"
)
"""Privileges that a conversion does not grant again, or that a new table has besides."""


def convert(
    catalog: Catalog, table: str, parts: int, *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> int:
    """Convert a table to `parts` hash partitions, or with 1 to a plain table; return its rows.

    Raise Invalid if it cannot be converted, Unavailable while other sessions use it. Either changes
    nothing.
    """
    require_server(catalog)
    with catalog.write() as tx:
        _prepare(tx)
        _wait_for_sessions(tx, table, lock_timeout_s)
        _lock(tx, table, lock_timeout_s)
        _require_no_sessions(tx, table)
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
        owned = (table, *_name_parts(table, parts))
        _execute(tx, [f"ALTER TABLE {name} OWNER TO {definition.owner}" for name in owned])
        _execute(tx, definition.grants)
        _execute(tx, [f"ANALYZE {table}"])
        _require_no_sessions(tx, table)
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


def _wait_for_sessions(tx: Tx, table: str, timeout_s: float) -> None:
    """Wait for other sessions that may read the table to end: a client's end takes a moment."""
    deadline = time.monotonic() + timeout_s
    while _list_sessions(tx, table) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    _require_no_sessions(tx, table)


def _require_no_sessions(tx: Tx, table: str) -> None:
    """Raise Unavailable if other sessions may read the table.

    The new rows are those of this transaction. A snapshot of before its commit does not see them,
    so a reader that waits for the lock with one would find an empty table.
    """
    if sessions := _list_sessions(tx, table):
        raise Unavailable(
            f"{table}: other sessions can read it: {', '.join(sessions)}. Stop the store's"
            " processes, and end other programs that use its database. Nothing changed."
        )


def _list_sessions(tx: Tx, table: str) -> list[str]:
    """Return the numbers of other sessions that may read a table, by program and address."""
    # A transaction sees the sessions of its first look otherwise.
    tx.execute(parse("SELECT pg_stat_clear_snapshot()"))
    return [*tx.execute(parse(_SELECT_SESSIONS), {"name": table}).scalars()]


# The server hides types and addresses of other roles' sessions from ordinary roles.
_SELECT_SESSIONS = (
    "SELECT format('%s of %s (role %s)%s', count(*), coalesce(nullif(application_name, ''),"
    " 'an unnamed program'), usename, ' from ' || host(client_addr)) AS sessions"
    " FROM pg_stat_activity, pg_class WHERE pg_class.oid = to_regclass(:name)"
    " AND datname = current_database() AND pid <> pg_backend_pid()"
    " AND coalesce(backend_type, 'client backend') = 'client backend'"
    " AND (has_table_privilege(usesysid, pg_class.oid, 'SELECT')"
    " OR pg_has_role(usesysid, relowner, 'MEMBER'))"
    " GROUP BY application_name, usename, client_addr ORDER BY sessions"
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
    owner: str
    grants: list[str]


def _read_definition(tx: Tx, table: str) -> _Definition:
    """Return what a new table must have like the old one; set the tablespace for it."""
    named = {"name": table}
    tx.execute(parse(_SET_TABLESPACE), named)
    options = tx.execute(parse(_SELECT_OPTIONS), named).scalar()
    statements = [
        *tx.execute(parse(_SELECT_CONSTRAINTS), named).scalars(),
        *tx.execute(parse(_SELECT_INDEXES), named).scalars(),
    ]
    owner = tx.execute(parse(_SELECT_OWNER), named).scalar_one()
    grants = [*tx.execute(parse(_SELECT_GRANTS), named).scalars()]
    return _Definition(f" WITH ({options})" if options else "", statements, owner, grants)


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
    "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = to_regclass(:name)"
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
    return [
        f"{like} PARTITION BY HASH ({PARTITION_KEYS[table]})",
        *(
            # The old parts still exist, and are never as many.
            f"CREATE TABLE {part} PARTITION OF {fresh}"
            f" FOR VALUES WITH (MODULUS {parts}, REMAINDER {number}){options}"
            for number, part in enumerate(_name_parts(table, parts))
        ),
    ]


def _name_parts(table: str, parts: int) -> list[str]:
    """Return the names of the parts; none of a plain table."""
    digits = len(str(parts - 1))
    numbers = range(parts) if parts > 1 else ()
    return [f"{table}_{number:0{digits}}_of_{parts}" for number in numbers]


def _execute(tx: Tx, statements: Iterable[str]) -> None:
    """Run statements without parameters, as they are."""
    for statement in statements:
        tx.exec_driver_sql(statement)
