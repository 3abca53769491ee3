"""The commands of `store file`: show, cat and cp."""

import hashlib
import os
import subprocess
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from store_client.configuration import URL
from store_client.transfer.fetcher import LARGE_FROM
from tests.client.cli.people import PROGRAM, Typist, showing
from tests.client.conftest import ADMIN_TOKEN
from tests.client.download.deposits import VERSION, uuid_of
from tests.client.nouns.conftest import LATER, READS, Shelf, rows
from tests.drill.fault_proxy import Mode, before
from tests.waiting import until

pytestmark = pytest.mark.spec("CLI-150")


CONTENT = b"GET /v1/objects/"
"""What asks for the bytes of a file."""


@pytest.fixture
def reads(shelf: Shelf) -> dict[str, str]:
    """The entry of a data file."""
    return shelf.file_of(shelf.liver, "reads.fastq.gz")


def test_show_takes_ids_pages_and_names_in_bundles(
    shelf: Shelf, admin: Typist, reads: dict[str, str]
) -> None:
    uuid, version = reads["uuid"], reads["version"]
    expected = {
        "uuid": uuid,
        "version": version,
        "size": len(READS),
        "content_type": "text/plain",
        "sha256": hashlib.sha256(READS).hexdigest(),
        "sha1": hashlib.sha1(READS).hexdigest(),
        "s3_etag": hashlib.md5(READS).hexdigest(),
        "crc32c": reads["crc32c"],
        "page": f"{shelf.store.url}/files/{uuid}?version={version}",
    }
    for said in (
        uuid,
        f"{uuid.upper()}.{version}",
        f"{shelf.store.url}/files/{uuid}?version={version}",
        f"{shelf.store.url}/files/{uuid}%2E{version}",
        f"drs://{shelf.host}/{uuid}",
        f"store://file/{uuid}",
        f"{shelf.liver}/reads.fastq.gz",
        f"{shelf.liver}.{VERSION}/reads.fastq.gz",
        f"store://bundle/{shelf.liver}/reads%2Efastq.gz",
    ):
        assert admin.reads("file", "show", said, "--json") == expected, said


def test_files_of_a_bundle_can_be_piped_into_show_and_cat(shelf: Shelf, admin: Typist) -> None:
    for form in ("lines", "json", "csv", "tsv"):
        listed = admin.types("bundle", "files", shelf.liver, "--format", form).stdout
        shown = rows(admin.types("file", "show", "-", given=listed).stdout)
        assert [one["size"] for one in shown] == [126, 4, len(READS)]
    done = admin.types("file", "cat", "-", given=listed)
    assert done.stdout_bytes.endswith(b"}new\n" + READS)
    empty = admin.types("file", "cat", "-", given="")
    assert (empty.exit_code, empty.stdout) == (2, "")
    assert "there is no file on standard input" in empty.stderr


@pytest.mark.parametrize("verb", ["show", "cat", "cp"])
def test_unknown_files_are_not_found(
    shelf: Shelf, admin: Typist, verb: str, tmp_path: Path
) -> None:
    for said in (
        uuid_of(0xFFFF),
        f"{shelf.liver}/no such file",
        f"{shelf.liver}.{LATER}/notes.txt",
    ):
        done = admin.types("file", verb, said, *([str(tmp_path)] if verb == "cp" else []))
        assert (done.exit_code, done.stdout) == (5, ""), said
    assert f"store bundle files {shelf.liver}" in done.stderr
    assert list(tmp_path.glob("*.txt")) == []


@pytest.mark.parametrize(
    "text", ["", "/", "..", "../x", f"{uuid_of(1)[:-1]}/x", "https:/x", "store://x/y", "\x1b[2J/x"]
)
def test_hostile_names_are_refused(offline: Typist, text: str) -> None:
    for verb in ("show", "cat", "cp"):
        done = offline.types("file", verb, text)
        assert (done.exit_code, done.stdout) == (2, ""), verb
        assert "\x1b" not in done.stderr


