"""Bringing a directory of files into the store as a bundle.

    from store_client import Client
    from store_client.upload import UploadOptions, upload

    done = upload(Client(), UploadOptions(Path("sample"), "aws"))

walking              what there is to bring
options reports      what is asked for, and what is answered
journal alone        how far it came, over all runs; one run at a time
sharing parts        memory, threads and the sign to stop; a large file in parts, read once
staging places       where bytes wait until the store has taken them in (staging_s3, _gcs, _area)
planning attempts    what is there already, and which version is made
depositing bundling  file versions, and the bundle of them
running              all of it, in order
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_client.upload.options import UploadOptions
    from store_client.upload.reports import Uploaded
    from store_client.upload.running import upload

__all__ = ["UploadOptions", "Uploaded", "upload"]

_LIVES_IN = {"UploadOptions": "options", "Uploaded": "reports", "upload": "running"}


def __getattr__(name: str) -> Any:
    if name not in _LIVES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LIVES_IN[name]}"), name)
