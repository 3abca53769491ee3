"""The local provider: logging in with an e-mail address and a password."""

from dataclasses import dataclass

from auth.login import lockout
from auth.login.identity import identity
from auth.login.lockout import Patience
from auth.login.passwords import Checked, Passwords
from auth.login.recording import Failed, record_failure, record_login
from storage.catalog import Catalog, logins
from storage.errors import Unauthorized

NAME = "local"
"""The provider's, as sessions and addresses have it."""
WRONG = "The e-mail address or the password is not right."


@dataclass(frozen=True)
class Local:
    """What a password is checked with."""

    catalog: Catalog
    passwords: Passwords
    patience: Patience


@dataclass(frozen=True)
class Try:
    """Somebody's try: from which address, and from which browser if that is known."""

    email: str
    address: str
    browser: str | None
    at: float
    request_id: str


def check(local: Local, tried: Try, password: str) -> str:
    """The user's identity; Unauthorized, the same for every reason, or TooMany when it is not yet
    the time for another try."""
    email = identity(tried.email) or ""
    counted = lockout.enter(local.catalog, _counters(tried, email), local.patience, tried.at)
    with local.catalog.read() as tx:
        row = logins.password(tx, email)
    found = local.passwords.check(row.hash if row else None, password)
    if row is None or not found.right:
        _failed(local, tried, email, counted)
        raise Unauthorized(WRONG)
    _passed(local, counted, row, found)
    return email


def _counters(tried: Try, email: str) -> tuple[str, ...]:
    """The keys that a try is counted under. A browser that this user logged in with before is not
    locked out by what others try, not even at its own address."""
    if tried.browser:
        return (lockout.browser(tried.browser),)
    seen = tried.address
    return lockout.pair(email, seen), lockout.account(email), lockout.address(seen)


def change(local: Local, tried: Try, password: str, new: str) -> None:
    """Another password for who knows the one so far; every session of theirs ends. Unauthorized,
    TooMany, or Invalid when the new one may not be one."""
    email = check(local, tried, password)
    hashed = local.passwords.hash(new)
    with local.catalog.write() as tx:
        logins.change_password(tx, email, hashed, int(tried.at * 1e6))
        record_login(tx, email, "password_changed", email, tried.request_id, address=tried.address)


def _failed(local: Local, tried: Try, email: str, counted: lockout.Counted) -> None:
    failed, seen = Failed(email, tried.at, tried.request_id), tried.address
    whose = (lockout.account(email), lockout.address(seen))
    with local.catalog.write(durable=False) as tx:
        record_failure(tx, "login_failed", failed, of=whose, address=seen, provider=NAME)
        for who, wait_s in lockout.waits(counted, local.patience).items():
            record_failure(tx, "locked_out", failed, of=(who,), locked=who, wait_s=wait_s)


def _passed(
    local: Local, counted: lockout.Counted, row: logins.PasswordRow, found: Checked
) -> None:
    with local.catalog.write(durable=False) as tx:
        lockout.passed(tx, counted)
        if found.renewed:
            logins.rehash(tx, row.email, before=row.hash, after=found.renewed)
