"""How far an upload has come, over all its runs."""

import os
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from store_client.atomic_files import hold_lock
from store_client.checksums import FileChecksums
from store_client.errors import StoreError
from store_client.local_files import FileStamp
from store_client.transfer.journal import (
    KEPT_S,
    SETTLED_NS,
    KnownFile,
    UnfinishedFile,
    UploadAttempt,
    UploadJournal,
    journal_path,
    remove_finished,
)

SUMS = FileChecksums("a" * 40, "b" * 64, "c" * 8, "d" * 32)
STAMP = FileStamp(5, 10**18, 77)
KEPT = KnownFile(STAMP, STAMP.mtime_ns + SETTLED_NS + 1, "text/plain", SUMS, "u", "v", "s3://b/k")
UNDER_WAY = UnfinishedFile(STAMP, "u", "v", "s3://b/k", "token")
ATTEMPT = UploadAttempt("bundle", "version", "area")


def written(path: Path) -> UploadJournal:
    journal = UploadJournal(path)
    journal.record_attempt(ATTEMPT)
    journal.record_unfinished("a", UNDER_WAY)
    journal.record_unfinished("b", UNDER_WAY)
    journal.record_file("a", KEPT)
    journal.record_file("a", replace(KEPT, stored=True))
    journal.record_file("c", KEPT)
    journal.forget_file("c")
    return journal


def told(journal: UploadJournal) -> tuple[object, ...]:
    return journal.attempt, journal.files, journal.unfinished


