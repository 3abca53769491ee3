"""Who may do what in the storage API: as the policies say, for each request that is not open."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from api.asking import Asked
from auth.access import OF_A_VERSION, Access
from storage.catalog import Catalog, visibility
from storage.model import REPLICAS, Principal


@dataclass(frozen=True)
class StoreGuard:
    """See `api.asking.Guard`."""

    access: Access
    catalog: Catalog

    def wants(self, operation: str) -> str | None:
        """What it asks of its caller."""
        return self.access.wants(operation)

    def may(self, principal: Principal | None, operation: str) -> bool:
        """Whether the principal may."""
        return self.access.may(principal, operation)

    def require(self, operation: str, call: Asked[Any, Any, Any]) -> Asked[Any, Any, Any]:
        """The call, if its caller may; of a read that names no version with the one it was judged
        on, so that it is that one which is read."""
        if operation in OF_A_VERSION and operation not in self.access.open:
            call = self._resolved(operation, call)
        self.access.require(call.principal, operation, named(call))
        return call

    def refuse(self, principal: Principal | None, operation: str) -> None:
        """Refuse who may not."""
        self.access.require(principal, operation, {})

    def _resolved(self, operation: str, call: Asked[Any, Any, Any]) -> Asked[Any, Any, Any]:
        if call.query.version is not None:
            return call
        uuid, kind = call.path["uuid"], OF_A_VERSION[operation]
        found: tuple[str, int] | None = None
        with self.catalog.read() as tx:
            # What one replica lacks may be answered by the other one.
            for replica in sorted(REPLICAS, key=lambda each: each != call.query.replica):
                found = found or visibility.latest(tx, kind, replica, uuid)
        return call if found is None else replace(call, query=replace(call.query, version=found[0]))


def named(call: Asked[Any, Any, Any]) -> Mapping[str, str]:
    """What a request names; nothing in a query stands for what its path names."""
    query = {} if call.query is None else vars(call.query)
    return {name: value for name, value in {**query, **call.path}.items() if isinstance(value, str)}
