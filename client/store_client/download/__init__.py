"""Bringing files, bundles and collections here, each byte proved.

    from store_client import Client
    from store_client.download import DownloadOptions, download

    done = download(Client(), bundle_uuid, options=DownloadOptions("aws", directory=Path("here")))

options entries reports         what is asked for, what a store tells, what is answered
bundles manifests collections   the three things that are downloaded (manifest_table, fragments)
job parallel slots stopping     what the parts of one download share; threads, and their end
fetching whole large partmap    one file, in one stream or in parts, taken up where it was
reading wire quota              one attempt; connections; how often there may be another
cache locks linking space       .store, who may write there, links out of it, room on the disk
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_client.download.bundles import download
    from store_client.download.collections import download_collection
    from store_client.download.manifests import download_manifest
    from store_client.download.options import Filters
    from store_client.download.options import Options as DownloadOptions

__all__ = [
    "DownloadOptions",
    "Filters",
    "download",
    "download_collection",
    "download_manifest",
]

_LIVES_IN = {
    "DownloadOptions": ("options", "Options"),
    "Filters": ("options", "Filters"),
    "download": ("bundles", "download"),
    "download_collection": ("collections", "download_collection"),
    "download_manifest": ("manifests", "download_manifest"),
}


def __getattr__(name: str) -> Any:
    if name not in _LIVES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LIVES_IN[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
