import os
from pathlib import Path

import pytest

from store_client.areas.upload import plan_area_files
from store_client.errors import Misused
from store_client.local_files import OutgoingFile
from tests.client.areas.builders import wrote


def planned(*paths: Path, target: str | None = None, extension: str | None = None) -> list[str]:
    return [one.name for one in _plan(*paths, target=target, extension=extension)]


def _plan(
    *paths: Path, target: str | None = None, extension: str | None = None
) -> tuple[OutgoingFile, ...]:
    return plan_area_files(
        paths, kind_of=lambda _: "text/plain", target=target, extension=extension
    )


@pytest.fixture
def run7(tmp_path: Path) -> Path:
    for name in ("a.json", "reads/one.fastq", "reads/two.fastq.gz", "reads/deep/er/.hidden"):
        wrote(tmp_path / "run7" / name, name.encode())
    return tmp_path / "run7"


@pytest.mark.spec("ARC-05")
def test_directories_keep_their_structure_and_a_file_its_name(run7: Path, tmp_path: Path) -> None:
    single = wrote(tmp_path / "elsewhere/x.txt", b"x")
    inside = ["a.json", "reads/deep/er/.hidden", "reads/one.fastq", "reads/two.fastq.gz"]
    assert planned(run7, single) == [*inside, "x.txt"]
    (made,) = _plan(single)
    assert (made.path, made.size, made.content_type) == (single, 1, "text/plain")


@pytest.mark.spec("ARC-06")
@pytest.mark.parametrize(
    ("extension", "names"),
    [
        ("fastq", ["reads/one.fastq"]),
        (".fastq", ["reads/one.fastq"]),
        ("fastq.gz", ["reads/two.fastq.gz"]),
    ],
)
def test_an_extension_chooses_among_the_files_of_directories(
    run7: Path, extension: str, names: list[str]
) -> None:
    assert planned(run7, extension=extension) == names


@pytest.mark.spec("ARC-06")
def test_extension_applies_to_directories_and_must_match(run7: Path) -> None:
    with pytest.raises(Misused, match="is not a directory"):
        planned(run7 / "a.json", extension="json")
    with pytest.raises(Misused, match=r"no files that end with \.bam"):
        planned(run7, extension="bam")


@pytest.mark.spec("ARC-06")
def test_a_target_names_a_single_file(run7: Path) -> None:
    assert planned(run7 / "a.json", target="meta/b.json") == ["meta/b.json"]
    for paths in ((run7,), (run7 / "a.json", run7 / "reads/one.fastq")):
        with pytest.raises(Misused, match="names a single file"):
            planned(*paths, target="b.json")


@pytest.mark.spec("ARC-05")
@pytest.mark.parametrize("name", ["../b", "/b", "a//b", "a\\b", "a\nb", ""])
def test_a_name_that_the_store_refuses_is_refused_here(run7: Path, name: str) -> None:
    with pytest.raises(Misused, match="cannot have a file"):
        planned(run7 / "a.json", target=name)


@pytest.mark.spec("ARC-05")
def test_rejects_two_files_of_one_name(run7: Path, tmp_path: Path) -> None:
    twin = wrote(tmp_path / "twin/a.json", b"another")
    with pytest.raises(Misused) as refused:
        planned(run7, twin.parent)
    assert str(run7 / "a.json") in str(refused.value)
    assert str(twin) in str(refused.value)


@pytest.mark.spec("ARC-05")
def test_names_that_differ_only_in_how_an_accent_is_written_are_one(tmp_path: Path) -> None:
    wrote(tmp_path / "d/caf\u00e9", b"1")
    wrote(tmp_path / "d/cafe\u0301", b"2")
    with pytest.raises(Misused, match="would both be called"):
        planned(tmp_path / "d")


@pytest.mark.spec("ARC-05")
def test_duplicate_file_is_sent_once(run7: Path) -> None:
    assert planned(run7 / "a.json", run7 / "a.json") == ["a.json"]
    assert planned(run7, run7 / "a.json").count("a.json") == 1


@pytest.mark.spec("ARC-05")
def test_names_missing_files(tmp_path: Path) -> None:
    with pytest.raises(Misused, match="there is no"):
        planned(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Misused, match="there are no files"):
        planned(tmp_path / "empty")
    os.mkfifo(tmp_path / "empty/pipe")
    with pytest.raises(Misused, match="is not a file"):
        planned(tmp_path / "empty")


@pytest.mark.spec("ARC-05")
def test_follows_file_links_and_reports_directory_links(
    run7: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run7 / "link.json").symlink_to(run7 / "a.json")
    (run7 / "round").symlink_to(run7)
    assert "link.json" in planned(run7)
    assert "left out" in caplog.text
    (run7 / "broken").symlink_to(run7 / "nothing")
    with pytest.raises(Misused, match="cannot read"):
        planned(run7)
