"""The command `mirror`: a second store follows a running one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.local_store import LocalStore, running_store
from ops.mirrors import HttpStore
from ops.procfile import ROOT
from storage.model import FQID
from tests.ops.commands import opened, run_json, typed
from tests.ops.mirror_builders import connect_to, delete_bundle, deposit_bundle, read_bundle
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.spec("OPS-61")

CONTENTS = {"a.json": b'{"a": 1}', "b.txt": b"the content of a data file"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    with running_store(tmp_path_factory.mktemp("source"), {}) as found:
        yield found


@pytest.fixture(scope="module")
def http(source: LocalStore) -> Iterator[httpx.Client]:
    with connect_to(source) as client:
        yield client


@pytest.fixture
def deposited(http: httpx.Client) -> FQID:
    """A new bundle of two files in the source, whose event is in the feed."""
    return deposit_bundle(http, CONTENTS)


@pytest.fixture
def home(home: Path, source: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a mirror of the source."""
    monkeypatch.setenv("STORE_MIRROR_OF", source.api)
    return home


def words(source: LocalStore, fqid: FQID) -> tuple[str, ...]:
    return ("mirror", source.api, "--token", source.token, "--prefix", fqid.uuid, "--once")


def read_mirror(home: Path, fqid: FQID) -> tuple[Mapping[str, Any], dict[str, bytes]] | None:
    """The manifest of a bundle in the mirror, and its contents by name."""
    stores = opened(home)
    with closing(stores.catalog):
        return read_bundle(stores, fqid)


def check_complete(home: Path, fqid: FQID) -> Mapping[str, Any]:
    """Check that a bundle is here with its bytes; return its manifest."""
    mirrored = read_mirror(home, fqid)
    assert mirrored is not None
    assert mirrored[1] == CONTENTS
    return mirrored[0]


def test_copies_bundles_with_equal_bytes_once(
    home: Path, source: LocalStore, http: httpx.Client, deposited: FQID
) -> None:
    assert run_json(*words(source, deposited)) == {"bundles": 1, "deleted": 0, "failures": []}
    manifest = check_complete(home, deposited)
    params = {"version": deposited.version, "replica": "aws"}
    answer = http.get(f"/bundles/{deposited.uuid}", params=params).json()["bundle"]
    assert manifest["files"] == answer["files"]
    assert manifest["creator_uid"] == answer["creator_uid"] == 8
    assert run_json(*words(source, deposited)) == {"bundles": 0, "deleted": 0, "failures": []}


def test_follows_deletions(
    home: Path, source: LocalStore, http: httpx.Client, deposited: FQID
) -> None:
    run_json(*words(source, deposited))
    delete_bundle(http, deposited)
    assert run_json(*words(source, deposited)) == {"bundles": 0, "deleted": 1, "failures": []}
    assert read_mirror(home, deposited) is None


@pytest.mark.parametrize("flips", [1, 99])
def test_refuses_flipped_bytes_and_reads_again(
    home: Path, source: LocalStore, deposited: FQID, monkeypatch: pytest.MonkeyPatch, flips: int
) -> None:
    read, left = HttpStore.read_content, dict[str, int]()

    def flip(self: HttpStore, url: str, headers: Mapping[str, str]) -> Iterator[bytes]:
        content = bytearray(b"".join(read(self, url, headers)))
        left[url] = left.get(url, flips) - 1
        if left[url] >= 0:
            content[0] ^= 1
        yield bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(HttpStore, "read_content", flip)
        result = typed(*words(source, deposited))
    if flips == 1:
        assert result.exit_code == 0, result.output
    else:
        assert result.exit_code == 1
        assert "was declared as" in result.output
        assert read_mirror(home, deposited) is None
        assert run_json(*words(source, deposited))["bundles"] == 1
    check_complete(home, deposited)


def test_goes_on_after_a_kill(home: Path, source: LocalStore, deposited: FQID) -> None:
    program = (
        "import os, signal, sys\n"
        "from pipelines import mirrors\n"
        "mirrors.bundles.put = lambda *args, **more: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from ops.__main__ import cli\n"
        "cli(sys.argv[1:])\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, *words(source, deposited)],
        cwd=ROOT,
        env={**os.environ, "STORE_HOME": str(home)},
        check=False,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert read_mirror(home, deposited) is None
    assert run_json(*words(source, deposited))["bundles"] == 1
    check_complete(home, deposited)


def test_rejects_a_bad_url_and_token(home: Path, source: LocalStore, tmp_path: Path) -> None:
    assert typed("mirror", "ftp://example.org").exit_code == 2
    (tmp_path / "token").write_text("x\n")
    refused = typed("mirror", source.api, "--token-file", str(tmp_path / "token"), "--once")
    assert refused.exit_code == 1
    assert "answers 401 (it may want a token: --token-file)" in refused.output
