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

from store_client.checksums import Checksums
from store_client.errors import StoreError
from store_client.upload.alone import alone
from store_client.upload.journal import (
    KEPT_S,
    SETTLED_NS,
    Attempt,
    Journal,
    Kept,
    Unfinished,
    path_of,
    sweep,
)
from store_client.upload.walking import Stamp

SUMS = Checksums("a" * 40, "b" * 64, "c" * 8, "d" * 32)
STAMP = Stamp(5, 10**18, 77)
KEPT = Kept(STAMP, STAMP.mtime_ns + SETTLED_NS + 1, "text/plain", SUMS, "u", "v", "s3://b/k")
UNDER_WAY = Unfinished(STAMP, "u", "v", "s3://b/k", "token")
ATTEMPT = Attempt("bundle", "version", "area")


def written(path: Path) -> Journal:
    journal = Journal(path)
    journal.begin(ATTEMPT)
    journal.under_way("a", UNDER_WAY)
    journal.under_way("b", UNDER_WAY)
    journal.keep("a", KEPT)
    journal.keep("a", replace(KEPT, stored=True))
    journal.keep("c", KEPT)
    journal.forget("c")
    return journal


def told(journal: Journal) -> tuple[object, ...]:
    return journal.attempt, journal.files, journal.unfinished


def test_the_next_run_knows_what_the_last_one_wrote(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "j.jsonl"
    first = written(path)
    assert told(first) == (ATTEMPT, {"a": replace(KEPT, stored=True)}, {"b": UNDER_WAY})
    # Not closed: a run that is killed closes nothing.
    second = Journal(path)
    assert told(second) == told(first)
    second.close()
    first.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_counts_as_never_written(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    written(path).close()
    whole = path.read_bytes()
    for end in range(len(whole) - 40, len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path)
        assert journal.attempt == ATTEMPT
        journal.keep("d", KEPT)
        journal.close()
        again = Journal(path)
        assert again.files["d"] == KEPT
        again.close()


def test_bits_that_flipped_are_never_believed(tmp_path: Path) -> None:
    path, rng = tmp_path / "j.jsonl", Random(1)
    written(path).close()
    whole = path.read_bytes()
    allowed = {"a": {KEPT, replace(KEPT, stored=True)}, "b": set[Kept](), "c": {KEPT}}
    for _ in range(300):
        harmed = bytearray(whole)
        harmed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(harmed)
        journal = Journal(path, writing=False)
        assert journal.attempt in (ATTEMPT, None)
        assert all(kept in allowed[name] for name, kept in journal.files.items())


def test_a_journal_that_grew_is_written_anew_with_what_still_counts(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = written(path)
    for _ in range(200):
        journal.keep("a", KEPT)
    journal.close()
    before = path.stat().st_size
    again = Journal(path)
    assert told(again) == told(journal)
    again.close()
    assert path.stat().st_size < before / 10
    last = Journal(path)
    assert told(last) == told(journal)
    last.close()


def test_without_writing_nothing_is_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl", writing=False)
    journal.keep("a", KEPT)
    journal.close()
    assert journal.files == {"a": KEPT}
    assert not list(tmp_path.iterdir())


def test_a_file_is_the_same_only_if_it_could_not_have_changed_unseen() -> None:
    assert KEPT.is_of(STAMP)
    assert not KEPT.is_of(STAMP._replace(size=6))
    assert not KEPT.is_of(STAMP._replace(mtime_ns=1))
    assert not KEPT.is_of(STAMP._replace(inode=1))
    assert not replace(KEPT, at=STAMP.mtime_ns + SETTLED_NS).is_of(STAMP)


def test_finished_uploads_are_forgotten_after_a_while_unfinished_ones_never(tmp_path: Path) -> None:
    for name, finished in (("old", True), ("new", True), ("open", False)):
        journal = written(tmp_path / f"{name}.jsonl")
        journal.begin(replace(ATTEMPT, finished=finished))
        journal.close()
    then = time.time() - KEPT_S - 10
    for name in ("old", "open"):
        os.utime(tmp_path / f"{name}.jsonl", (then, then))
    assert sweep(tmp_path, now=time.time()) == 1
    assert sorted(path.stem for path in tmp_path.glob("*.jsonl")) == ["new", "open"]


def test_each_directory_store_replica_and_bundle_has_its_own(tmp_path: Path) -> None:
    told = [("/a", "u", "aws", ""), ("/a", "u", "gcp", ""), ("/a", "u", "aws", "b"), ("/b", "u")]
    assert len({path_of(tmp_path, *one) for one in told}) == 4
    assert path_of(tmp_path, "/a", "b") != path_of(tmp_path, "/ab", "")


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for open_it in (
        lambda: Journal(tmp_path / "file" / "j.jsonl"),
        lambda: alone(tmp_path / "file" / "j.lock").__enter__(),
    ):
        with pytest.raises(StoreError) as told:
            open_it()
        assert "STORE_CLIENT_HOME" in told.value.hint


def test_only_one_upload_of_a_directory_goes_on_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "j.lock"
    with alone(path), pytest.raises(StoreError, match="already"), alone(path):
        pass
    with alone(path):
        pass


def test_lines_that_another_version_wrote_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    written(path).close()
    before = told(Journal(path, writing=False))
    with path.open("ab") as file:
        for text in (b'{"what":"attempt","uuid":"x"}', b'{"what":"file","new":1}', b"{}"):
            file.write(b"%s\t%08x\n" % (text, zlib.crc32(text)))
    assert told(Journal(path, writing=False)) == before
    os.utime(path, (1, 1))
    assert sweep(tmp_path, now=time.time()) == 0


def test_a_disk_that_takes_half_a_line_is_told(tmp_path: Path) -> None:
    code = """if True:
        import resource, signal, sys
        from pathlib import Path
        from store_client.errors import StoreError
        from store_client.upload.journal import Attempt, Journal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
        try:
            Journal(Path(sys.argv[1])).begin(Attempt("u" * 36, "v" * 27, "a" * 36))
        except StoreError as error:
            print(error)
    """
    command = [sys.executable, "-c", code, str(tmp_path / "j.jsonl")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "only a part of a line was taken" in done.stdout
