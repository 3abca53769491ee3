"""A process that is killed in the middle of a download: the next one goes on where it was."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from store_client.checksums import MB
from store_client.downloads.bundles import download
from store_client.downloads.options import DownloadOptions
from store_client.transfer.streams import RemoteFile
from tests.client.download.bucket import VERSION, Bucket, Harm
from tests.client.download.test_bundles import contents

BUNDLE = str(UUID(int=77))
LARGE = Random(3).randbytes(3 * MB)

SCRIPT = """
import json, sys
from pathlib import Path
from store_client.downloads.bundles import download
from store_client.downloads.options import DownloadOptions

class Told:
    def pages(self, *_, **__):
        yield json.loads(sys.stdin.read())

here = Path(sys.argv[1])
download(Told(), sys.argv[2], options=DownloadOptions("aws", directory=here, cache=here / ".store", jobs=1))
"""


class Told:
    """A store that tells of these files."""

    def __init__(self, files: list[RemoteFile]) -> None:
        self.page = {
            "bundle": {"uuid": BUNDLE, "version": VERSION, "files": [asdict(f) for f in files]}
        }

    def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]:
        yield self.page

    def call(self, name: str, /, **arguments: Any) -> Any:
        raise AssertionError(name)


def started(told: Told, folder: Path) -> "subprocess.Popen[str]":
    """A process that downloads these files."""
    going = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), BUNDLE],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert going.stdin
    going.stdin.write(json.dumps(told.page))
    going.stdin.close()
    return going


@pytest.mark.spec("CLI-142")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_download_leaves_no_partial_small_file(
    bucket: Bucket, tmp_path: Path, how: signal.Signals
) -> None:
    bucket.harms = [Harm(stall_at=3, last=True)]
    going = started(Told([bucket.wanted("small", b"small")]), tmp_path)
    assert bucket.stalled.wait(60)
    going.send_signal(how)
    assert going.wait(30) != 0
    assert going.stderr
    going.stderr.close()
    bucket.go_on.set()
    assert not [path for path in (tmp_path / ".store").rglob("*") if path.is_file()]


@pytest.mark.spec("DWN-07")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_resumed_download_fetches_nothing_twice(
    bucket: Bucket, tmp_path: Path, how: signal.Signals
) -> None:
    small = [bucket.wanted(f"s{n}", b"%d" % n) for n in range(5)]
    told = Told([*small, bucket.wanted("large", LARGE)])
    bucket.harms = [Harm()] * 5 + [Harm(stall_at=2 * MB)]
    going = started(told, tmp_path)
    assert bucket.stalled.wait(60)
    partial = tmp_path / ".store" / "partial" / f"{told.page['bundle']['files'][-1]['sha256']}.part"
    until = time.monotonic() + 30
    while partial.stat().st_size < 2 * MB:
        assert time.monotonic() < until
        time.sleep(0.01)
    going.send_signal(how)
    assert going.wait(30) != 0
    assert going.stderr
    going.stderr.close()
    bucket.go_on.set()
    bucket.asked.clear()
    options = DownloadOptions("aws", directory=tmp_path, cache=tmp_path / ".store")
    report = download(told, BUNDLE, options=options)
    assert [(key, first) for key, first, _ in bucket.asked] == [("large", 2 * MB)]
    assert contents(Path(report.directory))["large"] == LARGE
    assert list((tmp_path / ".store" / "partial").iterdir()) == []
