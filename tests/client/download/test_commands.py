"""The commands, as they are typed, against a served store."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from tests.client.conftest import Served
from tests.client.download.depositing import VERSION, Depositor, link, uuid_of
from tests.client.download.test_bundles import contents
from tests.drill.faults import Mode, before

STORE = Path(sys.executable).with_name("store")
CONTENTS = {"sample.json": b"{}", "a.gz": Random(1).randbytes(2_000_000), "b.txt": b"b"}

Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, store: Served) -> Started:
    (tmp_path / "here").mkdir()

    def started(*words: str, url: str = "") -> "subprocess.Popen[str]":
        environ = {
            "PATH": os.environ["PATH"],
            "STORE_CLIENT_HOME": str(tmp_path / "home"),
            "STORE_CLIENT_URL": url or store.url,
            "NO_PROXY": "127.0.0.1",
        }
        return subprocess.Popen(
            [STORE, *words],
            cwd=tmp_path / "here",
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


def test_bundles_manifests_and_dry_runs(
    start: Started, depositor: Depositor, tmp_path: Path
) -> None:
    bundle = depositor.bundle(1, CONTENTS)
    words = ("download", "--bundle-uuid", bundle, "--replica", "aws", "--no-progress")
    out, _ = start(*words, "--dry-run", "--json").communicate(timeout=60)
    assert json.loads(out)["fetched_files"] == 3
    assert list((tmp_path / "here").iterdir()) == []
    going = start(*words, "--version", VERSION, "--data-filter", "*.gz", "--json")
    out, err = going.communicate(timeout=60)
    assert going.returncode == 0, err
    report = json.loads(out)
    assert report["directory"] == f"{bundle}.{VERSION}"
    assert set(contents(tmp_path / "here" / report["directory"])) == {"sample.json", "a.gz"}
    _, err = start(*words, "--no-data", "--data-filter", "*").communicate(timeout=60)
    assert "cannot be combined" in err


def test_a_collection_wants_its_owner(start: Started, depositor: Depositor) -> None:
    bundle = depositor.bundle(1, {"b.txt": b"b"})
    uuid = depositor.collection(0x20, [link("bundle", bundle)])
    going = start("download-collection", "--uuid", uuid, "--replica", "aws")
    _, err = going.communicate(timeout=60)
    assert going.returncode == 4, err


def test_codes_say_what_happened(start: Started) -> None:
    for code, words in (
        (5, ("download", "--bundle-uuid", uuid_of(9), "--replica", "aws")),
        (2, ("download", "--bundle-uuid", "9", "--replica", "aws")),
        (2, ("download-manifest", "--manifest", "absent", "--replica", "aws")),
    ):
        going = start(*words)
        _, err = going.communicate(timeout=60)
        assert going.returncode == code, err
        assert len(err.splitlines()) <= 3


def test_a_break_is_said_to_be_gone_on_with(
    start: Started, store: Served, depositor: Depositor, tmp_path: Path
) -> None:
    bundle = depositor.bundle(1, CONTENTS)
    where = urlsplit(store.url)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as proxy:
        proxy.only, proxy.mode = b"GET /v1/objects/", Mode.SLOW
        url = f"http://127.0.0.1:{proxy.port}"
        words = ("download", "--bundle-uuid", bundle, "--replica", "aws", "--no-progress")
        going = start(*words, url=url)
        until = time.monotonic() + 60
        partial = tmp_path / "here" / ".store" / "partial"
        while not sum(path.stat().st_size for path in partial.glob("*.part")):
            assert going.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        going.send_signal(signal.SIGINT)
        _, err = going.communicate(timeout=30)
        assert going.returncode == 130, err
        assert re.search(
            r"Stopped\. .* keeps (2 files and )?[0-9.]+ (bytes|kB|MB) of unfinished files;", err
        )
        assert "Traceback" not in err
        proxy.mode = Mode.PASS
        going = start(*words, url=url)
        _, err = going.communicate(timeout=60)
        assert going.returncode == 0, err
    assert contents(tmp_path / "here" / f"{bundle}.{VERSION}") == CONTENTS
