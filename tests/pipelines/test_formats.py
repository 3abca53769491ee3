"""Parsing of uuids and versions."""

import pytest

from pipelines.formats import (
    MAX_VERSION_US,
    later_versions,
    parse_fqids,
    parse_uuid,
    parse_version,
    version_from_us,
    version_to_us,
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


@pytest.mark.spec("FMT-01")
def test_normalizes_valid_uuids_and_versions() -> None:
    uuids = [new_uuid(), UUID]
    assert parse_fqids(uuids, [version(1), version(2)]) == [
        FQID(uuids[0], version(1)),
        FQID(UUID.lower(), version(2)),
    ]
    assert parse_fqids([], []) == []
    assert (parse_uuid(UUID), parse_version(version(1))) == (UUID.lower(), version(1))


@pytest.mark.spec("FMT-01")
@pytest.mark.parametrize("text", BAD_UUIDS)
def test_finds_invalid_uuid_alone_and_among_others(text: str) -> None:
    with pytest.raises(Invalid):
        parse_uuid(text)
    assert parse_fqids([UUID, text], [version(1), version(2)]) is None


@pytest.mark.spec("FMT-02", "ERR-06")
@pytest.mark.parametrize("text", BAD_VERSIONS)
def test_finds_invalid_version_alone_and_among_others(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_version(text)
    assert caught.value.code == "illegal_version"
    assert parse_fqids([UUID, UUID], [version(1), text]) is None


@pytest.mark.spec("FMT-03")
def test_the_versions_of_moments_are_in_their_order() -> None:
    assert version_from_us(1_767_225_600_000_001) == "2026-01-01T000000.000001Z"
    assert version_from_us(999_999) < version_from_us(1_000_000)


@pytest.mark.spec("BUN-37")
def test_names_for_a_later_version_are_few_and_reach_to_the_end_of_time() -> None:
    start = version_to_us(version(1))
    offered = [version_to_us(one) for one in later_versions(version(1), now_us=start - 5)]
    assert offered[:4] == [start + 1, start + 2, start + 4, start + 8]
    assert len(offered) < 64
    assert next(later_versions(version(1), now_us=start + 9)) == version_from_us(start + 9)
    assert list(later_versions(version_from_us(MAX_VERSION_US), now_us=start)) == []
