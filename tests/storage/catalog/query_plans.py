"""Query plans of PostgreSQL for the statements of a call."""

import re
from collections.abc import Callable
from typing import Any

from psycopg import sql
from sqlalchemy import event

from storage.catalog import Catalog, Tx


def plans_of(
    catalog: Catalog, act: Callable[[Tx], object], *, generic: bool = False, analyze: bool = False
) -> list[str]:
    """The plans of all that `act` says to the server but for beginnings; its effects are undone."""
    said: list[tuple[str, Any]] = []

    def listen(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            said.append((statement, parameters))

    event.listen(catalog.engine, "before_cursor_execute", listen)
    try:
        with catalog.write() as tx:
            act(tx)
            event.remove(catalog.engine, "before_cursor_execute", listen)
            driver = tx.connection.driver_connection
            return [_plan(driver, *each, generic=generic, analyze=analyze) for each in said]
    finally:
        if event.contains(catalog.engine, "before_cursor_execute", listen):
            event.remove(catalog.engine, "before_cursor_execute", listen)


def _plan(driver: Any, statement: str, parameters: Any, *, generic: bool, analyze: bool) -> str:
    explain = "EXPLAIN (ANALYZE, TIMING OFF) " if analyze else "EXPLAIN "
    if not generic:
        rows = driver.execute(explain + statement, parameters).fetchall()
        return "\n".join(row[0] for row in rows)
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    numbered = re.sub(r"%\((\w+)\)s", lambda m: f"${names.index(m[1]) + 1}", statement)
    driver.execute("SET LOCAL plan_cache_mode TO force_generic_plan")
    # The driver tells no types of text: nor does this.
    driver.execute(f"PREPARE plan AS {numbered}")
    given = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in names)
    call = sql.SQL("{}EXECUTE plan({})") if names else sql.SQL("{}EXECUTE plan")
    rows = driver.execute(call.format(sql.SQL(explain), given)).fetchall()
    driver.execute("DEALLOCATE plan")
    return "\n".join(row[0] for row in rows)
