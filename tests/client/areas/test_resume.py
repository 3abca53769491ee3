import os
from collections import Counter
from dataclasses import asdict
from itertools import count
from pathlib import Path

import httpx
import pytest

from store_client import Client, Unreachable
from store_client.areas.upload import LARGE
from store_client.checksums import MB, hash_bytes
from store_client.configuration import Configuration
from store_client.transfer import api
from tests.client.areas.builders import Heard, noise, send_path, wrote
from tests.client.areas.network_faults import Meddle, Meddling, flipped, through
from tests.waiting import until

SIZE = LARGE + 3 * MB + 17
NAME = "deep/er/a b.bin"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    block = noise(MB)
    path = tmp_path_factory.mktemp("large") / "a.bin"
    with path.open("wb") as file:
        for number in range(SIZE // MB):
            file.write(bytes([number]) + block[1:])
        file.write(block[: SIZE % MB])
    return path


def part_of(request: httpx.Request) -> str:
    is_part = request.method == "PUT" and "/uploads/" in request.url.path
    return request.url.params["part"] if is_part else ""


def parts_sent(network: Meddling) -> Counter[str]:
    """How often which part came through."""
    urls = [httpx.URL(asked.split()[1]) for asked in network.asked if asked.startswith("PUT")]
    return Counter(url.params.get("part", "whole") for url in urls)


def sent_by(config: Configuration, area: str, path: Path, *, meddle: Meddle) -> Counter[str]:
    """Send it, and say what had to be sent."""
    network, heard, size = Meddling(meddle), Heard(), path.stat().st_size
    with through(config, network) as client:
        sent = send_path(client, area, path, NAME, "text/plain", size=size, tell=heard)
        (found,) = api.list_area_files(client, area)
    assert (found["name"], found["url"], found["size"]) == (NAME, sent.url, size)
    assert (found["status"], found["content_type"]) == ("CHECKSUMMED", "text/plain")
    assert found["checksums"] == asdict(sent.checksums)
    assert sent.checksums == hash_bytes(path.read_bytes())
    assert heard.done == size
    assert list(config.uploads.iterdir()) == []
    return parts_sent(network)


def loses_the_second(
    config: Configuration, area: str, path: Path, *, ids: list[str] | None = None
) -> Counter[str]:
    """Send it while the second part never arrives, which shows once the first has."""
    before: list[str] = []

    def meddle(request: httpx.Request) -> httpx.Request | None:
        if part_of(request) != "2":
            return request
        before.append(request.url.params["upload_id"])
        until(lambda: arrived(config, area, before[0]))
        return None

    lost = breaks_off(config, area, path, meddle=meddle)
    if ids is not None:
        ids += before
    return lost


def arrived(config: Configuration, area: str, upload_id: str) -> list[int]:
    """Which parts the store has."""
    with Client(config=config, token="admin") as client:
        path = api.file_path(area, NAME, under="uploads")
        answer = client.session.request("GET", path, params={"upload_id": upload_id})
        found: list[int] = answer.json()["parts"]
        return found


def breaks_off(config: Configuration, area: str, path: Path, *, meddle: Meddle) -> Counter[str]:
    """Send it in vain, and say what came through."""
    network, heard = Meddling(meddle), Heard()
    with through(config, network) as client, pytest.raises(Unreachable):
        send_path(client, area, path, NAME, "text/plain", size=path.stat().st_size, tell=heard)
    assert heard.done == 0
    return parts_sent(network)


@pytest.mark.spec("ARC-11")
def test_resends_only_damaged_part(config: Configuration, area: str, large: Path) -> None:
    numbers = count()

    def meddle(request: httpx.Request) -> httpx.Request:
        return flipped(request) if part_of(request) == "2" and next(numbers) == 0 else request

    assert sent_by(config, area, large, meddle=meddle) == {"1": 1, "2": 2}


@pytest.mark.spec("ARC-11")
def test_next_run_sends_missing_parts_only(config: Configuration, area: str, large: Path) -> None:
    assert loses_the_second(config, area, large) == {"1": 1}
    assert sent_by(config, area, large, meddle=lambda request: request) == {"2": 1}


@pytest.mark.spec("ARC-11")
def test_a_file_that_arrived_is_not_sent_again_to_learn_how_it_was_found(
    config: Configuration, area: str, large: Path
) -> None:
    lost = breaks_off(
        config, area, large, meddle=lambda r: None if r.url.path.endswith("/checksum") else r
    )
    assert lost == {"1": 1, "2": 1}
    assert sent_by(config, area, large, meddle=lambda request: request) == {}


@pytest.mark.spec("ARC-11")
def test_changed_file_starts_again(
    config: Configuration, area: str, large: Path, tmp_path: Path
) -> None:
    path = wrote(tmp_path / "a", large.read_bytes())
    loses_the_second(config, area, path)
    with path.open("r+b") as file:
        file.write(b"another")
    os.utime(path, ns=(0, 0))
    found = sent_by(config, area, path, meddle=lambda request: request)
    assert found == {"1": 1, "2": 1}


@pytest.mark.spec("ARC-11")
def test_forgotten_upload_starts_again(
    config: Configuration, area: str, large: Path, client: Client
) -> None:
    ids: list[str] = []
    loses_the_second(config, area, large, ids=ids)
    path = api.file_path(area, NAME, under="uploads")
    client.session.request("DELETE", path, params={"upload_id": ids[0]})
    found = sent_by(config, area, large, meddle=lambda request: request)
    assert found == {"1": 1, "2": 1}
