"""Download files, bundles and collections, each byte verified.

    from store_client import Client
    from store_client.downloads import DownloadOptions, download

    report = download(Client(), bundle_uuid, options=DownloadOptions("aws", directory=Path("here")))

options              options of a download, and its reports
listing              which files the store has, with presigned URLs
job                  tasks, disk space, and links from the cache into directories
bundles, manifests   the commands: bundles and collections, manifests
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_client.downloads.bundles import (
        download,
        download_collection,
        download_matches,
        download_several,
    )
    from store_client.downloads.manifests import download_manifest
    from store_client.downloads.options import DownloadOptions, Filters

__all__ = [
    "DownloadOptions",
    "Filters",
    "download",
    "download_collection",
    "download_manifest",
    "download_matches",
    "download_several",
]

_LIVES_IN = {
    "DownloadOptions": "options",
    "Filters": "options",
    "download": "bundles",
    "download_collection": "bundles",
    "download_manifest": "manifests",
    "download_matches": "bundles",
    "download_several": "bundles",
}
"""Modules of the exports."""


def __getattr__(name: str) -> Any:
    if name not in _LIVES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LIVES_IN[name]}"), name)
