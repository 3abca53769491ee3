"""Upload a directory of files to the store as a bundle.

    from store_client import Client
    from store_client.uploads import UploadOptions, upload

    report = upload(Client(), UploadOptions(Path("sample"), "aws"))

options   options of an upload
plan      files, metadata checks, and what the store already has
staging   where files wait until the store has copied them
deposit   file versions, and the bundle of them
job       all of it, in order
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_client.uploads.job import upload
    from store_client.uploads.options import UploadOptions
    from store_client.uploads.plan import UploadReport

__all__ = ["UploadOptions", "UploadReport", "upload"]

_LIVES_IN = {"UploadOptions": "options", "UploadReport": "plan", "upload": "job"}
"""Modules of the exports."""


def __getattr__(name: str) -> Any:
    # The former name, until release 0.3.
    name = "UploadReport" if name == "Uploaded" else name
    if name not in _LIVES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LIVES_IN[name]}"), name)
