"""Deciding what a principal may do, remembered for as long as no record changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from auth.accounts.rights import Rights
from auth.policies.evaluator import NOTHING
from auth.policies.model import Decision, Value
from storage.catalog import Catalog
from storage.model import Principal


@dataclass(frozen=True, slots=True)
class Judged:
    """One action on one resource."""

    action: str
    resource: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all of it is allowed; `reason` is the worst of all."""

    allowed: bool
    reason: str
    results: tuple[Judged, ...]


class Decisions:
    """Decides for many threads; what was compiled is kept for one version of the records."""

    def __init__(self, catalog: Catalog, rights: Rights) -> None:
        self._catalog = catalog
        self._rights = rights

    def decide(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value] = NOTHING,
    ) -> Verdict:
        """Every action on every resource, all of which must be allowed."""
        raise NotImplementedError
