"""What both applications make of a request: who asks for what, loaded, before any view sees it.

Each application has a `Call` of its own that is an `Asked` with its own services, and a guard that
says who may do what.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from flask import Request

from api.readonly import ReadOnly
from auth.tokens.verifying import bearer
from config.settings import Settings
from storage.errors import Unauthorized
from storage.memory import MemoryBudget
from storage.model import Principal
from storage.rates import Rates

Verify = Callable[[str], Principal]
"""Who a bearer token names, or Unauthorized."""


def identify(verify: Verify, authorization: str | None) -> Principal | None:
    """Nobody without a header; a bad token is Unauthorized even where none is wanted."""
    token = bearer(authorization)
    return None if token is None else verify(token)


Q = TypeVar("Q")
B = TypeVar("B")
S = TypeVar("S")


@dataclass(frozen=True)
class Asked(Generic[S, Q, B]):
    """One request, loaded and authorized."""

    services: S
    operation: str
    request: Request
    request_id: str
    path: Mapping[str, str]
    query: Q
    body: B
    principal: Principal | None
    base: str
    """Base of absolute URLs, without `/v1`."""

    @property
    def who(self) -> Principal:
        """The caller, of operations that want one."""
        if self.principal is None:
            raise Unauthorized("This needs a token")
        return self.principal

    @property
    def headed(self) -> bool:
        """Whether only the headers of the answer are asked for."""
        return self.request.method == "HEAD"


class Guard(Protocol):
    """Who may do what in one application; operations go by their names."""

    def wants(self, operation: str) -> str | None:
        """What it asks of its caller, in words; None when it is open to everybody."""

    def may(self, principal: Principal | None, operation: str) -> bool:
        """Whether it is worth reading a large body: False only when `require` would refuse."""

    def require(self, operation: str, call: Asked[Any, Any, Any]) -> Asked[Any, Any, Any]:
        """The call as it was judged, if the caller may; else Unauthorized without a token,
        Forbidden with one."""

    def refuse(self, principal: Principal | None, operation: str, request: Request) -> None:
        """Refuse whom `may` does not let, before the body is known."""


class Services(Protocol):
    """The part of an application's services that every request needs."""

    @property
    def settings(self) -> Settings: ...
    @property
    def verify(self) -> Verify: ...
    @property
    def rates(self) -> Rates | None: ...
    @property
    def read_only(self) -> ReadOnly: ...
    @property
    def guard(self) -> Guard: ...
    @property
    def memory(self) -> MemoryBudget: ...

    def base(self, request: Request) -> str:
        """Base of absolute URLs, without `/v1`; Invalid when it may not be told from this."""
