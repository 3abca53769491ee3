"""What the views of one application share; made once by `create_app`, nothing else holds state."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from flask import Request

from api.asking import Guard, Verify
from api.metrics import Metrics
from api.paging import Cursors
from api.readonly import ReadOnly
from api.streaming import Streams
from api.urls import external_base
from api.waiting import Waiting
from auth.access import Access
from config.settings import Settings
from pipelines.notifying.subscriptions import Seal
from pipelines.replicating.fixity import Reports
from storage.memory import MemoryBudget
from storage.model import Todo
from storage.rates import Rates
from storage.sealing import instance_id
from storage.stores import Stores

__all__ = ["Chains", "Services", "Verify"]


class Chains(Protocol):
    """The part of `workers.chains.Chains` that requests use."""

    def send(self, rows: Iterable[Todo], request_id: str = "") -> None:
        """Hint at to-do rows that a write recorded; never raises."""

    def ping(self) -> None:
        """Raise when the queue cannot be reached."""


@dataclass(frozen=True)
class Services:
    """Settings, stores, and the few things built from them."""

    settings: Settings
    stores: Stores
    cursors: Cursors
    waiting: Waiting
    streams: Streams
    verify: Verify
    seal: Seal
    chains: Chains
    metrics: Metrics
    read_only: ReadOnly
    integrity: Reports
    access: Access
    guard: Guard

    @property
    def rates(self) -> Rates | None:
        """Counts requests; None where their number is not limited."""
        return self.stores.rates

    @property
    def memory(self) -> MemoryBudget:
        """For large request bodies and documents."""
        return self.stores.memory

    @property
    def instance(self) -> str:
        """Which store this is; `ops status` compares it."""
        return instance_id(self.settings.secret_key.encode())

    def base(self, request: Request) -> str:
        """Base of absolute URLs: what is configured, else what the request says of itself."""
        return external_base(self.settings, request)
