"""The real engines of a bench, by the variables that name them for tests; never a simulation."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import boto3
import httpx
import redis
from botocore.config import Config
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Client
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from storage.catalog import Catalog, migrate

VARIABLES = {
    "postgres": "STORE_TEST_POSTGRES",
    "redis": "STORE_TEST_REDIS",
    "s3": "STORE_TEST_S3",
    "gcs": "STORE_TEST_GCS",
    "opensearch": "STORE_TEST_OPENSEARCH",
}
TOOLS = Path(__file__).resolve().parents[2] / ".engines" / "bin"
"""Where programs lie that were installed with the engines."""


class Missing(Exception):
    """An engine or a tool is not there; the text names it."""


def url(engine: str) -> str:
    """Where an engine is; Missing."""
    found = os.environ.get(VARIABLES[engine], "")
    if not found:
        raise Missing(f"{VARIABLES[engine]} is not set")
    return found


def tool(name: str) -> str:
    """The path of a program that a user would take instead; Missing."""
    installed = [str(path) for path in sorted(TOOLS.glob(f"{name}-v*"))]
    found = installed[-1] if installed else shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def endpoint(engine: str) -> str:
    """The HTTP address of a server of buckets."""
    return dict(parse_qsl(urlsplit(url(engine)).query))["endpoint"]


def s3(**more: Any) -> Any:
    """The plain client that anybody would make."""
    plain = Config(s3={"addressing_style": "path"}, **more)
    region = os.environ.get("AWS_REGION", "us-east-1")
    return boto3.client("s3", endpoint_url=endpoint("s3"), region_name=region, config=plain)


def gcs() -> Any:
    """The same for Google's."""
    options = {"api_endpoint": endpoint("gcs")}
    anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
    return Client("bench", credentials=anonymous, client_options=options)


def bucket(engine: str) -> str:
    """A new bucket; its URL as the store takes it."""
    name = f"bench-{uuid4().hex[:12]}"
    if engine == "s3":
        s3().create_bucket(Bucket=name)
    else:
        made = httpx.post(f"{endpoint('gcs')}/storage/v1/b?project=bench", json={"name": name})
        made.raise_for_status()
    parts = urlsplit(url(engine))
    return f"{parts.scheme}://{name}?{parts.query}"


def name_of(bucket_url: str) -> str:
    """The bucket's own name."""
    return urlsplit(bucket_url).netloc


@contextmanager
def database(*, migrated: bool = True) -> Iterator[str]:
    """The URL of an empty catalog on PostgreSQL, which goes with the block."""
    server, name = make_url(url("postgres")), f"bench_{uuid4().hex[:12]}"
    _run(f"CREATE DATABASE {name}")
    made = server.set(database=name).render_as_string(hide_password=False)
    try:
        if migrated:
            with catalog(made):
                pass
        yield made
    finally:
        _run(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def settings(migrated: bool = True, /, **more: str) -> Iterator[dict[str, str]]:
    """The environment of a new store with every part on a real engine, S3 for both replicas."""
    areas, aws, gcp = (bucket("s3") for _ in range(3))
    with database(migrated=migrated) as found, queue() as redis_url:
        yield {
            "STORE_CATALOG_URL": found,
            "STORE_REDIS_URL": redis_url,
            "STORE_SEARCH_URL": f"{url('opensearch').rstrip('/')}/{name_of(aws)}",
            "STORE_AREAS_URL": areas,
            "STORE_REPLICA_AWS": aws,
            "STORE_REPLICA_GCP": gcp,
            **more,
        }


@contextmanager
def queue() -> Iterator[str]:
    """The URL of Redis, emptied before and after."""
    with redis.Redis.from_url(url("redis")) as client:
        client.flushdb()
        try:
            yield url("redis")
        finally:
            client.flushdb()


@contextmanager
def catalog(catalog_url: str) -> Iterator[Catalog]:
    """A migrated catalog, opened for the block."""
    opened = Catalog(catalog_url)
    try:
        migrate.upgrade(opened)
        yield opened
    finally:
        opened.close()


def _run(statement: str) -> None:
    engine = create_engine(url("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def versions() -> str:
    """What was measured on: every engine that is there, as it names itself."""
    known = {"postgres": _postgres, "redis": _redis, "opensearch": _opensearch}
    told = [ask() for name, ask in known.items() if has(name)]
    programs = [path.name.replace("-v", " ") for path in sorted(TOOLS.glob("*-v*"))]
    return ", ".join([*told, *programs])


def has(engine: str) -> bool:
    """Whether the environment names it."""
    return bool(os.environ.get(VARIABLES[engine]))


def _postgres() -> str:
    engine = create_engine(url("postgres"))
    with engine.connect() as connection:
        version = connection.execute(text("SHOW server_version")).scalar_one()
    engine.dispose()
    return f"PostgreSQL {str(version).split()[0]}"


def _redis() -> str:
    with redis.Redis.from_url(url("redis")) as client:
        return f"Redis {client.info()['redis_version']}"


def _opensearch() -> str:
    answer = httpx.get(url("opensearch"), trust_env=False).json()
    return f"OpenSearch {answer['version']['number']}"
