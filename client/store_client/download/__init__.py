"""Bringing files, bundles and collections here, each byte proved.

`download(Client(), bundle_uuid, options=Options("aws"))`
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_client.download.bundles import download
    from store_client.download.collections import download_collection
    from store_client.download.manifests import download_manifest
    from store_client.download.options import Filters, Options

__all__ = ["Filters", "Options", "download", "download_collection", "download_manifest"]

_LIVES_IN = {
    "download": "bundles",
    "download_collection": "collections",
    "download_manifest": "manifests",
}
"""Modules of what is exported; the rest is in `options`. Loaded when it is used first."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _LIVES_IN.get(name, "options")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
