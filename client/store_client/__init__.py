"""The client of a consortium's data store: the command `store`, and this library.

What is exported is loaded when it is used first, so that the command starts fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_client.client import Client
    from store_client.errors import (
        Conflict,
        Damaged,
        Misused,
        NotAllowed,
        NotFound,
        Refused,
        StoreError,
        TimedOut,
        Unreachable,
    )
    from store_client.versions import create_version

__all__ = [
    "Client",
    "Conflict",
    "Damaged",
    "Misused",
    "NotAllowed",
    "NotFound",
    "Refused",
    "StoreError",
    "TimedOut",
    "Unreachable",
    "create_version",
]

_LIVES_IN = {"Client": "client", "create_version": "versions"}
"""Modules of what is exported; errors are in `errors`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = importlib.import_module(f"{__name__}.{_LIVES_IN.get(name, 'errors')}")
    return getattr(found, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
