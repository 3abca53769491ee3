"""The project's own samples."""

from ops.demo import samples
from ops.demo.questions import questions

BUNDLES = samples.bundles()


def test_there_are_twenty_bundles_of_several_organisms_and_schema_versions() -> None:
    projects = [bundle.metadata()["project_json"][0] for bundle in BUNDLES]
    assert len(BUNDLES) == 20
    assert len({project["organism"] for project in projects}) >= 5
    assert len({project["schema_version"] for project in projects}) >= 3


def test_one_file_is_large_one_is_empty_and_many_are_small() -> None:
    sizes = sorted(file.size for bundle in BUNDLES for file in bundle.files)
    assert sizes[0] == 0
    assert sizes[-1] == 200 * 1_048_576
    assert sizes[-2] < 100_000
    assert len(sizes) > 100


def test_every_file_has_the_bytes_that_it_announces_each_time() -> None:
    for file in (
        file for bundle in samples.bundles(large_bytes=3_000_000) for file in bundle.files
    ):
        first = b"".join(file.blocks())
        assert len(first) == file.size
        assert b"".join(file.blocks()) == first


def test_labels_and_uuids_name_one_bundle_each() -> None:
    assert len({bundle.uuid for bundle in BUNDLES}) == len(BUNDLES)


def test_numbered_metadata_files_share_a_key() -> None:
    donors = max(len(bundle.metadata()["sample_json"]) for bundle in BUNDLES)
    assert donors == 3


def test_the_questions_split_the_samples() -> None:
    first, second = questions(BUNDLES)
    assert first.fact.member != second.fact.member
    assert 0 < len(first.labels) < len(BUNDLES)
    assert 0 < len(second.labels) < len(BUNDLES)
