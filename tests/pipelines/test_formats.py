"""Spelling of uuids and versions, one by one and all at once."""

import pytest

from pipelines.formats import (
    LAST_US,
    fqids_of,
    later_versions,
    us_of,
    uuid_of,
    version_at,
    version_of,
)
from storage.errors import Invalid
from storage.model import FQID
from tests.builders import new_uuid, version

UUID = "4C8A9E3F-0d0c-4f0e-9d7b-6a3b3c0f5e11"
BAD_UUIDS = ["", UUID[:-1], UUID + "0", UUID.replace("-", ""), f"{UUID}\n{UUID}", f" {UUID}"]
BAD_VERSIONS = [
    "",
    "2026-01-01T000000.00000Z",
    "2026-02-30T000000.000000Z",
    "2026-01-01T240000.000000Z",
    "2026-01-01T006000.000000Z",
    f"{version(1)}\n{version(2)}",
]


def test_good_ones_come_back_in_normal_spelling() -> None:
    uuids = [new_uuid(), UUID]
    assert fqids_of(uuids, [version(1), version(2)]) == [
        FQID(uuids[0], version(1)),
        FQID(UUID.lower(), version(2)),
    ]
    assert fqids_of([], []) == []
    assert (uuid_of(UUID), version_of(version(1))) == (UUID.lower(), version(1))


@pytest.mark.parametrize("text", BAD_UUIDS)
def test_a_bad_uuid_is_found_alone_and_among_others(text: str) -> None:
    with pytest.raises(Invalid):
        uuid_of(text)
    assert fqids_of([UUID, text], [version(1), version(2)]) is None


@pytest.mark.parametrize("text", BAD_VERSIONS)
def test_a_bad_version_is_found_alone_and_among_others(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        version_of(text)
    assert caught.value.code == "illegal_version"
    assert fqids_of([UUID, UUID], [version(1), text]) is None


def test_the_versions_of_moments_are_in_their_order() -> None:
    assert version_at(1_767_225_600_000_001) == "2026-01-01T000000.000001Z"
    assert version_at(999_999) < version_at(1_000_000)


def test_names_for_a_later_version_are_few_and_reach_to_the_end_of_time() -> None:
    start = us_of(version(1))
    offered = [us_of(one) for one in later_versions(version(1), now_us=start - 5)]
    assert offered[:4] == [start + 1, start + 2, start + 4, start + 8]
    assert len(offered) < 64
    assert next(later_versions(version(1), now_us=start + 9)) == version_at(start + 9)
    assert list(later_versions(version_at(LAST_US), now_us=start)) == []
