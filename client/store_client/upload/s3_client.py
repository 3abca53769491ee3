"""The client of S3, of the optional boto3, and its errors in our words."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from store_client.areas.s3 import send_at_once
from store_client.errors import Misused, NotAllowed, NotFound, Refused, StoreError, Unreachable

ATTEMPTS = 6
CONNECT_S, READ_S = 10, 90
_REGION = "us-east-1"
"""What a server of one's own is told when nothing names a region."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def connected(connections: int) -> Any:
    """A client with the ambient credentials, region and endpoint."""
    session = _module("boto3.session").Session()
    own = any(os.environ.get(name) for name in _ENDPOINTS)
    with speaking("S3"):
        client = session.client(
            "s3",
            region_name=session.region_name or (_REGION if own else None),
            config=_module("botocore.config").Config(
                connect_timeout=CONNECT_S,
                read_timeout=READ_S,
                retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
                max_pool_connections=connections,
                tcp_keepalive=True,
                user_agent="store-client",
                signature_version="s3v4",
                s3={
                    # Each body carries its MD5 in a signed header: a SHA-256 beside it buys
                    # nothing. A server of one's own has one name, not one for each bucket.
                    "payload_signing_enabled": False,
                    "addressing_style": "path" if own else "auto",
                },
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    client.meta.events.register_last("before-call.s3", send_at_once)
    return client


@contextmanager
def speaking(place: str) -> Iterator[None]:
    """What boto3 raises, as ours; what is missing there is for the caller to judge."""
    errors = _module("botocore.exceptions")
    try:
        yield
    except errors.ClientError as error:
        raise _refused(error.response, place) from error
    except (errors.NoCredentialsError, errors.PartialCredentialsError) as error:
        raise NotAllowed(
            f"there are no S3 credentials for {place}",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        ) from error
    except (errors.HTTPClientError, errors.ConnectionError) as error:
        raise Unreachable(f"{place}: {error}") from error
    except (errors.BotoCoreError, ValueError) as error:
        raise StoreError(f"{place}: {error}") from error


def _refused(response: Any, place: str) -> StoreError:
    told = response.get("Error", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code, text = str(told.get("Code", status)), str(told.get("Message", "no reason was given"))
    said = f"{place}: {text} ({code})"
    if status >= 500 and status != 501:
        return Unreachable(said)
    kind = {401: NotAllowed, 403: NotAllowed, 404: NotFound}.get(status, Refused)
    return kind(said, status=status, problem={"code": code})


def _module(name: str) -> Any:
    """Found late: only those who have a bucket on S3 need it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Misused(
            "a staging bucket on S3 needs boto3",
            hint="pip install consortium-store-client[s3]",
        ) from error
