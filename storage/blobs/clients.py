"""The cloud vendors' clients: one of each a process, made after any fork, bounded in time."""

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import boto3.session
import google.cloud.storage
from botocore.config import Config

CONNECT_S = 5.0
READ_S = 60.0
"""Longest silence on a connection, not the length of a transfer."""
ATTEMPTS = 5
POOL = 32

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Makes its thing when it is first asked for, and again in a forked child."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        """This process's own."""
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), self._make())
            return self._made[1]


def s3_client() -> Any:
    """An S3 client with the ambient credentials, region and endpoint."""
    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        retries={"max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=POOL,
    )
    return boto3.session.Session().client("s3", config=config)


def gcs_client() -> Any:
    """A GCS client with the ambient credentials, or an emulator's."""
    return google.cloud.storage.Client()
