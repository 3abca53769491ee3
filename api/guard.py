"""Who may do what in the storage API: as the policies say, for each request that is not open."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Request

from api.asking import Asked
from api.circumstances import Circumstances
from api.settling import with_replica, with_version
from auth.access import OF_A_VERSION, OF_EACH, Access
from storage.catalog import Catalog
from storage.errors import NotFound
from storage.model import Principal
from storage.protocols import Sources


@dataclass(frozen=True)
class StoreGuard:
    """See `api.asking.Guard`."""

    access: Access
    catalog: Catalog
    sources: Sources
    circumstances: Circumstances

    def wants(self, operation: str) -> str | None:
        """What it asks of its caller."""
        return self.access.wants(operation)

    def may(self, principal: Principal | None, operation: str) -> bool:
        """Whether the principal may."""
        return self.access.may(principal, operation)

    def require(self, operation: str, call: Asked[Any, Any, Any]) -> Asked[Any, Any, Any]:
        """The call, if its caller may; what it leaves open as it was judged, so that it is that
        which is done."""
        kind = OF_A_VERSION.get(operation)
        settled: Asked[Any, Any, Any] | None = call
        if kind is not None and operation not in self.access.open:
            settled = with_version(call, self.catalog, kind)
        elif operation == "put_file":
            settled = with_replica(call, self.sources)
        context = self.circumstances.of(call.request, call.principal)
        self.access.require_each(call.principal, operation, named(settled or call), context)
        if settled is None:
            # What comes to be in between was not judged.
            raise NotFound(f"There is no {kind} {call.path['uuid']}.")
        return settled

    def refuse(self, principal: Principal | None, operation: str, request: Request) -> None:
        """Refuse who may not."""
        context = self.circumstances.of(request, principal)
        self.access.require(principal, operation, {}, context)


def named(call: Asked[Any, Any, Any]) -> list[Mapping[str, str]]:
    """What a request names, by each thing that it is on; nothing in a query stands for what its
    path names."""
    query = {} if call.query is None else vars(call.query)
    on = [vars(one) for one in call.body.files] if call.operation in OF_EACH else [call.path]
    return [
        {name: value for name, value in {**query, **one}.items() if isinstance(value, str)}
        for one in on
    ]
