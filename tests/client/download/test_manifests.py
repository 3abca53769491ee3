"""What a manifest lists, from a served store."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from store_client.client import Client
from store_client.downloads.listing import list_bundle as listed
from store_client.downloads.manifests import REQUIRED, download_manifest
from store_client.downloads.options import DownloadOptions
from store_client.errors import Damaged, Misused, NotFound
from tests.client.download.deposits import VERSION, Depositor
from tests.client.download.test_bundles import contents

CONTENTS = {"sample.json": b"{}", "a.gz": b"a", "b.gz": b"b", "c.gz": b"c", "d.gz": b"d"}


@pytest.fixture
def bundle(depositor: Depositor) -> str:
    return depositor.bundle(1, CONTENTS)


def rows_of(client: Client, uuid: str, *names: str) -> list[dict[str, str]]:
    """Rows of a bundle's files, of all when none is named."""
    found = listed(client, "aws", uuid)
    return [
        {
            "bundle_uuid": found.uuid,
            "bundle_version": found.version,
            "file_name": one.name,
            "file_uuid": one.uuid,
            "file_sha256": one.sha256,
            "file_size": str(one.size),
        }
        for one in found.files
        if not names or one.name in names
    ]


def write(path: Path, rows: list[dict[str, str]], *more: str) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*reversed(REQUIRED), *more], delimiter="\t", restval="kept")
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.spec("DWN-15")
def test_downloads_listed_files_and_writes_paths(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    manifest = write(tmp_path / "wanted.tsv", rows_of(client, bundle, "a.gz", "b.gz"), "note")
    report = download_manifest(client, manifest, options=options)
    assert report.manifest == str(options.directory / "wanted.tsv")
    rows = read(report.manifest)
    assert [Path(row["file_path"]).read_bytes() for row in rows] == [b"a", b"b"]
    assert [(row["file_version"], row["note"]) for row in rows] == [(VERSION, "kept")] * 2
    assert {path.name for path in options.directory.iterdir()} == {".store", "wanted.tsv"}


@pytest.mark.spec("DWN-15")
def test_the_manifest_itself_stays_as_it_is(
    client: Client, bundle: str, options: DownloadOptions
) -> None:
    manifest = write(options.directory / "wanted.tsv", rows_of(client, bundle))
    before = manifest.read_bytes()
    report = download_manifest(client, manifest, options=options)
    assert report.manifest == str(options.directory / "wanted.paths.tsv")
    assert manifest.read_bytes() == before
    again = download_manifest(client, Path(report.manifest), options=options)
    assert again.manifest == report.manifest
    assert len(read(again.manifest)) == len(CONTENTS)


@pytest.mark.spec("DWN-16")
def test_layout_bundle_links_all_metadata_and_the_listed_data(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    manifest = write(tmp_path / "wanted.tsv", rows_of(client, bundle, "a.gz", "b.gz"))
    report = download_manifest(client, manifest, options=options, layout="bundle")
    directory = options.directory / f"{bundle}.{VERSION}"
    assert set(contents(directory)) == {"sample.json", "a.gz", "b.gz"}
    assert (directory / "a.gz").samefile(read(report.manifest)[0]["file_path"])
    assert report.bundles == 1


@pytest.mark.spec("DWN-16")
@pytest.mark.parametrize("layout", ["none", "bundle"])
def test_a_kind_is_left_out(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path, layout: str
) -> None:
    manifest = write(tmp_path / "wanted.tsv", rows_of(client, bundle))
    report = download_manifest(client, manifest, options=options, layout=layout, no_data=True)
    paths = {row["file_name"]: row["file_path"] for row in read(report.manifest)}
    assert [name for name, path in paths.items() if path] == ["sample.json"]
    other = replace(options, cache=tmp_path / "other" / ".store", directory=tmp_path / "other")
    download_manifest(client, manifest, options=other, layout=layout, no_metadata=True)
    found = {
        path.read_bytes()
        for path in (tmp_path / "other" / ".store" / "v2").rglob("*")
        if len(path.name) == 64
    }
    assert found == {b"a", b"b", b"c", b"d"}


@pytest.mark.spec("DWN-15")
def test_a_copy_downloads_again_without_asking_the_store(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    class Nobody:
        def call(self, name: str, /, **arguments: object) -> object:
            raise AssertionError(name)

        pages = call

    manifest = write(tmp_path / "wanted.tsv", rows_of(client, bundle))
    report = download_manifest(client, manifest, options=options)
    again = download_manifest(Nobody(), Path(report.manifest), options=options)  # type: ignore[arg-type]
    assert again.counts.fetched_files == 0


@pytest.mark.spec("DWN-14")
def test_queries_few_files_of_known_versions_directly(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    rows = [{**row, "file_version": VERSION} for row in rows_of(client, bundle, "a.gz")]
    manifest = write(tmp_path / "wanted.tsv", rows, "file_version")
    report = download_manifest(client, manifest, options=options)
    assert report.counts.fetched_files == 1


@pytest.mark.spec("DWN-14")
@pytest.mark.parametrize(
    "wrong",
    [
        {"file_sha256": "0" * 64},
        {"file_size": "77"},
        {"file_uuid": "00000000-0000-4000-8000-000000000000"},
        {"file_version": "2020-01-31T235959.000000Z"},
    ],
)
def test_a_row_that_its_bundle_does_not_have_is_named_by_its_line(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path, wrong: dict[str, str]
) -> None:
    rows = rows_of(client, bundle)
    more = ["file_version"] if "file_version" in wrong else []
    rows = [{**row, **dict.fromkeys(more, "")} for row in rows]
    manifest = write(tmp_path / "wanted.tsv", [*rows[:2], {**rows[2], **wrong}], *more)
    with pytest.raises(Misused, match="line 4"):
        download_manifest(client, manifest, options=options)
    assert not (options.directory / "wanted.tsv").exists()


@pytest.mark.spec("DWN-14")
def test_an_absent_bundle_is_not_found(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    rows = rows_of(client, bundle)
    rows[0]["bundle_uuid"] = "00000000-0000-4000-8000-000000000000"
    manifest = write(tmp_path / "wanted.tsv", rows)
    with pytest.raises(NotFound):
        download_manifest(client, manifest, options=options)


@pytest.mark.spec("DWN-18")
def test_a_dry_run_writes_nothing(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    manifest = write(tmp_path / "wanted.tsv", rows_of(client, bundle))
    report = download_manifest(client, manifest, options=replace(options, dry_run=True))
    assert (report.manifest, report.counts.fetched_files) == ("", 5)
    assert list(options.directory.iterdir()) == []


@pytest.mark.spec("DWN-16")
def test_an_unknown_layout_is_refused(
    client: Client, options: DownloadOptions, tmp_path: Path
) -> None:
    with pytest.raises(Misused, match="layout"):
        download_manifest(client, tmp_path / "absent", options=options, layout="flat")


@pytest.mark.spec("DWN-61")
def test_keeps_other_file_of_copys_name(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    manifest = write(tmp_path / "wanted.tsv", rows_of(client, bundle))
    (options.directory / "wanted.tsv").write_text("of somebody else\n")
    report = download_manifest(client, manifest, options=options)
    assert report.manifest == str(options.directory / "wanted.paths.tsv")
    assert (options.directory / "wanted.tsv").read_text() == "of somebody else\n"


@pytest.mark.spec("DWN-62")
def test_a_file_that_a_bundle_has_under_two_names_is_laid_out_under_both(
    client: Client, depositor: Depositor, options: DownloadOptions, tmp_path: Path
) -> None:
    file = depositor.file("a.gz", b"a")
    uuid = depositor.bundle_of(1, [file, {**file, "name": "reads/b.gz"}])
    manifest = write(tmp_path / "wanted.tsv", rows_of(client, uuid))
    download_manifest(client, manifest, options=options, layout="bundle")
    assert contents(options.directory / f"{uuid}.{VERSION}") == {"a.gz": b"a", "reads/b.gz": b"a"}


@pytest.mark.spec("DWN-63")
def test_reports_wrong_size_at_once(
    client: Client, bundle: str, options: DownloadOptions, tmp_path: Path
) -> None:
    (row,) = rows_of(client, bundle, "a.gz")
    wrong = {**row, "file_version": VERSION, "file_size": "77"}
    manifest = write(tmp_path / "wanted.tsv", [wrong], "file_version")
    with pytest.raises(Damaged, match="has 1 bytes, not 77"):
        download_manifest(client, manifest, options=replace(options, min_delay_s=30.0))