def test_cat_prints_bytes_of_several_files(shelf: Shelf, admin: Typist) -> None:
    done = admin.types("file", "cat", f"{shelf.liver}/reads.fastq.gz", f"{shelf.liver}/readme.txt")
    assert done.exit_code == 0
    assert done.stdout_bytes == READS + b"new\n"


def copied(admin: Typist, *words: str) -> Path:
    """Where `file cp` put a file."""
    done = admin.types("file", "cp", *words)
    assert done.exit_code == 0, done.stderr
    assert "its SHA-256 is right" in done.stderr
    return Path(done.stdout.rstrip("\n"))


def test_cp_writes_to_directory_or_name(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named, there = f"{shelf.liver}/reads.fastq.gz", tmp_path / "there"
    there.mkdir()
    assert copied(admin, named) == Path("reads.fastq.gz")
    assert copied(admin, named, str(there)) == there / "reads.fastq.gz"
    assert copied(admin, named, str(there / "new name")) == there / "new name"
    for path in (tmp_path / "reads.fastq.gz", there / "reads.fastq.gz", there / "new name"):
        assert path.read_bytes() == READS


def test_cp_replaces_an_existing_file(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").write_bytes(b"other content")
    assert copied(admin, f"{shelf.liver}/readme.txt", "old") == Path("old")
    assert (tmp_path / "old").read_bytes() == b"new\n"


def test_cp_to_standard_output_points_to_cat(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = admin.types("file", "cp", f"{shelf.liver}/readme.txt", "-")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"store file cat {shelf.liver}/readme.txt" in done.stderr
    assert not (tmp_path / "-").exists()


def test_cp_needs_an_existing_directory(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = admin.types("file", "cp", f"{shelf.liver}/readme.txt", "missing/name")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no directory missing" in done.stderr
    assert list(tmp_path.glob("missing*")) == []


def test_cat_of_damaged_bytes_says_so_at_the_end(shelf: Shelf, tmp_path: Path) -> None:
    data = bytes(10_000_000)
    bundle = shelf.depositor.bundle(0x20, {"zeros": data})
    where = urlsplit(shelf.store.url)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as proxy:
        proxy.only, proxy.mode = CONTENT, Mode.FLIP
        through = {URL: f"http://127.0.0.1:{proxy.port}"}
        admin = Typist(tmp_path / "admin", showing(ADMIN_TOKEN), through)
        done = admin.types("file", "cat", f"{bundle}/zeros")
    assert done.stdout_bytes != data
    assert len(done.stdout_bytes) == len(data)
    assert done.exit_code == 8
    assert "its checksum is wrong" in done.stderr


def stored_bytes(path: Path) -> int:
    """Bytes of a file that has holes."""
    return path.stat().st_blocks * 512


def test_killed_cp_leaves_no_file_and_resumes(shelf: Shelf, tmp_path: Path) -> None:
    data = Random(7).randbytes(LARGE_FROM + 1)
    bundle = shelf.depositor.bundle(0x30, {"large.bam": data})
    where, partial = urlsplit(shelf.store.url), tmp_path / ".store" / "partial"
    with before(str(where.hostname), int(where.port or 0), Random(1)) as proxy:
        proxy.only, proxy.mode = CONTENT, Mode.SLOW
        environ = {
            "PATH": os.environ["PATH"],
            "STORE_CLIENT_HOME": str(tmp_path / "home"),
            URL: f"http://127.0.0.1:{proxy.port}",
        }
        words = [str(PROGRAM), "file", "cp", f"{bundle}/large.bam", "copy"]
        with subprocess.Popen(words, cwd=tmp_path, env=environ) as going:
            until(lambda: sum(map(stored_bytes, partial.glob("*.part"))) > 1_000_000)
            going.kill()
        (kept,) = partial.glob("*.part")
        assert stored_bytes(kept) < len(data)
        assert not (tmp_path / "copy").exists()
        proxy.mode = Mode.PASS
        subprocess.run(words, cwd=tmp_path, env=environ, check=True, timeout=60)
    assert (tmp_path / "copy").read_bytes() == data
    assert list(partial.iterdir()) == []
