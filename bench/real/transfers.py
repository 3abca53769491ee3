"""Up and down with the command of the client, beside what one would take for a bucket: s5cmd, the
command of Amazon, and curl for the limit.

All of them are the installed commands, timed as processes from start to end, one after another on
one S3 server; each goes to a new bucket, or into a new folder. Our upload is measured three times:
into the staging bucket, into a verified bundle, and the same through an upload area. Our download
verifies every SHA-256. Run as `python -m bench.real.transfers [rounds] [times smaller]`.
"""

import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx

from bench import stand
from bench.real import engines
from ops.local_store import LocalStore
from ops.procfile import ROOT

STORE = Path(sys.executable).with_name("store")
BLOCK = 4 * 1024 * 1024


@dataclass(frozen=True)
class Shape:
    """What is moved."""

    files: int
    size: int

    def __str__(self) -> str:
        bytes_ = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else f"{self.size >> 10} KiB"
        return f"{self.files:,} × {bytes_}"

    def divided(self, by: int) -> "Shape":
        """Fewer and smaller files, at least one of a kilobyte."""
        return Shape(max(1, self.files // by), max(1024, self.size // by))


SHAPES = (Shape(1_000, 10 * 1024), Shape(1, 2 * 1024**3))
FLOORS = (0.3, 0.7)


@dataclass(frozen=True)
class Ground:
    """A store on real engines, and folders."""

    stage: LocalStore
    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """Of every contender alike."""
        own = {
            "STORE_CLIENT_HOME": str(self.folder / "client"),
            "STORE_CLIENT_URL": self.stage.api,
            "AWS_ENDPOINT_URL_S3": engines.endpoint("s3"),
            "S3_ENDPOINT_URL": engines.endpoint("s3"),
            "HOME": str(self.folder),
        }
        kept = {key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")}
        return {**kept, **own}

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        """A command to its good end."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environ,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout[-500:]} {done.stderr[-2000:]}"
        return done.stdout


Contender = Callable[[], None]


def main(rounds: int = 3, smaller: int = 1) -> None:
    """Print seconds and ratios for both shapes, `smaller` times as small, both ways."""
    # The staging buckets are read by the store with the machine's own settings.
    os.environ["AWS_ENDPOINT_URL_S3"] = engines.endpoint("s3")
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        engines.settings() as environ,
        stand.running(environ) as (stage, _, _),
    ):
        ground = Ground(stage, Path(folder))
        ground.run(STORE, "login", "--access-token", stage.token)
        shapes = (shape.divided(smaller) for shape in SHAPES)
        for shape, floor in zip(shapes, FLOORS, strict=True):
            source = made(ground.folder / f"source-{shape.files}", shape)
            up = {name: timed(one, rounds) for name, one in uploads(ground, source).items()}
            show(f"up: {shape}, aim {floor} of s5cmd", shape, up)
            down = {name: timed(one, rounds) for name, one in downloads(ground, source).items()}
            show(f"down: {shape}, aim {floor} of s5cmd", shape, down)
            shutil.rmtree(source)


def made(folder: Path, shape: Shape) -> Path:
    """Files of bytes that nothing can guess."""
    folder.mkdir()
    rng = Random(shape.files)
    for number in range(shape.files):
        with (folder / f"{number:05}.bin").open("wb") as file:
            left = shape.size
            while left:
                left -= file.write(rng.randbytes(min(BLOCK, left)))
    return folder


def timed(contender: Contender, rounds: int) -> list[float]:
    """Seconds of each round."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        contender()
        seconds.append(time.perf_counter() - began)
    return seconds


def uploads(ground: Ground, source: Path) -> Mapping[str, Contender]:
    """Who brings the folder up."""

    def ours(*more: str) -> None:
        words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
        shutil.rmtree(ground.folder / "client" / "uploads", ignore_errors=True)
        ground.run(STORE, *words, *more)

    def s5cmd() -> None:
        where = f"s3://{fresh()}/"
        ground.run(engines.tool("s5cmd"), "--log", "error", "cp", f"{source}/", where)

    def aws() -> None:
        ground.run(
            engines.tool("aws"), "s3", "cp", "--recursive", "--quiet", source, f"s3://{fresh()}/"
        )

    def staged() -> None:
        ground.run(sys.executable, "-m", "bench.real.staging", source, fresh(), cwd=ROOT)

    found: dict[str, Contender] = {
        "s5cmd": s5cmd,
        "aws s3 cp": aws,
        "ours, into the bucket": staged,
        "ours, verified bundle": lambda: ours("--staging-bucket", fresh()),
        "ours, through an area": ours,
    }
    only = list(source.iterdir())
    if len(only) == 1:
        found["curl, one file, the limit"] = lambda: curl_up(ground, only[0])
    return found


def downloads(ground: Ground, source: Path) -> Mapping[str, Contender]:
    """Who brings it down again; it lies in a bundle, and in a bucket."""
    bucket = fresh()
    ground.run(engines.tool("s5cmd"), "--log", "error", "cp", f"{source}/", f"s3://{bucket}/")
    shutil.rmtree(ground.folder / "client" / "uploads", ignore_errors=True)
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress", "--json")
    uuid = json.loads(ground.run(STORE, *words, "--staging-bucket", fresh()))["bundle_uuid"]

    def into(act: Callable[[Path], None]) -> Contender:
        def run() -> None:
            with tempfile.TemporaryDirectory(dir=ground.folder) as target:
                act(Path(target))

        return run

    found: dict[str, Contender] = {
        "s5cmd": into(
            lambda target: _ran(
                ground, target, engines.tool("s5cmd"), "cp", f"s3://{bucket}/*", f"{target}/"
            )
        ),
        "aws s3 cp": into(
            lambda target: _ran(
                ground,
                target,
                *(engines.tool("aws"), "s3", "cp", "--recursive", "--quiet"),
                *(f"s3://{bucket}/", str(target)),
            )
        ),
        "ours, proved": into(
            lambda target: _ran(
                ground,
                target,
                *(str(STORE), "download", "--bundle-uuid", uuid),
                *("--replica", "aws", "--no-progress"),
            )
        ),
        "curl, the limit": into(lambda target: curl_down(ground, target, uuid)),
    }
    return found


def _ran(ground: Ground, target: Path, *command: str) -> None:
    ground.run(*command, cwd=target)


def fresh() -> str:
    """A new bucket, by its name."""
    return engines.name_of(engines.bucket("s3"))


def curl_up(ground: Ground, path: Path) -> None:
    """One PUT to a signed URL."""
    url = engines.s3(signature_version="s3v4").generate_presigned_url(
        "put_object", Params={"Bucket": fresh(), "Key": path.name}
    )
    ground.run("curl", "-sS", "-f", "-T", path, url)


def curl_down(ground: Ground, target: Path, uuid: str) -> None:
    """Every URL of the bundle at once; the bytes are not verified."""
    lines: list[str] = []
    url: str | None = (
        f"{ground.stage.api}/v1/bundles/{uuid}?replica=aws&presignedurls=true&per_page=500"
    )
    while url:
        page = httpx.get(url, trust_env=False)
        for one in page.json()["bundle"]["files"]:
            lines += [f'url = "{one["url"]}"', f'output = "{target / one["name"]}"']
        url = page.links.get("next", {}).get("url")
    (target / "curl.conf").write_text("\n".join(lines))
    ground.run("curl", "-sS", "-f", "--parallel", "-K", target / "curl.conf")


def show(title: str, shape: Shape, times: Mapping[str, Sequence[float]]) -> None:
    """One table; the last column is a rate as a share of s5cmd's."""
    print(f"{title:<42}{'median s':>10}{'best s':>8}{'files/s':>9}{'MB/s':>7}{'of s5cmd':>10}")
    limit = statistics.median(times["s5cmd"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        rate = shape.files * shape.size / median / 1e6
        print(
            f"  {name:<40}{median:>10.2f}{min(seconds):>8.2f}{shape.files / median:>9.0f}"
            f"{rate:>7.0f}{limit / median:>9.2f}×"
        )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"{os.cpu_count()} cores; {engines.versions()}")
    main(*map(int, sys.argv[1:]))
