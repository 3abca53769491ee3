"""Who may do what in the storage API, by the table of `auth.access`."""

from dataclasses import dataclass
from typing import Any

from api.asking import Asked
from auth.access import NEEDS, Need, Rights, may, require
from storage.model import Principal


def wants(operation: str) -> str | None:
    """What an operation asks of its caller; None when it is open."""
    need = NEEDS[operation]
    return None if need is Need.OPEN else need.value


@dataclass(frozen=True)
class StoreGuard:
    """See `api.asking.Guard`."""

    rights: Rights

    def wants(self, operation: str) -> str | None:
        """What it asks of its caller."""
        return wants(operation)

    def may(self, principal: Principal | None, operation: str) -> bool:
        """Whether the principal may."""
        return may(principal, operation, self.rights)

    def require(self, operation: str, call: Asked[Any, Any, Any]) -> None:
        """Return if the caller may."""
        self.refuse(call.principal, operation)

    def refuse(self, principal: Principal | None, operation: str) -> None:
        """Refuse who may not."""
        require(principal, operation, self.rights)
