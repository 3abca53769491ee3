"""A bundle of a served store, in a directory of its own."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from store_client.client import Client
from store_client.downloads.bundles import download, download_matches
from store_client.downloads.options import DownloadOptions, Filters
from store_client.errors import Damaged, Misused, NotFound, StoreError
from tests.client.download.deposits import VERSION, Depositor, uuid_of

CONTENTS = {
    "sample.json": b'{"organism": "Danio rerio"}',
    "reads/lane 1/R1.gz": Random(1).randbytes(1_500_000),
    "reads/lane 1/R2.gz": b"reads",
    "twin.txt": b"reads",
    "empty": b"",
}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Heard:
    """What a listener was told."""

    def __init__(self) -> None:
        self.all_files = self.all_bytes = self.done = self.files = 0
        self.phases: list[str] = []

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        self.all_files += files
        self.all_bytes += bytes

    def bytes(self, n: int) -> None:
        self.done += n

    def file(self) -> None:
        self.files += 1

    def phase(self, name: str) -> None:
        self.phases.append(name)


@pytest.fixture
def bundle(depositor: Depositor) -> str:
    return depositor.bundle(1, CONTENTS)


@pytest.mark.spec("DWN-01")
def test_links_bundle_from_cache(client: Client, bundle: str, options: DownloadOptions) -> None:
    report = download(client, bundle.upper(), options=options)
    directory = options.directory / f"{bundle}.{VERSION}"
    assert report.directory == str(directory)
    assert contents(directory) == CONTENTS
    assert (report.counts.files, report.counts.fetched_files) == (5, 4)
    assert os.stat(directory / "twin.txt").st_nlink == 3
    assert (directory / "twin.txt").samefile(directory / "reads/lane 1/R2.gz")


@pytest.mark.spec("DWN-20")
def test_downloads_all_bundles_that_match(
    client: Client, bundle: str, depositor: Depositor, options: DownloadOptions
) -> None:
    class Searchable:
        """The store, with these results of searches in two pages."""

        call = client.call

        def pages(self, name: str, /, **arguments: Any) -> Iterator[Any]:
            if name != "post_search":
                return client.pages(name, **arguments)
            assert arguments == {"replica": "aws", "es_query": {"match_all": {}}}
            return iter({"results": [{"bundle_fqid": one}]} for one in matches)

    other = depositor.bundle(2, {"b.txt": b"b"})
    matches = [f"{bundle}.{VERSION}", f"{other}.{VERSION}"]
    report = download_matches(Searchable(), {"match_all": {}}, options=options)
    assert (report.bundles, report.counts.files) == (2, 6)
    assert contents(options.directory / matches[0]) == CONTENTS
    assert contents(options.directory / matches[1]) == {"b.txt": b"b"}


@pytest.mark.spec("DWN-03")
def test_second_download_fetches_nothing(
    client: Client, bundle: str, options: DownloadOptions
) -> None:
    first = download(client, bundle, options=options, version=VERSION)
    second = download(client, bundle, options=options)
    assert first.counts.bytes == second.counts.bytes == sum(map(len, CONTENTS.values()))
    assert second.counts.fetched_files == second.counts.fetched_bytes == 0


@pytest.mark.spec("DWN-03")
def test_restores_edited_file_from_cache(
    client: Client, bundle: str, options: DownloadOptions
) -> None:
    directory = Path(download(client, bundle, options=options).directory)
    with (directory / "sample.json").open("r+b") as file:
        file.write(b"X")
    (directory / "twin.txt").unlink()
    (directory / "twin.txt").write_bytes(b"mine")
    again = download(client, bundle, options=options)
    assert contents(directory) == CONTENTS
    assert again.counts.fetched_files == 1


@pytest.mark.spec("DWN-02")
def test_leaves_identical_files(client: Client, bundle: str, options: DownloadOptions) -> None:
    directory = options.directory / f"{bundle}.{VERSION}"
    directory.mkdir()
    (directory / "sample.json").write_bytes(CONTENTS["sample.json"])
    before = (directory / "sample.json").stat()
    download(client, bundle, options=options)
    assert os.path.samestat((directory / "sample.json").stat(), before)


@pytest.mark.spec("DWN-04")
@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (Filters(), set(CONTENTS)),
        (Filters(no_metadata=True), set(CONTENTS) - {"sample.json"}),
        (Filters(no_data=True), {"sample.json"}),
        (Filters(data="*.gz"), {"sample.json", "reads/lane 1/R1.gz", "reads/lane 1/R2.gz"}),
        (Filters(data="*.GZ", metadata="[s]*"), {"sample.json"}),
        (Filters(metadata="S*", no_data=True), set()),
    ],
)
def test_filters_choose_by_kind_and_name_minding_case(
    client: Client, bundle: str, options: DownloadOptions, filters: Filters, names: set[str]
) -> None:
    report = download(client, bundle, options=options, filters=filters)
    assert set(contents(Path(report.directory))) == names


@pytest.mark.spec("DWN-04")
@pytest.mark.parametrize(
    "filters", [Filters(no_metadata=True, metadata="*"), Filters(no_data=True, data="a")]
)
def test_a_kind_is_not_filtered_and_left_out_at_once(
    client: Client, options: DownloadOptions, filters: Filters
) -> None:
    with pytest.raises(Misused, match="cannot be combined"):
        download(client, uuid_of(1), options=options, filters=filters)


@pytest.mark.spec("DWN-19")
def test_rejects_invalid_options_before_request(client: Client, options: DownloadOptions) -> None:
    for wrong in (
        replace(options, jobs=0),
        replace(options, replica="az"),
        replace(options, num_retries=-1),
        replace(options, min_delay_s=-1),
    ):
        with pytest.raises(Misused):
            download(client, uuid_of(1), options=wrong)
    with pytest.raises(Misused):
        download(client, "../etc", options=options)
    with pytest.raises(Misused):
        download(client, uuid_of(1), options=options, version="yesterday")


@pytest.mark.spec("DWN-01")
def test_an_absent_bundle_is_not_found(client: Client, options: DownloadOptions) -> None:
    with pytest.raises(NotFound):
        download(client, uuid_of(99), options=options)


@pytest.mark.spec("DWN-18")
def test_dry_run_reports_and_writes_nothing(
    client: Client, bundle: str, options: DownloadOptions
) -> None:
    report = download(client, bundle, options=replace(options, dry_run=True))
    assert report.counts.fetched_bytes == sum(map(len, CONTENTS.values())) - len(b"reads")
    assert report.counts.files == 5
    assert list(options.directory.iterdir()) == []


@pytest.mark.spec("DWN-19")
def test_progress_ends_at_total(client: Client, bundle: str, options: DownloadOptions) -> None:
    heard = Heard()
    download(client, bundle, options=replace(options, tell=heard))
    assert (heard.done, heard.files) == (heard.all_bytes, heard.all_files)
    assert heard.all_files == 5


@pytest.mark.spec("DWN-01")
def test_fetches_bundle_of_many_pages(
    client: Client, depositor: Depositor, options: DownloadOptions
) -> None:
    one = depositor.file("first", b"the same")
    files = [{**one, "name": f"d{number % 7}/f{number}"} for number in range(1203)]
    uuid = depositor.bundle_of(2, files)
    report = download(client, uuid, options=options)
    assert len(contents(Path(report.directory))) == 1203
    assert report.counts.fetched_files == 1


class Hostile:
    """A store that tells of files with these names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def call(self, name: str, /, **arguments: object) -> object:
        raise AssertionError(name)

    def pages(self, name: str, /, **arguments: object):  # type: ignore[no-untyped-def]
        entry = {
            "uuid": uuid_of(5),
            "version": VERSION,
            "sha256": "0" * 64,
            "size": 1,
            "indexed": False,
        }
        files = [{**entry, "name": one} for one in self.names]
        yield {"bundle": {"uuid": uuid_of(1), "version": VERSION, "files": files}}


