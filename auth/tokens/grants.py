"""Whether the logins stand that access tokens came of. The catalog is asked at every such token, so
that what was given back, or taken away, is refused at the next request.
"""

from collections.abc import Callable

from storage.catalog import Catalog, grants


class Grants:
    """The grants of one catalog; `clock` tells seconds."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._clock = clock

    def stands(self, grant_id: str) -> bool:
        """Whether it was neither revoked nor is over: one look-up by key."""
        with self._catalog.read() as tx:
            return grants.stands(tx, grant_id, int(self._clock() * 1e6))
