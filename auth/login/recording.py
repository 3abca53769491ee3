"""What logins tell the audit log."""

import json

from storage.catalog import audit
from storage.catalog.audit import Change
from storage.catalog.engine import Tx


def note(tx: Tx, email: str, what: str, after: str, request_id: str, *, who: str = "") -> None:
    """Somebody, by default the user, did this to a login; `after`: by what, or from where."""
    target = f"user/{email}"
    audit.add(tx, Change(who or email, what, target, None, json.dumps(after), request_id))
