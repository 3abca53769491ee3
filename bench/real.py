"""Uploads, copies and downloads on real engines, beside the tools that a user would take instead.

The client's commands and a checkout, which verify all checksums, beside s5cmd, rclone, the command
of Amazon and a plain loop; the same commands with an embedded store, whose files lie in a folder,
beside cp. All commands run as processes from start to end. The variables `STORE_TEST_*` name the
engines, as for tests.
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
from pathlib import Path

import httpx

from bench.harness import ROOT, Figures, Measure
from bench.stores import started_store
from ops.local_store import LocalStore
from pipelines.limits import MB
from tests.real import engines

TOOLS = Path(__file__).resolve().parents[1] / ".engines" / "bin"
"""Where programs lie that were installed with the engines."""

STORE = str(Path(sys.executable).with_name("store"))

Contender = Callable[[], object]


def run_tool(name: str, *arguments: str, cwd: Path | None = None, **environ: str) -> str:
    """Run a tool on the real engines; return what it prints."""
    found = {
        **{key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")},
        "S3_ENDPOINT_URL": engines.endpoint("S3"),
        "AWS_ENDPOINT_URL_S3": engines.endpoint("S3"),
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_AWS_TYPE": "s3",
        "RCLONE_CONFIG_AWS_PROVIDER": "Other",
        "RCLONE_CONFIG_AWS_ENV_AUTH": "true",
        "RCLONE_CONFIG_AWS_ENDPOINT": engines.endpoint("S3"),
    }
    installed = sorted(TOOLS.glob(f"{Path(name).name}-v*"))
    command = [str(installed[-1]) if installed else name, *arguments]
    done = subprocess.run(command, env=found | environ, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stdout[-500:]} {done.stderr[-2_000:]}"
    return done.stdout


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
    os.environ["AWS_ENDPOINT_URL_S3"] = engines.endpoint("S3")
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        engines.settings(
            gcp=engines.s3_bucket(), STORE_CHECKOUT_DESTINATIONS="store-*"
        ) as settings,
        started_store(root, settings) as store,
        started_store(root, {}) as embedded,
    ):
        folder = Path(name)
        for one in (store, embedded):
            _run_client(one, folder, "login", "--access-token", one.token)
        sources = [_write_files(folder / f"{count}", count, size) for count, size in shapes]

        def measure() -> Figures:
            figures: Figures = {}
            for source, (count, size) in zip(sources, shapes, strict=True):
                shape = f"{count:,} × {size // 1024:,} KiB"
                bucket = f"s3://{_new_bucket()}/"
                _s5cmd("cp", f"{source}/", bucket)
                uuid, copy = _upload(store, folder, source), _upload(embedded, folder, source)
                up, down = f"up, {shape}", f"down, {shape}"
                figures |= _compare_uploads(up, store, embedded, folder, source)
                figures |= _compare_copies(f"checkout, {shape}", store, bucket, uuid)
                bundles = {"ours": (store, uuid), "ours, from a folder": (embedded, copy)}
                figures |= _compare_downloads(down, folder, source, bucket, bundles)
            return figures

        yield measure


def _write_files(source: Path, count: int, size: int) -> Path:
    source.mkdir()
    for number in range(count):
        with (source / f"{number:05}.bin").open("wb") as file:
            for start in range(0, size, 4 * MB):
                file.write(os.urandom(min(4 * MB, size - start)))
    return source


def _run_client(store: LocalStore, folder: Path, *words: str, cwd: Path | None = None) -> str:
    client = {"STORE_CLIENT_HOME": str(folder / "client"), "STORE_CLIENT_URL": store.api}
    return run_tool(STORE, *words, cwd=cwd or folder, **client)


def _upload(store: LocalStore, folder: Path, source: Path, *more: str) -> str:
    shutil.rmtree(folder / "client" / "uploads", ignore_errors=True)
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress", "--json")
    found: str = json.loads(_run_client(store, folder, *words, *more))["bundle_uuid"]
    return found


def _compare_uploads(
    title: str, store: LocalStore, embedded: LocalStore, folder: Path, source: Path
) -> Figures:
    contenders: dict[str, Contender] = {
        "s5cmd": lambda: _s5cmd("cp", f"{source}/", f"s3://{_new_bucket()}/"),
        "aws": lambda: _aws(str(source), f"s3://{_new_bucket()}/"),
        "ours, from a bucket": lambda: _upload(
            store, folder, source, "--staging-bucket", _new_bucket()
        ),
        "ours, from an area": lambda: _upload(store, folder, source),
        "cp": lambda: _copy_to_disk(source, folder),
        "ours, into a folder": lambda: _upload(embedded, folder, source),
    }
    return _time_all(title, contenders)


def _compare_copies(title: str, store: LocalStore, bucket: str, uuid: str) -> Figures:
    """Copies into new buckets; a checkout compares every copy by checksum."""

    def checkout() -> None:
        headers = {"Authorization": f"Bearer {store.token}"}
        with httpx.Client(base_url=f"{store.api}/v1", headers=headers, trust_env=False) as http:
            body = {"destination": _new_bucket()}
            path = f"/bundles/{uuid}/checkout"
            answer = http.post(path, params={"replica": "aws"}, json=body).raise_for_status()
            path, status = f"/bundles/checkout/{answer.json()['checkout_job_id']}", "RUNNING"
            while status == "RUNNING":
                time.sleep(0.02)
                status = http.get(path, params={"replica": "aws"}).json()["status"]
        assert status == "SUCCEEDED", status

    contenders: dict[str, Contender] = {
        "s5cmd": lambda: _s5cmd("cp", f"{bucket}*", f"s3://{_new_bucket()}/"),
        "rclone": lambda: run_tool(
            *("rclone", "copy", f"aws:{engines.name_of(bucket)}"),
            f"aws:{_new_bucket()}",
        ),
        "loop": lambda: _copy_in_loop(engines.name_of(bucket)),
        "ours": checkout,
    }
    return _time_all(title, contenders)


def _copy_in_loop(source: str) -> None:
    """Object by object: get it, put it."""
    s3, target = engines.s3(), _new_bucket()
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=source)
    for key in (found["Key"] for page in pages for found in page.get("Contents", ())):
        body = s3.get_object(Bucket=source, Key=key)["Body"]
        s3.upload_fileobj(body, target, key)


def _compare_downloads(
    title: str,
    folder: Path,
    source: Path,
    bucket: str,
    bundles: Mapping[str, tuple[LocalStore, str]],
) -> Figures:
    def into_new_folder(download: Callable[[Path], object]) -> Contender:
        def run() -> None:
            with tempfile.TemporaryDirectory(dir=folder) as target:
                download(Path(target))

        return run

    def by_client(store: LocalStore, uuid: str) -> Contender:
        words = ("download", "--bundle-uuid", uuid, "--replica", "aws", "--no-progress")
        return into_new_folder(lambda target: _run_client(store, folder, *words, cwd=target))

    contenders = {
        "s5cmd": into_new_folder(lambda target: _s5cmd("cp", f"{bucket}*", f"{target}/")),
        "aws": into_new_folder(lambda target: _aws(bucket, str(target))),
        "cp": lambda: _copy_to_disk(source, folder),
        **{name: by_client(store, uuid) for name, (store, uuid) in bundles.items()},
    }
    return _time_all(title, contenders)


def _copy_to_disk(source: Path, folder: Path) -> None:
    """Copy a folder; like the store, wait until the files are on the disk."""
    with tempfile.TemporaryDirectory(dir=folder) as target:
        run_tool("cp", "-r", str(source), target)
        run_tool("sync", "-f", target)


def _new_bucket() -> str:
    """The name of a new bucket."""
    return engines.name_of(engines.s3_bucket())


def _s5cmd(*words: str) -> None:
    run_tool("s5cmd", "--log", "error", *words)


def _aws(source: str, target: str) -> None:
    run_tool("aws", "s3", "cp", "--recursive", "--quiet", source, target)
