"""The commands, as they are typed, against a served store."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from click.testing import Result

from tests.client.cli.people import typed
from tests.client.conftest import Served
from tests.client.download.deposits import VERSION, Depositor, link, uuid_of
from tests.client.download.test_bundles import contents
from tests.drill.fault_proxy import Mode, before

STORE = Path(sys.executable).with_name("store")
CONTENTS = {"sample.json": b"{}", "a.gz": Random(1).randbytes(2_000_000), "b.txt": b"b"}

Started = Callable[..., "subprocess.Popen[str]"]
Types = Callable[..., Result]


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


@pytest.fixture
def types(tmp_path: Path, store: Served, monkeypatch: pytest.MonkeyPatch) -> Types:
    """Commands in this process, for what has nothing to do with being a process."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return partial(typed, tmp_path / "home", STORE_CLIENT_URL=store.url)


@pytest.mark.spec("DWN-01")
def test_bundles_manifests_and_dry_runs(types: Types, depositor: Depositor, tmp_path: Path) -> None:
    bundle = depositor.bundle(1, CONTENTS)
    words = ("download", "--bundle-uuid", bundle, "--replica", "aws", "--no-progress")
    assert json.loads(types(*words, "--dry-run", "--json").stdout)["fetched_files"] == 3
    assert list((tmp_path / "here").iterdir()) == []
    done = types(*words, "--version", VERSION, "--data-filter", "*.gz", "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["directory"] == f"{bundle}.{VERSION}"
    assert set(contents(tmp_path / "here" / report["directory"])) == {"sample.json", "a.gz"}
    assert "cannot be combined" in types(*words, "--no-data", "--data-filter", "*").stderr


@pytest.mark.spec("DWN-17")
def test_collection_requires_login_of_owner(types: Types, depositor: Depositor) -> None:
    bundle = depositor.bundle(1, {"b.txt": b"b"})
    uuid = depositor.collection(0x20, [link("bundle", bundle)])
    done = types("download-collection", "--uuid", uuid, "--replica", "aws")
    assert done.exit_code == 4, done.stderr


@pytest.mark.spec("DWN-19", "DWN-20")
def test_exit_codes_tell_what_happened(types: Types) -> None:
    for code, words in (
        (5, ("download", "--bundle-uuid", uuid_of(9), "--replica", "aws")),
        (2, ("download", "--bundle-uuid", "9", "--replica", "aws")),
        (2, ("download", "--replica", "aws")),
        (2, ("download", "--bundle-uuid", uuid_of(9), "--es-query", "{}", "--replica", "aws")),
        (2, ("download", "--es-query", "{", "--replica", "aws")),
        (2, ("download-manifest", "--manifest", "absent", "--replica", "aws")),
    ):
        done = types(*words)
        assert done.exit_code == code, done.stderr
        assert len(done.stderr.splitlines()) <= 3


@pytest.mark.spec("DWN-07", "CLI-142")
def test_interrupt_says_how_to_resume(
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
            r"Stopped\. .* keeps (2 files and )?[0-9.]+ (bytes|kB|MB) of unfinished files\.", err
        )
        assert "Traceback" not in err
        proxy.mode = Mode.PASS
        going = start(*words, url=url)
        _, err = going.communicate(timeout=60)
        assert going.returncode == 0, err
    assert contents(tmp_path / "here" / f"{bundle}.{VERSION}") == CONTENTS
