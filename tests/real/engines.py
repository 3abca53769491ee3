"""Settings of a store on the real engines that the environment names."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import boto3
import httpx
import pytest
from botocore.config import Config

from tests.catalogs import POSTGRES, fresh

NAMED = {
    name: os.environ.get(f"STORE_TEST_{name}", "")
    for name in ("POSTGRES", "REDIS", "S3", "GCS", "OPENSEARCH")
}
GCS = bool(NAMED["GCS"])
ENOUGH = all(url for name, url in NAMED.items() if name != "GCS")
"""Whether every engine is there that a whole store needs; its second replica may be on S3, too."""


def endpoint(engine: str) -> str:
    """The HTTP address of a server of buckets."""
    return dict(parse_qsl(urlsplit(NAMED[engine]).query))["endpoint"]


def s3() -> Any:
    """The plain client that anybody would make."""
    region = os.environ.get("AWS_REGION", "us-east-1")
    plain = Config(s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=endpoint("S3"), region_name=region, config=plain)


def s3_bucket() -> str:
    """The URL of a new bucket of S3."""
    name = f"store-{uuid4()}"
    s3().create_bucket(Bucket=name)
    return f"s3://{name}?endpoint={endpoint('S3')}"


def gcs_bucket() -> str:
    """The URL of a new bucket of Google's."""
    name = f"store-{uuid4()}"
    made = httpx.post(
        f"{endpoint('GCS')}/storage/v1/b?project=test", json={"name": name}, trust_env=False
    )
    made.raise_for_status()
    return f"gs://{name}?endpoint={endpoint('GCS')}"


CLOUDS: dict[str, Callable[[], str]] = {
    "s3 and s3": s3_bucket,
    **({"s3 and gcs": gcs_bucket} if GCS else {}),
}
"""How to make the bucket of replica gcp, by where both lie."""
FURTHEST = list(CLOUDS)[-1]
"""Those that differ most."""


def name_of(url: str) -> str:
    """The bucket's own name."""
    return urlsplit(url).netloc


def redis() -> str:
    """The server's URL with a database for this worker of the run: stores that are tested at one
    time would take each other's messages."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return urlsplit(NAMED["REDIS"])._replace(path=f"/{1 + worker % 15}").geturl()


@contextmanager
def settings(*, gcp: str, **more: str) -> Iterator[dict[str, str]]:
    """The environment of a new store, every part of it on a real engine."""
    with fresh(POSTGRES) as catalog:
        yield {
            "STORE_REPLICA_AWS": s3_bucket(),
            "STORE_REPLICA_GCP": gcp,
            "STORE_AREAS_URL": s3_bucket(),
            "STORE_CATALOG_URL": catalog,
            "STORE_SEARCH_URL": f"{NAMED['OPENSEARCH'].rstrip('/')}/t{uuid4().hex[:12]}",
            "STORE_REDIS_URL": redis(),
            **more,
        }


def unless_installed(variable: str) -> pytest.MarkDecorator:
    """Without the tool there is nothing to run; `make test-real` installs it and requires this."""
    return pytest.mark.skipif(variable not in os.environ, reason=f"{variable} is not set")
