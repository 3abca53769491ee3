"""The client of S3."""

from typing import Any

import boto3.session
from botocore.config import Config

from storage.blobs.clients import Limits


def s3_client(limits: Limits) -> Any:
    """An S3 client with the ambient credentials, region and endpoint."""
    config = Config(
        connect_timeout=limits.connect_s,
        read_timeout=limits.read_s,
        retries={"max_attempts": limits.attempts, "mode": "standard"},
        max_pool_connections=limits.connections,
    )
    return boto3.session.Session().client("s3", config=config)
