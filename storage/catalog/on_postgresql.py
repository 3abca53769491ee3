"""PostgreSQL under the catalog: how a unit of work begins, and how its server is reached.

What a unit of work wants of its session is said once for each connection; behind a pooler, which
may give every unit of work another session, while it begins.
"""

from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from config.settings import SettingsError
from storage.catalog.kinds import DURABLE, PASSING, READING, Kind, Limits

CLOCK = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
"""When the server took the statement up. Stable within it, so that an index may be asked."""

DRIVER = "postgresql+psycopg"
LOCK_S, IDLE_S = 30, 60
"""The longest wait for a lock; and for a client that vanished while it held some."""

# Looking up many keys is dear by the planner's reckoning; compiling that costs more than it saves.
# A plan made for a small table is kept while it grows: it had better be by index from the first,
# and in the order of the index: a bitmap of what seemed to be one row may be of all.
_SETTINGS = (
    f"idle_in_transaction_session_timeout TO '{IDLE_S}s'",
    f"lock_timeout TO '{LOCK_S}s'",
    "jit TO off",
    "enable_seqscan TO off",
    "enable_bitmapscan TO off",
)
_PREPARE = "; ".join(f"SET {setting}" for setting in _SETTINGS)
# A reader sees one state of the catalog throughout, as it does on SQLite.
_BEGIN: dict[Kind, str] = {
    READING: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    DURABLE: "BEGIN ISOLATION LEVEL READ COMMITTED",
    PASSING: "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO off",
}
# One message each.
_BEGIN_POOLED = {
    kind: "; ".join((begin, *(f"SET LOCAL {setting}" for setting in _SETTINGS)))
    for kind, begin in _BEGIN.items()
}
_DIRECT = "direct"

# What libpq is told unless the URL says otherwise: a server or a network that is gone is noticed
# within a minute, not after two hours.
_REACHED = {
    "application_name": "store",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
RECYCLE_S = 3600
"""Age at which a connection is replaced: servers behind one name are spread over again."""

# Classes: connection, rollback of a transaction (deadlock), resources, not now, an operator's
# intervention (shutdown, start, cancel), system. Of 25: a standby, and a time-out of ours.
_PASSING_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
_PASSING_STATES = frozenset({"25006", "25P03"})


def engine(url: str, limits: Limits) -> Engine:
    """The engine of a server; nothing is connected yet. SettingsError for a URL that names none."""
    told = _understood(url)
    made = create_engine(
        told,
        pool_size=limits.connections,
        max_overflow=limits.overflow,
        pool_timeout=limits.wait_s,
        pool_recycle=RECYCLE_S,
        pool_use_lifo=True,
        hide_parameters=True,
        # The driver would begin on its own, with a message of its own: `begin` does.
        connect_args={"autocommit": True}
        | {name: value for name, value in _REACHED.items() if name not in told.query},
    )
    event.listen(made, "connect", _prepare)
    return made


def _understood(url: str) -> URL:
    """The URL is not repeated in errors: it may hold a password."""
    try:
        told = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingsError("the catalog's URL cannot be understood") from error
    if told.drivername != DRIVER:
        raise SettingsError(f"the catalog's URL begins with {DRIVER}:// or sqlite:///")
    return told


def passes(error: DBAPIError) -> bool:
    """Whether waiting may help. Errors without a state are those of reaching the server."""
    cause: Any = error.orig
    if not hasattr(cause, "sqlstate"):
        return False
    state: str | None = cause.sqlstate
    if state is None:
        return isinstance(error, OperationalError)
    return state[:2] in _PASSING_CLASSES or state in _PASSING_STATES


def _prepare(connection: Any, record: ConnectionPoolEntry) -> None:
    """A session is ours where nothing stands between: a pooler makes up the process id it tells,
    and gives every unit of work another session, which neither knows what was prepared before nor
    keeps a setting."""
    served_by = connection.execute("SELECT pg_backend_pid()").fetchone()[0]
    record.info[_DIRECT] = served_by == connection.info.backend_pid
    if record.info[_DIRECT]:
        connection.execute(_PREPARE)
    else:
        connection.prepare_threshold = None


def is_direct(connection: Connection) -> bool:
    """Whether the session behind a connection is ours, so that one statement needs no beginning."""
    return bool(connection.info[_DIRECT])


def begin(connection: Connection, kind: Kind) -> None:
    """Begin a unit of work, in one message."""
    connection.exec_driver_sql((_BEGIN if is_direct(connection) else _BEGIN_POOLED)[kind])
