"""Small files of a bundle come in one archive, and one by one where that fails."""

import contextlib
import io
import tarfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import httpx
import pytest

from store_client.client import Client
from store_client.downloads.bundles import download
from store_client.downloads.job import ArchiveBroken, read_archive
from store_client.downloads.listing import list_bundle
from store_client.downloads.options import DownloadOptions, Filters
from store_client.transfer.engine import Stopped, StopSignal
from store_client.transfer.streams import RemoteFile
from tests.client.download.bucket import VERSION, Bucket, Harm
from tests.client.download.deposits import Depositor
from tests.client.download.test_bundles import Heard, contents

BUNDLE = str(UUID(int=1))
FILES = {f"run {n:02}.fastq": b"%02d " % n * 1000 for n in range(20)}


def pack(files: Sequence[tuple[str, bytes]], **more: Any) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in more.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


@dataclass
class SmallFiles:
    """A store with one bundle of small files, whose archive and files come from a bucket."""

    bucket: Bucket
    client: Client
    files: list[RemoteFile] = field(default_factory=list)
    is_own: bool = True

    def call(self, name: str, /, **_: Any) -> Any:
        raise AssertionError(name)

    def pages(self, _: str, /, **__: Any) -> Iterator[Any]:
        names = ("uuid", "version", "name", "sha256", "size", "indexed", "url")
        listed = [{name: getattr(one, name) for name in names} for one in self.files]
        yield {"bundle": {"uuid": BUNDLE, "version": VERSION, "files": listed}}

    def sends(self, _: str) -> bool:
        return self.is_own

    def stream(self, name: str, /, **arguments: Any) -> AbstractContextManager[httpx.Response]:
        assert name == "get_bundle_archive"
        assert arguments == {
            "uuid": BUNDLE,
            "version": VERSION,
            "replica": "aws",
            "format": "tar",
        }
        place = self.bucket.signed("archive")
        return self.client.session.stream("GET", place, authorize=False, limit=None, retry=False)

    def fetched(self) -> set[str]:
        """Names of requests, without that for the archive."""
        return {key for key, *_ in self.bucket.asked} - {"archive"}


@pytest.fixture
def small(bucket: Bucket, client: Client) -> SmallFiles:
    made = SmallFiles(bucket, client)
    made.files = [
        replace(bucket.wanted(f"k{n}", data), name=name)
        for n, (name, data) in enumerate(FILES.items())
    ]
    bucket.contents["archive"] = pack([(f"{BUNDLE}/{name}", FILES[name]) for name in FILES])
    return made


@pytest.mark.spec("DWN-01")
def test_many_small_files_come_in_one_request(
    client: Client, depositor: Depositor, options: DownloadOptions
) -> None:
    class OnlyArchives:
        """The store, whose other presigned URLs lead nowhere."""

        call, sends, stream = client.call, client.sends, client.stream

        def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]:
            for page in client.pages(name, **arguments):
                for line in page["bundle"]["files"]:
                    assert client.sends(line["url"])
                    line["url"] = line["url"].replace("?", "/nowhere?")
                yield page

    # The archive changes the first names, and has the bytes of twins twice.
    files = {"aux.txt": b"1", "a:b.txt": b"2", "A:b.txt": b"3", "twin": FILES["run 01.fastq"]}
    files |= {"empty": b"", f"{'long/' * 60}é.json": b"{}"} | FILES
    uuid = depositor.bundle(1, files)
    heard = Heard()
    report = download(OnlyArchives(), uuid, options=replace(options, tell=heard))
    assert contents(options.directory / f"{uuid}.{VERSION}") == files
    assert (report.counts.files, report.counts.fetched_files) == (26, 25)
    assert (heard.files, heard.done) == (26, report.counts.fetched_bytes)


@pytest.mark.spec("DWN-03")
def test_what_is_there_is_kept_and_the_rest_fetched(
    small: SmallFiles, options: DownloadOptions
) -> None:
    download(small, BUNDLE, options=options, filters=Filters(data="run 0[0-3]*"))
    assert len(small.fetched()) == 4
    small.bucket.asked.clear()
    report = download(small, BUNDLE, options=options)
    assert report.counts.fetched_files == 16
    assert small.fetched() == set()
    assert contents(options.directory / f"{BUNDLE}.{VERSION}") == FILES


