"""What the records say of the person who grants something."""

from dataclasses import dataclass

from auth.accounts.admitting import first_login, is_enabled
from auth.accounts.effective import effective
from auth.accounts.rights import Rights
from storage.catalog.engine import Tx


@dataclass(frozen=True)
class RecordedPeople:
    """See `auth.openid.provider.People`."""

    rights: Rights

    def admit(self, tx: Tx, email: str) -> None:
        """Make a record at the first login; Forbidden when the person is disabled."""
        first_login(tx, email)

    def is_enabled(self, tx: Tx, email: str) -> bool:
        """Whether the person may have anything at all."""
        return is_enabled(tx, email)

    def groups(self, tx: Tx, email: str) -> tuple[str, ...]:
        """The groups that a token tells of: information, since the records decide."""
        return effective(tx, email, (), self.rights).groups
