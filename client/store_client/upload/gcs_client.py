"""The client of Google Cloud Storage, of an optional library, and its errors in our words."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from store_client.errors import Misused, NotAllowed, NotFound, Refused, StoreError, Unreachable


def connected() -> Any:
    """A client with the ambient credentials and endpoint."""
    storage = _module("google.cloud.storage")
    with speaking("Google Cloud Storage"):
        # Objects belong to buckets; a project is asked for nothing of them.
        return storage.Client(project="store-client")


@contextmanager
def speaking(place: str) -> Iterator[None]:
    """What Google's libraries raise, as ours."""
    calls, auth = _module("google.api_core.exceptions"), _module("google.auth.exceptions")
    trouble = _module("requests.exceptions")
    try:
        yield
    except calls.GoogleAPICallError as error:
        raise _refused(error, place) from error
    except auth.GoogleAuthError as error:
        raise NotAllowed(
            f"there are no good Google credentials for {place}: {error}",
            hint="set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials",
        ) from error
    except (trouble.RequestException, calls.RetryError) as error:
        raise Unreachable(f"{place}: {error}") from error


def _refused(error: Any, place: str) -> StoreError:
    status = int(error.code or 0)
    said = f"{place}: {error.message} ({status})"
    if status >= 500:
        return Unreachable(said)
    kind = {401: NotAllowed, 403: NotAllowed, 404: NotFound}.get(status, Refused)
    return kind(said, status=status)


def _module(name: str) -> Any:
    """Found late: only those who have a bucket of Google's need it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Misused(
            "a staging bucket on Google Cloud Storage needs google-cloud-storage",
            hint="pip install consortium-store-client[gcs]",
        ) from error
