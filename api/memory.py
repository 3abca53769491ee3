"""Memory that a request holds for its body, until the request is done."""

from flask import Flask, g

from api.concurrency import suspended
from storage.memory import MemoryBudget

TIMEOUT_S = 60.0
"""How long a request waits for memory: as long as `Prefer: wait` may ask for."""


def new_budget() -> MemoryBudget:
    """The budget of a process of the API: a request that waits for memory lets another one run."""
    return MemoryBudget(timeout_s=TIMEOUT_S, waiting=suspended)


def reserve_memory(budget: MemoryBudget, size: int) -> None:
    """Reserve memory until this request ends, instead of what it reserved before; Unavailable if
    others hold too much for too long."""
    if "reservation" in g:
        g.pop("reservation").__exit__(None, None, None)
    if budget.is_small(size):
        return
    reservation = budget.reserved(size)
    reservation.__enter__()
    g.reservation = reservation


def register_memory(app: Flask) -> None:
    """End the reservation with its request."""

    @app.teardown_request
    def release(_error: BaseException | None) -> None:
        if "reservation" in g:
            g.pop("reservation").__exit__(None, None, None)
