"""Content types, and what is metadata."""

import pytest

from store_client.content_types import DEFAULT_TYPE, guess_content_type, is_metadata


@pytest.mark.spec("UPL-06")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/sample.json", "application/json"),
        ("SAMPLE.JSON", "application/json"),
        ("sample.json.gz", "application/gzip"),
        ("reads/R1.fastq.gz", "application/gzip"),
        ("matrix.mtx.gz", "application/gzip"),
        ("R1.fastq", "text/plain"),
        ("aligned.bam", DEFAULT_TYPE),
        ("m.loom", "application/x-hdf5"),
        ("m.h5ad", "application/x-hdf5"),
        ("m.zarr", DEFAULT_TYPE),
        ("m.zarr/.zarray", DEFAULT_TYPE),
        ("a.csv", "text/csv"),
        ("a.tsv", "text/tab-separated-values"),
        ("a.txt", "text/plain"),
        ("a.tar.bz2", "application/x-bzip2"),
        ("a.pdf", "application/pdf"),
        ("a.unheard-of", DEFAULT_TYPE),
        ("README", DEFAULT_TYPE),
        (".json", DEFAULT_TYPE),
        ("folder.json/README", DEFAULT_TYPE),
        ("ends.with.", DEFAULT_TYPE),
    ],
)
def test_content_types_follow_the_last_ending(name: str, kind: str) -> None:
    assert guess_content_type(name) == kind


@pytest.mark.spec("UPL-06")
def test_metadata_type_is_json_for_any_name() -> None:
    assert guess_content_type("donor.meta", indexed=True) == "application/json"


@pytest.mark.spec("UPL-06")
def test_patterns_are_of_names_with_or_without_folders() -> None:
    assert is_metadata("a/b.json", ["*.json"])
    assert is_metadata("meta/b.txt", ["meta/*"])
    assert not is_metadata("other/b.txt", ["meta/*"])
    assert not is_metadata("a/b.JSON", ["*.json"])
    assert not is_metadata("a.json", [])
