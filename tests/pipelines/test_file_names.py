"""File names of a bundle, checked singly and together."""

import pytest

from pipelines.formats import check_file_names, find_name_fault
from storage.errors import Invalid

PLAIN = ["reads.fastq.gz", "lane_1/reads-2.bam", "_a/B+c=d/e.txt"]
GOOD = [*PLAIN, ".hidden/file", "two words", "größe.txt", "a" * 4096, "a:b/c~"]
BAD = [
    "",
    "/a",
    "a\\b",
    "a\nb",
    "a\x7fb",
    "a//b",
    "a/",
    ".",
    "..",
    "./a",
    "a/..",
    "a/../b",
    "~/a",
    "a\x00b",
    "a\x85b",
    "a\u2028b",
    "é" * 2049,
    "a" * 4097,
]


@pytest.mark.spec("BUN-33")
@pytest.mark.parametrize("name", GOOD)
def test_accepts_valid_names_alone_and_together(name: str) -> None:
    assert find_name_fault(name) is None
    check_file_names(["other", name])


@pytest.mark.spec("BUN-33")
@pytest.mark.parametrize("name", BAD)
def test_finds_invalid_name_alone_and_among_others(name: str) -> None:
    assert find_name_fault(name) is not None
    with pytest.raises(Invalid) as caught:
        check_file_names([*PLAIN, name])
    assert list(caught.value.errors) == [f"/files/{len(PLAIN)}/name"]


@pytest.mark.spec("BUN-34")
@pytest.mark.parametrize("twins", [["a", "a"], ["é", "e\u0301"]])
def test_the_same_name_twice_is_refused_however_it_is_composed(twins: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        check_file_names(["b", *twins])
    assert caught.value.code == "duplicate_filename"
    assert list(caught.value.errors) == ["/files/2/name"]


@pytest.mark.spec("BUN-34")
def test_names_differing_in_case_are_different() -> None:
    check_file_names(["a", "A", "ﬁ", "fi", "É", "é"])


@pytest.mark.spec("BUN-34")
def test_a_file_cannot_have_the_name_of_a_folder_near_or_far() -> None:
    check_file_names(["a-b", "a.b/c", "ab/c/d", "ab/c.d"])
    with pytest.raises(Invalid) as caught:
        check_file_names(["a/b/c/d", "a-b", "a/b", "a.b", "a/b.c"])
    assert list(caught.value.errors) == ["/files/2/name"]


@pytest.mark.spec("BUN-34")
@pytest.mark.parametrize(
    "names",
    [["é/b", "e\u0301"], ["e\u0301/b", "é"], ["a/é/c", "a/e\u0301"], ["é/e\u0301/c", "é/é"]],
)
def test_a_folder_is_found_however_its_name_is_composed(names: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        check_file_names(["a.b", *names])
    assert caught.value.code == "duplicate_filename"
    assert list(caught.value.errors) == ["/files/2/name"]


@pytest.mark.spec("BUN-34")
def test_files_in_one_folder_are_accepted_in_any_unicode_form() -> None:
    check_file_names(["é/a", "e\u0301/b", "e\u0301.txt", "éa"])