HARMS = {
    "refused": (Harm(status=403), 20),
    "busy": (Harm(status=429, retry_after=60), 20),
    "no answer": (Harm(garbage=b"nothing"), 20),
    "no archive": (Harm(flip_at=150), 20),
    "damaged": (Harm(flip_at=600), 1),
    "cut": (Harm(cut_at=9_000), 18),
    "cut in a header": (Harm(cut_at=6 * 3584 + 100), 14),
}


@pytest.mark.spec("DWN-67")
@pytest.mark.parametrize("harm", HARMS)
def test_what_the_archive_lacks_is_fetched_one_by_one(
    small: SmallFiles, options: DownloadOptions, harm: str
) -> None:
    small.bucket.harms, alone = [HARMS[harm][0]], HARMS[harm][1]
    heard = Heard()
    report = download(small, BUNDLE, options=replace(options, tell=heard))
    assert contents(options.directory / f"{BUNDLE}.{VERSION}") == FILES
    assert report.counts.fetched_files == heard.files == 20
    assert heard.done == heard.all_bytes
    assert len(small.fetched()) == alone


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}


@pytest.mark.spec("DWN-67")
def test_names_and_kinds_of_members_mean_nothing(
    small: SmallFiles, options: DownloadOptions
) -> None:
    names = ["../../outside", "/dev/shm/outside", "", "same", "same", *list(FILES)[5:]]
    packed = pack([("evil", b"unknown"), *zip(names, FILES.values(), strict=True)])
    packed = pack([("link", b"")], **LINK)[:512] + packed
    small.bucket.contents["archive"] = packed
    download(small, BUNDLE, options=options)
    assert contents(options.directory / f"{BUNDLE}.{VERSION}") == FILES
    assert small.fetched() == set()
    assert {path.name for path in options.directory.iterdir()} == {f"{BUNDLE}.{VERSION}", ".store"}


@pytest.mark.spec("DWN-67")
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_reads_no_more_than_a_bundle_can_have(
    small: SmallFiles, client: Client, kind: bytes
) -> None:
    small.bucket.contents["archive"] = pack([("large", bytes(3_000_000))], type=kind)
    listed = list_bundle(small, "aws", BUNDLE)
    with pytest.raises(ArchiveBroken, match="more bytes than the bundle"):
        list(read_archive(small, listed, "aws", stop=StopSignal()))


@pytest.mark.spec("DWN-67")
def test_nested_headers_are_an_invalid_archive(small: SmallFiles) -> None:
    header = pack([("a", b"")], type=tarfile.XHDTYPE)[:512]
    listed = list_bundle(small, "aws", BUNDLE)
    listed = replace(listed, files=listed.files * 20)
    small.bucket.contents["archive"] = header * 2000
    with pytest.raises(ArchiveBroken):
        list(read_archive(small, listed, "aws", stop=StopSignal()))


@pytest.mark.parametrize(
    "change",
    [
        {"is_own": False},
        {"files": slice(15)},
        {"sizes": 200_000},
        {"large": 2_000_000},
    ],
)
def test_other_files_come_one_by_one(
    small: SmallFiles, options: DownloadOptions, change: dict[str, Any]
) -> None:
    small.is_own = change.get("is_own", True)
    small.files = small.files[change.get("files", slice(None))]
    if "sizes" in change:
        small.files = [
            small.bucket.wanted(f"k{n}", b"%d" % n + bytes(change["sizes"])) for n in range(16)
        ]
    if "large" in change:
        small.files += [small.bucket.wanted("large", bytes(change["large"]))]
    download(small, BUNDLE, options=options)
    assert "archive" not in {key for key, *_ in small.bucket.asked}
    assert len(small.fetched()) == len(small.files)


def test_stopping_wakes_the_reader(small: SmallFiles) -> None:
    small.bucket.harms = [Harm(stall_at=4_000)]
    stop = StopSignal()
    listed = list_bundle(small, "aws", BUNDLE)
    ended = threading.Event()

    def read() -> None:
        with contextlib.suppress(Stopped):
            list(read_archive(small, listed, "aws", stop=stop))
            return
        ended.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert small.bucket.stalled.wait(10)
    stop.set()
    assert ended.wait(10)
    small.bucket.go_on.set()
    thread.join()
