"""Whether a file lies there already, when the store is not done with it yet."""

from dataclasses import replace
from pathlib import Path

import pytest

from store_client.areas.upload import AreaTransfer, find_unchanged, list_by_name
from store_client.client import Client
from store_client.transfer import api
from tests.client.areas.builders import outgoing, wrote
from tests.client.conftest import Served


def brought(store: Served, area: str, name: str, data: bytes) -> None:
    """Into the bucket, past the store."""
    key = f"areas/{area}/{name}"
    store.stores.areas.put(key, data, content_type="text/plain", metadata={}, replace=True)


@pytest.mark.spec("ARC-07")
@pytest.mark.parametrize(("here", "same"), [(b"content", True), (b"CONTENT", False)])
def test_waits_for_files_in_validation(
    client: Client, area: str, store: Served, tmp_path: Path, here: bytes, same: bool
) -> None:
    brought(store, area, "a.bin", b"content")
    api.register_file(client, area, "a.bin", said={})
    sending = AreaTransfer(client, area)
    (found,) = list_by_name(sending).values()
    under_way = {"a.bin": {**found, "status": "CHECKSUMMING", "checksums": None}}
    sent = find_unchanged(sending, outgoing(wrote(tmp_path / "a.bin", here)), files=under_way)
    assert (sent is not None) is same


@pytest.mark.spec("ARC-07")
def test_resends_unreported_files(client: Client, area: str, store: Served, tmp_path: Path) -> None:
    brought(store, area, "a.bin", b"content")
    sending = AreaTransfer(client, area)
    file = outgoing(wrote(tmp_path / "a.bin", b"content"))
    assert find_unchanged(sending, file, files=list_by_name(sending)) is None


@pytest.mark.spec("ARC-07")
def test_a_file_of_another_size_is_not_even_read(
    client: Client, area: str, store: Served, tmp_path: Path
) -> None:
    brought(store, area, "a.bin", b"content")
    api.register_file(client, area, "a.bin", said={})
    sending = AreaTransfer(client, area)
    file = replace(outgoing(wrote(tmp_path / "a", b"x")), path=tmp_path / "absent")
    assert find_unchanged(sending, file, files=list_by_name(sending)) is None
