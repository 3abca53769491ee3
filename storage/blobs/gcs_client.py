"""The client of Google Cloud Storage."""

from typing import Any

import google.cloud.storage

from storage.blobs.clients import Limits


def gcs_client(limits: Limits) -> Any:
    """A GCS client with the ambient credentials, or an emulator's."""
    return google.cloud.storage.Client()
