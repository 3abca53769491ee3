"""Uploads, copies and downloads on real engines, beside the tools that a user would take instead.

The client's commands and a checkout, which verify all checksums, beside s5cmd, rclone, the command
of Amazon and a plain loop; all commands run as processes from start to end. The variables
`STORE_TEST_*` name the engines, as for tests.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import boto3
import httpx
import redis
from botocore.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from bench.harness import ROOT, Figures, Measure
from bench.stores import started_store
from ops.local_store import LocalStore
from pipelines.limits import MB

TOOLS = Path(__file__).resolve().parents[1] / ".engines" / "bin"
"""Where programs lie that were installed with the engines."""

STORE = str(Path(sys.executable).with_name("store"))

Contender = Callable[[], object]


def engine_url(engine: str) -> str:
    """The URL of an engine; KeyError names the missing variable."""
    return os.environ[f"STORE_TEST_{engine.upper()}"]


def s3_endpoint() -> str:
    """The HTTP address of the S3 server."""
    return dict(parse_qsl(urlsplit(engine_url("s3")).query))["endpoint"]


def s3_client() -> Any:
    """The plain client of a few lines of code."""
    plain = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
    region = os.environ.get("AWS_REGION", "us-east-1")
    return boto3.client("s3", endpoint_url=s3_endpoint(), region_name=region, config=plain)


def new_bucket() -> str:
    """A new bucket of S3; its URL as the store takes it."""
    name = f"bench-{uuid4().hex[:12]}"
    s3_client().create_bucket(Bucket=name)
    return f"s3://{name}?{urlsplit(engine_url('s3')).query}"


def bucket_name(bucket_url: str) -> str:
    """The name of a bucket of a URL."""
    return urlsplit(bucket_url).netloc


def run_tool(name: str, *arguments: str, cwd: Path | None = None, **environ: str) -> str:
    """Run a tool on the real engines; return what it prints."""
    found = {
        **{key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")},
        "S3_ENDPOINT_URL": s3_endpoint(),
        "AWS_ENDPOINT_URL_S3": s3_endpoint(),
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_AWS_TYPE": "s3",
        "RCLONE_CONFIG_AWS_PROVIDER": "Other",
        "RCLONE_CONFIG_AWS_ENV_AUTH": "true",
        "RCLONE_CONFIG_AWS_ENDPOINT": s3_endpoint(),
    }
    installed = sorted(TOOLS.glob(f"{name}-v*"))
    command = [str(installed[-1]) if installed else name, *arguments]
    done = subprocess.run(command, env=found | environ, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stdout[-500:]} {done.stderr[-2_000:]}"
    return done.stdout


@contextmanager
def new_database() -> Iterator[str]:
    """The URL of an empty database on PostgreSQL, which is dropped with the block."""
    server, name = make_url(engine_url("postgres")), f"bench_{uuid4().hex[:12]}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            yield server.set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@contextmanager
def new_settings() -> Iterator[dict[str, str]]:
    """The settings of a new store on real engines, with S3 for both replicas."""
    areas, aws, gcp = (new_bucket() for _ in range(3))
    with new_database() as catalog_url, redis.Redis.from_url(engine_url("redis")) as client:
        client.flushdb()
        try:
            yield {
                "STORE_CATALOG_URL": catalog_url,
                "STORE_REDIS_URL": engine_url("redis"),
                "STORE_SEARCH_URL": f"{engine_url('opensearch').rstrip('/')}/{bucket_name(aws)}",
                "STORE_AREAS_URL": areas,
                "STORE_REPLICA_AWS": aws,
                "STORE_REPLICA_GCP": gcp,
            }
        finally:
            client.flushdb()


def describe_versions() -> str:
    """The versions of the engines and tools, for the record."""
    with create_engine(engine_url("postgres")).connect() as connection:
        postgres = str(connection.execute(text("SHOW server_version")).scalar_one()).split()[0]
    with redis.Redis.from_url(engine_url("redis")) as client:
        redis_version = client.info()["redis_version"]
    opensearch = httpx.get(engine_url("opensearch"), trust_env=False).json()["version"]["number"]
    programs = [path.name.replace("-v", " ") for path in sorted(TOOLS.glob("*-v*"))]
    engines = f"PostgreSQL {postgres}, Redis {redis_version}, OpenSearch {opensearch}"
    return ", ".join([engines, *programs])


@dataclass(frozen=True)
class Shape:
    """So many files of one size."""

    files: int
    size: int

    def __str__(self) -> str:
        size = f"{self.size // MB} MiB" if self.size >= MB else f"{self.size // 1024} KiB"
        return f"{self.files:,} × {size}"


def _time_all(title: str, contenders: Mapping[str, Contender]) -> Figures:
    """Seconds of each contender, and the speed of ours as a share of s5cmd's."""
    seconds: Figures = {}
    for name, run in contenders.items():
        began = time.perf_counter()
        run()
        seconds[name] = time.perf_counter() - began
    shares = {
        f"{title}: {name} / s5cmd ×": seconds["s5cmd"] / took
        for name, took in seconds.items()
        if name.startswith("ours")
    }
    return {f"{title}: {name} s": took for name, took in seconds.items()} | shares


