"""What somebody may do: their own policy, those of their roles, of their groups and of the groups'
roles, as the records have them at this moment.
"""

from collections.abc import Collection
from dataclasses import dataclass

from auth.accounts.rights import Rights
from auth.policies.evaluator import Compiled
from storage.catalog.engine import Tx


@dataclass(frozen=True, slots=True)
class Effective:
    """A principal as the records know it; everybody is in `user_default`, known or not."""

    email: str
    known: bool
    enabled: bool
    groups: tuple[str, ...]
    roles: tuple[str, ...]
    compiled: Compiled


def effective(tx: Tx, email: str, claimed_groups: Collection[str], rights: Rights) -> Effective:
    """All that holds for somebody whose token claims these groups."""
    raise NotImplementedError


def policy_version(tx: Tx) -> int:
    """A number that every change of a record makes greater."""
    raise NotImplementedError


def first_login(tx: Tx, email: str, request_id: str = "") -> None:
    """Make the user's record if there is none; Forbidden when it is disabled."""
    raise NotImplementedError


def is_enabled(tx: Tx, email: str) -> bool:
    """Whether somebody may do anything at all; who has no record may."""
    raise NotImplementedError