@pytest.mark.spec("DWN-13")
@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", "a\\..\\b", "a\nb", ""])
def test_rejects_unsafe_name_before_any_byte(options: DownloadOptions, name: str) -> None:
    with pytest.raises(Damaged, match="name"):
        download(Hostile(name), uuid_of(1), options=options)


@pytest.mark.spec("DWN-13")
def test_a_directory_that_is_a_link_is_refused(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    directory = options.directory / f"{bundle}.{VERSION}"
    (tmp_path / "elsewhere").mkdir()
    for linked in (directory, directory / "reads"):
        linked.parent.mkdir(exist_ok=True)
        linked.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(Misused, match="symbolic link"):
            download(client, bundle, options=options)
        linked.unlink()
    assert list((tmp_path / "elsewhere").iterdir()) == []


class Swapping(Heard):
    """Replaces a directory by a link once all names were looked at."""

    def __init__(self, directory: Path, elsewhere: Path) -> None:
        super().__init__()
        self.directory, self.elsewhere = directory, elsewhere

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.directory.symlink_to(self.elsewhere)


@pytest.mark.spec("DWN-13")
@pytest.mark.parametrize("name", ["", "reads", "reads/lane 1"])
def test_a_directory_that_becomes_a_link_is_refused(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path, name: str
) -> None:
    directory = options.directory / f"{bundle}.{VERSION}" / name
    (tmp_path / "elsewhere").mkdir()
    swapping = Swapping(directory, tmp_path / "elsewhere")
    with pytest.raises(Misused, match="symbolic link"):
        download(client, bundle, options=replace(options, tell=swapping))
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.spec("DWN-13")
def test_reports_directory_in_place_of_file(
    client: Client, bundle: str, options: DownloadOptions
) -> None:
    (options.directory / f"{bundle}.{VERSION}" / "empty").mkdir(parents=True)
    with pytest.raises(StoreError, match="is a directory"):
        download(client, bundle, options=options)


NO_BUNDLES = [
    {},
    {"bundle": None},
    {"bundle": {"uuid": 1, "version": 2, "files": []}},
    {"bundle": {"uuid": "../../evil", "version": VERSION, "files": []}},
    {"bundle": {"uuid": uuid_of(1), "version": "/../../evil", "files": []}},
    {"bundle": {"uuid": uuid_of(1), "version": VERSION, "files": [{"name": "a"}]}},
]


@pytest.mark.spec("DWN-13")
@pytest.mark.parametrize("answer", NO_BUNDLES)
def test_malformed_bundle_is_damaged(options: DownloadOptions, answer: object) -> None:
    class Odd(Hostile):
        def pages(self, name: str, /, **arguments: object):  # type: ignore[no-untyped-def]
            yield answer

    with pytest.raises(Damaged, match="not a bundle"):
        download(Odd("a"), uuid_of(1), options=options)


@pytest.mark.spec("DWN-67")
def test_rejects_duplicate_names(options: DownloadOptions) -> None:
    with pytest.raises(Damaged, match="two files of one name"):
        download(Hostile("a", "b", "a"), uuid_of(1), options=options)
