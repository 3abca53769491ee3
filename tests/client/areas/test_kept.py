from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from store_client.areas import kept
from store_client.configuration import Configuration
from store_client.errors import Misused
from store_client.versions import create_version
from tests.client.areas.builders import UUIDS

FIRST, SECOND, THIRD = UUIDS


@pytest.fixture
def config(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path, tmp_path / "cache", "https://store.example")


def select(config: Configuration, uuid: str) -> None:
    uri = f"https://store.example/v1/area/{uuid}/"
    kept.select(config, uuid, uri=uri, now=create_version())


def test_the_area_that_was_selected_last_is_meant_and_all_are_known(config: Configuration) -> None:
    for uuid in UUIDS:
        select(config, uuid)
    select(config, FIRST)
    assert kept.selected(config).uuid == FIRST
    assert [area.uuid for area in kept.known(config)] == list(UUIDS)
    assert [area.alias for area in kept.known(config)] == ["3fa91", "3fa92", "7777"]
    assert kept.find(config, "77").uuid == THIRD
    assert kept.chosen(config, None).uuid == FIRST
    assert kept.chosen(config, "3fa92").uuid == SECOND


def test_a_forgotten_area_is_not_known_and_no_longer_selected(config: Configuration) -> None:
    select(config, FIRST)
    select(config, SECOND)
    kept.forget(config, FIRST)
    assert kept.selected(config).uuid == SECOND
    kept.forget(config, SECOND)
    assert kept.known(config) == ()
    with pytest.raises(Misused, match="no upload area is selected"):
        kept.selected(config)
    with pytest.raises(Misused, match="is not known"):
        kept.forget(config, SECOND)


def test_a_uri_as_the_store_gave_it_is_known_again_wherever_it_leads(
    config: Configuration,
) -> None:
    kept.select(config, FIRST, uri="https://public.example/v1/area/x/", now=create_version())
    assert kept.find(config, "https://public.example/v1/area/x").uuid == FIRST


def test_areas_of_two_stores_do_not_mix(config: Configuration) -> None:
    other = Configuration(config.home, config.cache, "https://other.example")
    select(config, FIRST)
    assert kept.known(other) == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"areas": {"x": 1}}', b'{"areas": []}'])
def test_a_damaged_file_counts_as_none_and_is_replaced(
    config: Configuration, content: bytes
) -> None:
    config.areas.parent.mkdir(parents=True)
    config.areas.write_bytes(content)
    assert kept.known(config) == ()
    select(config, FIRST)
    assert kept.selected(config).uuid == FIRST


def test_commands_at_once_lose_no_area(config: Configuration) -> None:
    uuids = [str(uuid4()) for _ in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda uuid: select(config, uuid), uuids))
    assert sorted(area.uuid for area in kept.known(config)) == sorted(uuids)
