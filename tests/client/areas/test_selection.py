from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from store_client.areas import selection
from store_client.configuration import Configuration
from store_client.errors import Misused
from store_client.identifiers import create_version
from tests.client.areas.builders import UUIDS

FIRST, SECOND, THIRD = UUIDS


@pytest.fixture
def config(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path, tmp_path / "cache", "https://store.example")


def select(config: Configuration, uuid: str) -> None:
    uri = f"https://store.example/v1/area/{uuid}/"
    selection.select_area(config, uuid, uri=uri, now=create_version())


@pytest.mark.spec("ARC-03")
def test_the_area_that_was_selected_last_is_meant_and_all_are_known(config: Configuration) -> None:
    for uuid in UUIDS:
        select(config, uuid)
    select(config, FIRST)
    assert selection.selected_area(config).uuid == FIRST
    assert [area.uuid for area in selection.list_known(config)] == list(UUIDS)
    assert [area.alias for area in selection.list_known(config)] == ["3fa91", "3fa92", "7777"]
    assert selection.find_area(config, "77").uuid == THIRD
    assert selection.choose_area(config, None).uuid == FIRST
    assert selection.choose_area(config, "3fa92").uuid == SECOND


@pytest.mark.spec("ARC-03")
def test_a_forgotten_area_is_not_known_and_no_longer_selected(config: Configuration) -> None:
    select(config, FIRST)
    select(config, SECOND)
    selection.forget_area(config, FIRST)
    assert selection.selected_area(config).uuid == SECOND
    selection.forget_area(config, SECOND)
    assert selection.list_known(config) == ()
    with pytest.raises(Misused, match="no upload area is selected"):
        selection.selected_area(config)
    with pytest.raises(Misused, match="is not known"):
        selection.forget_area(config, SECOND)


@pytest.mark.spec("ARC-01")
def test_recognizes_uri_of_area(
    config: Configuration,
) -> None:
    selection.select_area(
        config, FIRST, uri="https://public.example/v1/area/x/", now=create_version()
    )
    assert selection.find_area(config, "https://public.example/v1/area/x").uuid == FIRST


@pytest.mark.spec("ARC-03")
def test_areas_of_two_stores_do_not_mix(config: Configuration) -> None:
    other = Configuration(config.home, config.cache, "https://other.example")
    select(config, FIRST)
    assert selection.list_known(other) == ()


@pytest.mark.spec("ARC-04")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"areas": {"x": 1}}', b'{"areas": []}'])
def test_a_damaged_file_counts_as_none_and_is_replaced(
    config: Configuration, content: bytes
) -> None:
    config.areas.parent.mkdir(parents=True)
    config.areas.write_bytes(content)
    assert selection.list_known(config) == ()
    select(config, FIRST)
    assert selection.selected_area(config).uuid == FIRST


@pytest.mark.spec("ARC-04")
def test_commands_at_once_lose_no_area(config: Configuration) -> None:
    uuids = [str(uuid4()) for _ in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda uuid: select(config, uuid), uuids))
    assert sorted(area.uuid for area in selection.list_known(config)) == sorted(uuids)
