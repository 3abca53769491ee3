"""The client of a consortium's data store: the command `store`, and this library.

Exports are imported on first use, so that the command starts fast.
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_client import webhooks as webhooks
    from store_client.async_client import AsyncClient
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
    from store_client.frames import search_frame
    from store_client.identifiers import create_version
    from store_client.library import download, open, upload  # noqa: A004

__all__ = [
    "AsyncClient",
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
    "download",
    "open",
    "search_frame",
    "upload",
]

_LIVES_IN = {
    "AsyncClient": "async_client",
    "Client": "client",
    "create_version": "identifiers",
    "download": "library",
    "open": "library",
    "search_frame": "frames",
    "upload": "library",
}
"""Modules of the exports; errors are in `errors`."""

_MODULES = ("webhooks",)
"""Modules that are imported on first use."""

_RENAMED = {
    "Definition": ("definition", "ApiDefinition"),
    "GivenToken": ("http", "StaticToken"),
    "Operation": ("definition", "ApiOperation"),
    "Parameter": ("definition", "OperationParameter"),
    "Policy": ("http", "RetryPolicy"),
    "Session": ("http", "HttpSession"),
    "Tell": ("progress", "TransferProgress"),
    "Tokens": ("http", "TokenSource"),
    "Uploaded": ("uploads", "UploadReport"),
}
"""Former names of public classes, kept until release 0.3: module and name of today."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        module, now = _RENAMED[name]
        warnings.warn(f"{name} is {module}.{now} now", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"{__name__}.{module}"), now)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = importlib.import_module(f"{__name__}.{_LIVES_IN.get(name, 'errors')}")
    return getattr(found, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
