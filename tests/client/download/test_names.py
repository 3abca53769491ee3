"""A name says where a file lies, and never leads anywhere else."""

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import formats
from store_client import Damaged, Misused
from store_client.names import LocalPaths, local_name, name_fault, safe_path

pytestmark = pytest.mark.spec("DWN-13")

BAD = ["", "/a", "~/a", "a\\b", "a\nb", "..", "a/../b", "./a", "a//b", "a/", "a\x00", "\ud800"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    assert name_fault(name) is not None
    with pytest.raises(Damaged):
        safe_path(tmp_path, name)


@given(st.text(max_size=40))
def test_names_have_the_faults_that_the_store_finds(name: str) -> None:
    assert (name_fault(name) is None) == (formats.find_name_fault(name) is None)


@given(st.text(alphabet="ab./\\~:*% CON1é\x01", max_size=12), st.booleans())
def test_names_never_leave_folder(name: str, windows: bool) -> None:
    root = Path("/some/where")
    if name_fault(name) is not None:
        return
    path = safe_path(root, name, windows=windows)
    assert root in path.parents
    assert ".." not in path.parts


@given(st.lists(st.text(alphabet="aA.: %3N*/", min_size=1, max_size=6), min_size=2, max_size=6))
def test_on_windows_no_two_names_are_spelled_the_same(names: list[str]) -> None:
    good = {name for name in names if name_fault(name) is None}
    assert len({local_name(name, windows=True) for name in good}) == len(good)


@given(st.text(alphabet='aA.: %3<>"|?*NULCOM1$', min_size=1, max_size=8))
def test_windows_names_are_valid(name: str) -> None:
    if name_fault(name) is not None:
        return
    for part in local_name(name, windows=True).split("/"):
        path = PureWindowsPath(part)
        assert not path.is_reserved()
        assert path.name == part
        assert not path.drive
        assert part[-1] not in ". "


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("reads/a.txt", "reads/a.txt"),
        ("a:b", "a%3Ab"),
        ("a%3Ab", "a%253Ab"),
        ("50%", "50%"),
        ("dot.", "dot%2E"),
        ("con", "%63on"),
        ("aux.txt/b", "%61ux.txt/b"),
    ],
)
def test_windows_spells_some_names_otherwise(name: str, spelled: str) -> None:
    assert local_name(name, windows=True) == spelled
    assert local_name(name, windows=False) == name


def test_a_link_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "reads").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Misused, match="symbolic link"):
        safe_path(tmp_path / "root", "reads/a.txt")
    with pytest.raises(Misused, match="symbolic link"):
        safe_path(tmp_path / "root", "reads")


def test_names_differing_in_case_get_separate_paths(tmp_path: Path) -> None:
    places = LocalPaths(tmp_path, insensitive=True, windows=False)
    names = ["README", "readme", "ReadMe", "a/b", "A/B", "x", "X/y"]
    found = [places.path(name) for name in names]
    assert found[0] == tmp_path / "README"
    keys = {str(path).casefold() for path in found}
    assert len(keys) == len(names)
    folders = {str(parent).casefold() for path in found for parent in path.parents}
    assert not keys & folders
    assert [places.path(name) for name in names] == found


def test_keeps_names_on_case_sensitive_systems(tmp_path: Path) -> None:
    places = LocalPaths(tmp_path, insensitive=False)
    assert places.path("README").name == "README"
    assert PurePosixPath(places.path("readme")).name == "readme"


@pytest.mark.spec("DWN-66")
def test_names_that_differ_in_how_marks_are_written_get_places_of_their_own(tmp_path: Path) -> None:
    places = LocalPaths(tmp_path, insensitive=True, windows=False)
    composed, apart = places.path("caf\u00e9.txt"), places.path("cafe\u0301.txt")
    assert composed == tmp_path / "caf\u00e9.txt"
    assert apart.name.startswith("cafe\u0301~")