@contextmanager
def prepare(
    root: Path = ROOT,
    shapes: Sequence[tuple[int, int]] = ((1_000, 10 * 1024), (1, 2 * 1024 * MB)),
) -> Iterator[Measure]:
    """Bring directories of these shapes into a store, copy them to a bucket and out again."""
    # The store reads the staging buckets with the machine's own settings.
    os.environ["AWS_ENDPOINT_URL_S3"] = s3_endpoint()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        new_settings() as settings,
        started_store(root, settings | {"STORE_CHECKOUT_DESTINATIONS": "bench-*"}) as store,
    ):
        folder = Path(name)
        _run_client(store, folder, "login", "--access-token", store.token)
        sources = {Shape(*one): _write_files(folder, Shape(*one)) for one in shapes}

        def measure() -> Figures:
            figures: Figures = {}
            for shape, source in sources.items():
                bucket = _new_bucket_url()
                _s5cmd("cp", f"{source}/", bucket)
                uuid = _upload(store, folder, source)
                figures |= _compare_uploads(f"up, {shape}", store, folder, source)
                figures |= _compare_copies(f"checkout, {shape}", store, bucket, uuid)
                figures |= _compare_downloads(f"down, {shape}", store, folder, bucket, uuid)
            return figures

        yield measure


def _write_files(folder: Path, shape: Shape) -> Path:
    source = folder / f"source-{shape.files}"
    source.mkdir()
    for number in range(shape.files):
        with (source / f"{number:05}.bin").open("wb") as file:
            for start in range(0, shape.size, 4 * MB):
                file.write(os.urandom(min(4 * MB, shape.size - start)))
    return source


def _run_client(store: LocalStore, folder: Path, *words: str, cwd: Path | None = None) -> str:
    client = {"STORE_CLIENT_HOME": str(folder / "client"), "STORE_CLIENT_URL": store.api}
    return run_tool(STORE, *words, cwd=cwd or folder, **client)


def _upload(store: LocalStore, folder: Path, source: Path, *more: str) -> str:
    shutil.rmtree(folder / "client" / "uploads", ignore_errors=True)
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress", "--json")
    found: str = json.loads(_run_client(store, folder, *words, *more))["bundle_uuid"]
    return found


def _compare_uploads(title: str, store: LocalStore, folder: Path, source: Path) -> Figures:
    contenders: dict[str, Contender] = {
        "s5cmd": lambda: _s5cmd("cp", f"{source}/", _new_bucket_url()),
        "aws": lambda: _aws(str(source), _new_bucket_url()),
        "ours, from a bucket": lambda: _upload(
            store, folder, source, "--staging-bucket", bucket_name(new_bucket())
        ),
        "ours, from an area": lambda: _upload(store, folder, source),
    }
    return _time_all(title, contenders)


def _compare_copies(title: str, store: LocalStore, bucket: str, uuid: str) -> Figures:
    """Copies into new buckets; a checkout compares every copy by checksum."""

    def checkout() -> None:
        headers = {"Authorization": f"Bearer {store.token}"}
        with httpx.Client(base_url=f"{store.api}/v1", headers=headers, trust_env=False) as http:
            path, body = f"/bundles/{uuid}/checkout", {"destination": bucket_name(new_bucket())}
            answer = http.post(path, params={"replica": "aws"}, json=body).raise_for_status()
            path, status = f"/bundles/checkout/{answer.json()['checkout_job_id']}", "RUNNING"
            while status == "RUNNING":
                time.sleep(0.02)
                status = http.get(path, params={"replica": "aws"}).json()["status"]
        assert status == "SUCCEEDED", status

    contenders: dict[str, Contender] = {
        "s5cmd": lambda: _s5cmd("cp", f"{bucket}*", _new_bucket_url()),
        "rclone": lambda: run_tool(
            *("rclone", "copy", f"aws:{bucket_name(bucket)}"), f"aws:{bucket_name(new_bucket())}"
        ),
        "loop": lambda: _copy_in_loop(bucket_name(bucket)),
        "ours": checkout,
    }
    return _time_all(title, contenders)


def _copy_in_loop(source: str) -> None:
    """Object by object: get it, put it."""
    s3, target = s3_client(), bucket_name(new_bucket())
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=source)
    for key in (found["Key"] for page in pages for found in page.get("Contents", ())):
        body = s3.get_object(Bucket=source, Key=key)["Body"]
        s3.upload_fileobj(body, target, key)


def _compare_downloads(
    title: str, store: LocalStore, folder: Path, bucket: str, uuid: str
) -> Figures:
    def into_new_folder(download: Callable[[Path], object]) -> Contender:
        def run() -> None:
            with tempfile.TemporaryDirectory(dir=folder) as target:
                download(Path(target))

        return run

    words = ("download", "--bundle-uuid", uuid, "--replica", "aws", "--no-progress")
    contenders = {
        "s5cmd": into_new_folder(lambda target: _s5cmd("cp", f"{bucket}*", f"{target}/")),
        "aws": into_new_folder(lambda target: _aws(bucket, str(target))),
        "ours": into_new_folder(lambda target: _run_client(store, folder, *words, cwd=target)),
    }
    return _time_all(title, contenders)


def _new_bucket_url() -> str:
    return f"s3://{bucket_name(new_bucket())}/"


def _s5cmd(*words: str) -> None:
    run_tool("s5cmd", "--log", "error", *words)


def _aws(source: str, target: str) -> None:
    run_tool("aws", "s3", "cp", "--recursive", "--quiet", source, target)
