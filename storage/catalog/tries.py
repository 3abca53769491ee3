"""Failed logins in a row, how often somebody may ask, and how often that is told: counted here, so
that all processes agree. Times are the caller's, in microseconds.
"""

from dataclasses import dataclass

from storage.catalog.engine import Tx, sql

FORGOTTEN = 200
"""Rows that one statement forgets: whoever adds one takes old ones away."""


@dataclass(frozen=True, slots=True)
class Tries:
    """Who failed how often in a row, and until when the next try has to wait."""

    who: str
    failures: int
    last_us: int
    until_us: int


_COUNT = sql(
    "INSERT INTO tries (who, failures, last_us, until_us) VALUES (:who, 1, :now, 0)"
    " ON CONFLICT (who) DO UPDATE SET last_us = excluded.last_us, failures ="
    " CASE WHEN tries.last_us < :forgotten THEN 1 ELSE tries.failures + 1 END"
    " WHERE tries.until_us <= excluded.last_us RETURNING failures"
)


def count(tx: Tx, who: str, *, now_us: int, forgotten_us: int) -> int | None:
    """One failure more, unless there is waiting to be done: how many there are now, else None.

    The row stays locked: of tries that come together each counts before the next one is let in.
    """
    values = {"who": who, "now": now_us, "forgotten": forgotten_us}
    row = tx.execute(_COUNT, values).first()
    return None if row is None else int(row.failures)


def postpone(tx: Tx, who: str, until_us: int) -> None:
    """The next try has to wait until then."""
    query = sql("UPDATE tries SET until_us = :until WHERE who = :who")
    tx.execute(query, {"who": who, "until": until_us})


def uncount(tx: Tx, who: str, *, counted: int) -> None:
    """What was counted was no failure; others that came meanwhile stay counted."""
    query = sql(
        "UPDATE tries SET failures = failures - 1,"
        " until_us = CASE WHEN failures = :counted THEN 0 ELSE until_us END WHERE who = :who"
    )
    tx.execute(query, {"who": who, "counted": counted})


def forgive(tx: Tx, who: str) -> bool:
    """Nothing is held against them any more; False when nothing was."""
    return bool(tx.execute(sql("DELETE FROM tries WHERE who = :who"), {"who": who}).rowcount)


_PREFIXED = "who >= :prefix AND who < :beyond"


def _range(prefix: str) -> dict[str, str]:
    """The keys with a prefix, as a range of the primary key."""
    return {"prefix": prefix, "beyond": prefix[:-1] + chr(ord(prefix[-1]) + 1)}


def forgive_all(tx: Tx, prefix: str, *, suffix: str = "") -> bool:
    """The same of all whose keys begin and end so; False when nothing was held against any."""
    query = f"SELECT who FROM tries WHERE {_PREFIXED}"
    found = [row.who for row in tx.execute(sql(query), _range(prefix)) if row.who.endswith(suffix)]
    return sum(forgive(tx, who) for who in found) > 0


def begin_with(tx: Tx, prefix: str) -> list[Tries]:
    """What is held against all whose keys begin so."""
    query = f"SELECT who, failures, last_us, until_us FROM tries WHERE {_PREFIXED}"
    return [Tries(**row._mapping) for row in tx.execute(sql(query), _range(prefix))]


def forget(tx: Tx, before_us: int) -> None:
    """Forget some of those whose last failure was before."""
    old = f"SELECT who FROM tries WHERE last_us < :before ORDER BY last_us LIMIT {FORGOTTEN}"
    tx.execute(sql(f"DELETE FROM tries WHERE who IN ({old})"), {"before": before_us})


_TRIES = sql("SELECT who, failures, last_us, until_us FROM tries WHERE who = :who")


def find(tx: Tx, who: str) -> Tries | None:
    """What is held against somebody."""
    row = tx.execute(_TRIES, {"who": who}).first()
    return None if row is None else Tries(**row._mapping)


_ONE_MORE = sql(
    "INSERT INTO tries (who, failures, last_us, until_us) VALUES (:who, 1, :now, :until)"
    " ON CONFLICT (who) DO UPDATE SET last_us = excluded.last_us, failures = tries.failures + 1"
    " RETURNING failures, until_us"
)
_ANEW = sql("UPDATE tries SET failures = 1, until_us = :until WHERE who = :who")


def one_more(tx: Tx, who: str, *, most: int, now_us: int, span_us: int) -> int | None:
    """None for what is beyond the most of one span; else how many of the span before were, of which
    this is the first to tell."""
    until_us = now_us + span_us
    row = tx.execute(_ONE_MORE, {"who": who, "now": now_us, "until": until_us}).one()
    if row.until_us <= now_us:
        tx.execute(_ANEW, {"who": who, "until": until_us})
        return max(0, int(row.failures) - 1 - most)
    return 0 if row.failures <= most else None


_TAKE = sql(
    "INSERT INTO rates (who, full_us) VALUES (:who, :now + :step)"
    " ON CONFLICT (who) DO UPDATE SET full_us ="
    " CASE WHEN rates.full_us < :now THEN :now ELSE rates.full_us END + :step"
    " WHERE rates.full_us <= :latest"
)


def take(tx: Tx, who: str, *, now_us: int, step_us: int, burst: int) -> int:
    """Take one of `burst`, each of which is back after `step_us`: 0, else how long to wait."""
    latest = now_us + (burst - 1) * step_us
    values = {"who": who, "now": now_us, "step": step_us, "latest": latest}
    if tx.execute(_TAKE, values).rowcount:
        return 0
    full = tx.execute(sql("SELECT full_us FROM rates WHERE who = :who"), {"who": who}).scalar()
    return max(1, int(full or 0) - latest)


def forget_rates(tx: Tx, before_us: int) -> None:
    """Forget some of those that have their whole allowance."""
    old = f"SELECT who FROM rates WHERE full_us < :before ORDER BY full_us LIMIT {FORGOTTEN}"
    tx.execute(sql(f"DELETE FROM rates WHERE who IN ({old})"), {"before": before_us})
