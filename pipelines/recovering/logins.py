"""Logins in a catalog of another time: sessions that were logged out and grants that were revoked
since are there again, so all of them end.
"""

import json

from storage.catalog import accounts, audit, logins
from storage.catalog.audit import OPERATOR, Change
from storage.stores import Stores


def end(stores: Stores, what: str, **of: str) -> None:
    """End them, have everything be decided anew, and say so in the audit log: what was done, and
    with what."""
    with stores.catalog.write() as tx:
        accounts.hold(tx)
        accounts.changed(tx)
        ended = logins.end_everybodys(tx)
        after = json.dumps({**of, "sessions": ended.sessions, "grants": ended.grants})
        audit.add(tx, Change(OPERATOR, what, "catalog", None, after, ""))
