"""A change of records: one unit of work that holds them, counts it and writes it into the audit
log. What is read by it is still so when it ends.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from storage.catalog import Catalog, accounts, audit
from storage.catalog.accounts import Account, Name
from storage.catalog.audit import Change
from storage.catalog.engine import Tx
from storage.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class By:
    """Whose change it is, by which operation, in which request."""

    who: str
    what: str
    request_id: str = ""


Said = Mapping[str, Any] | None
"""What a record was or is, as the audit log tells it: never a secret."""


@contextmanager
def change(catalog: Catalog) -> Iterator[Tx]:
    """A unit of work that holds every record."""
    with catalog.write() as tx:
        accounts.hold(tx)
        yield tx


def record_change(tx: Tx, by: By, name: Name, *, before: Said, after: Said) -> None:
    """Write it into the audit log, and count it: what was decided so far is to be decided anew."""
    accounts.changed(tx)
    record_audit(tx, by, f"{name.kind}/{name.id}", before=before, after=after)


def record_audit(tx: Tx, by: By, target: str, *, before: Said, after: Said) -> None:
    """Write something into the audit log that no decision depends on: nothing is counted."""
    audit.add(
        tx,
        Change(
            who=by.who,
            what=by.what,
            target=target,
            before=_text(before),
            after=_text(after),
            request_id=by.request_id,
        ),
    )


def _text(said: Said) -> str | None:
    return None if said is None else json.dumps(said, ensure_ascii=False)


def existing(tx: Tx, name: Name) -> Account:
    """The record of that name; NotFound."""
    found = accounts.find(tx, name)
    if found is None:
        raise NotFound(f"There is no {name.kind} {name.id}.")
    return found


def protected(name: Name, what: str) -> Conflict:
    """The refusal to change what is built in."""
    return Conflict(f"The {name.kind} {name.id} is built in: {what}.", code="protected")
