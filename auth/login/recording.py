"""What logins ask of accounts, and tell the audit log."""

from storage.catalog.engine import Tx


def admit(tx: Tx, email: str) -> None:
    pass


def is_enabled(tx: Tx, email: str) -> bool:
    return True


def note(tx: Tx, email: str, what: str, after: str, request_id: str) -> None:
    pass