@pytest.mark.spec("UPL-17")
def test_the_next_run_knows_what_the_last_one_wrote(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "j.jsonl"
    first = written(path)
    assert told(first) == (ATTEMPT, {"a": replace(KEPT, stored=True)}, {"b": UNDER_WAY})
    # Not closed: a run that is killed closes nothing.
    second = UploadJournal(path)
    assert told(second) == told(first)
    second.close()
    first.close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("UPL-17")
def test_a_line_that_was_cut_off_counts_as_never_written(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    written(path).close()
    whole = path.read_bytes()
    for end in range(len(whole) - 40, len(whole)):
        path.write_bytes(whole[:end])
        journal = UploadJournal(path)
        assert journal.attempt == ATTEMPT
        journal.record_file("d", KEPT)
        journal.close()
        again = UploadJournal(path)
        assert again.files["d"] == KEPT
        again.close()


FILLS_A_DISK = """
import resource, sys
from pathlib import Path
from store_client.errors import StoreError
from store_client.transfer.journal import UploadAttempt, UploadJournal

path = Path(sys.argv[1])
journal = UploadJournal(path)
journal.record_bundle("a", UploadAttempt("a", "v", ""))
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, most))
try:
    journal.record_bundle("b", UploadAttempt("b", "v", ""))
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
journal.record_bundle("c", UploadAttempt("c", "v", ""))
"""
"""Records of another thread may come once there is room again."""


@pytest.mark.spec("UPL-17")
def test_a_line_that_a_full_disk_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FILLS_A_DISK, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "only a part of a line was taken" in done.stdout
    assert UploadJournal(path, writing=False).bundles.keys() == {"a", "c"}


@pytest.mark.spec("UPL-17")
def test_bits_that_flipped_are_never_believed(tmp_path: Path) -> None:
    path, rng = tmp_path / "j.jsonl", Random(1)
    written(path).close()
    whole = path.read_bytes()
    allowed = {"a": {KEPT, replace(KEPT, stored=True)}, "b": set[KnownFile](), "c": {KEPT}}
    for _ in range(300):
        harmed = bytearray(whole)
        harmed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(harmed)
        journal = UploadJournal(path, writing=False)
        assert journal.attempt in (ATTEMPT, None)
        assert all(kept in allowed[name] for name, kept in journal.files.items())


@pytest.mark.spec("UPL-17")
def test_compacts_grown_journal(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = written(path)
    for _ in range(200):
        journal.record_file("a", KEPT)
    journal.close()
    before = path.stat().st_size
    again = UploadJournal(path)
    assert told(again) == told(journal)
    again.close()
    assert path.stat().st_size < before / 10
    last = UploadJournal(path)
    assert told(last) == told(journal)
    last.close()


@pytest.mark.spec("UPL-17")
def test_without_writing_nothing_is_left(tmp_path: Path) -> None:
    journal = UploadJournal(tmp_path / "j.jsonl", writing=False)
    journal.record_file("a", KEPT)
    journal.close()
    assert journal.files == {"a": KEPT}
    assert not list(tmp_path.iterdir())


@pytest.mark.spec("UPL-17")
def test_a_file_is_the_same_only_if_it_could_not_have_changed_unseen() -> None:
    assert KEPT.matches(STAMP)
    assert not KEPT.matches(STAMP._replace(size=6))
    assert not KEPT.matches(STAMP._replace(mtime_ns=1))
    assert not KEPT.matches(STAMP._replace(inode=1))
    assert not replace(KEPT, at=STAMP.mtime_ns + SETTLED_NS).matches(STAMP)


@pytest.mark.spec("UPL-17")
def test_forgets_finished_uploads_after_a_while(tmp_path: Path) -> None:
    for name, finished in (("old", True), ("new", True), ("open", False)):
        journal = written(tmp_path / f"{name}.jsonl")
        journal.record_attempt(replace(ATTEMPT, finished=finished))
        journal.close()
    then = time.time() - KEPT_S - 10
    for name in ("old", "open"):
        os.utime(tmp_path / f"{name}.jsonl", (then, then))
    assert remove_finished(tmp_path, now=time.time()) == 1
    assert sorted(path.stem for path in tmp_path.glob("*.jsonl")) == ["new", "open"]


@pytest.mark.spec("UPL-17")
def test_each_directory_store_replica_and_bundle_has_its_own(tmp_path: Path) -> None:
    told = [("/a", "u", "aws", ""), ("/a", "u", "gcp", ""), ("/a", "u", "aws", "b"), ("/b", "u")]
    assert len({journal_path(tmp_path, *one) for one in told}) == 4
    assert journal_path(tmp_path, "/a", "b") != journal_path(tmp_path, "/ab", "")


@pytest.mark.spec("UPL-17")
def test_reports_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for open_it in (
        lambda: UploadJournal(tmp_path / "file" / "j.jsonl"),
        lambda: hold_lock(tmp_path / "file" / "j.lock", "busy already").__enter__(),
    ):
        with pytest.raises(StoreError) as told:
            open_it()
        assert "STORE_CLIENT_HOME" in told.value.hint


@pytest.mark.spec("UPL-18")
def test_one_upload_per_directory_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "j.lock"
    with (
        hold_lock(path, "busy already"),
        pytest.raises(StoreError, match="already"),
        hold_lock(path, "busy already"),
    ):
        pass
    with hold_lock(path, "busy already"):
        pass


@pytest.mark.spec("UPL-61")
def test_lines_that_another_version_wrote_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    written(path).close()
    before = told(UploadJournal(path, writing=False))
    with path.open("ab") as file:
        for text in (b'{"what":"attempt","uuid":"x"}', b'{"what":"file","new":1}', b"{}"):
            file.write(b"%s\t%08x\n" % (text, zlib.crc32(text)))
    assert told(UploadJournal(path, writing=False)) == before
    os.utime(path, (1, 1))
    assert remove_finished(tmp_path, now=time.time()) == 0


@pytest.mark.parametrize("text", [b"", b"[]", b'"x"', b"nul", b"\xff", b"[" * 100_000])
def test_lines_that_are_no_objects_are_left_out(tmp_path: Path, text: bytes) -> None:
    """Also when journals of other uploads are looked at, which would end every upload."""
    path = tmp_path / "j.jsonl"
    written(path).close()
    with path.open("ab") as file:
        file.write(b"%s\t%08x\n" % (text, zlib.crc32(text)))
    journal = UploadJournal(path)
    assert journal.attempt == ATTEMPT
    journal.close()
    os.utime(path, (1, 1))
    assert remove_finished(tmp_path, now=2 + KEPT_S) == 0


@pytest.mark.spec("UPL-61")
def test_reports_full_disk_in_mid_line(tmp_path: Path) -> None:
    code = """if True:
        import resource, signal, sys
        from pathlib import Path
        from store_client.errors import StoreError
        from store_client.transfer.journal import UploadAttempt, UploadJournal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
        try:
            UploadJournal(Path(sys.argv[1])).record_attempt(UploadAttempt("u" * 36, "v" * 27, "a" * 36))
        except StoreError as error:
            print(error)
    """
    command = [sys.executable, "-c", code, str(tmp_path / "j.jsonl")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "only a part of a line was taken" in done.stdout
