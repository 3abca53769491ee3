"""What logins tell the audit log: who, by what and from where; never a password."""

from auth.accounts.changing import By, record_audit
from storage.catalog.engine import Tx


def note(tx: Tx, who: str, what: str, email: str, request_id: str, **after: str | int) -> None:
    """Somebody did this to the login of a user; `who` is empty while that is not known."""
    record_audit(tx, By(who, what, request_id), f"user/{email}", before=None, after=after)
