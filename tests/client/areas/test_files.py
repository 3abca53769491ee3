import hashlib
from dataclasses import asdict
from itertools import count
from pathlib import Path
from threading import Event

import httpx
import pytest

from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import Conflict, Damaged, NotFound, Unreachable
from store_client.transfer import api
from store_client.transfer.engine import Stopped
from store_client.transfer.parts import FileChanged
from tests.client.areas.builders import UUIDS, Heard, noise, send_path, wrote
from tests.client.areas.network_faults import Meddling, flipped, through


def is_file(request: httpx.Request) -> bool:
    return request.method == "PUT" and "/files/" in request.url.path


@pytest.mark.spec("ARC-10")
@pytest.mark.parametrize("size", [0, 1, 1_000_000, 5_000_001])
def test_a_file_arrives_whole_and_is_listed_with_its_checksums(
    client: Client, area: str, tmp_path: Path, size: int
) -> None:
    data = noise(size)
    path, heard = wrote(tmp_path / "a", data), Heard()
    name = "Gänge 100%/#1? a+b.txt"
    sent = send_path(client, area, path, name, "text/plain", size=size, tell=heard)
    assert sent.checksums.sha256 == hashlib.sha256(data).hexdigest()
    assert (sent.size, heard.done) == (size, size)
    (found,) = api.list_area_files(client, area)
    assert (found["name"], found["url"], found["size"]) == (name, sent.url, size)
    assert (found["content_type"], found["status"]) == ("text/plain", "CHECKSUMMED")
    assert found["checksums"] == asdict(sent.checksums)


@pytest.mark.spec("ARC-10")
def test_resends_damaged_file_and_corrects_progress(
    config: Configuration, area: str, tmp_path: Path
) -> None:
    numbers = count()

    def meddle(request: httpx.Request) -> httpx.Request:
        return flipped(request) if is_file(request) and next(numbers) < 2 else request

    data, heard = noise(3_000_000), Heard()
    path = wrote(tmp_path / "a", data)
    network = Meddling(meddle)
    with through(config, network) as client:
        sent = send_path(client, area, path, "a", "text/plain", size=len(data), tell=heard)
        (found,) = api.list_area_files(client, area)
    assert found["checksums"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert found["checksums"] == asdict(sent.checksums)
    assert heard.done == len(data)
    assert sum(asked.startswith("PUT") for asked in network.asked) == 3


@pytest.mark.spec("ARC-10")
def test_a_file_that_always_arrives_damaged_is_an_error(
    config: Configuration, area: str, tmp_path: Path
) -> None:
    path, heard = wrote(tmp_path / "a", b"content"), Heard()
    network = Meddling(lambda request: flipped(request) if is_file(request) else request)
    with through(config, network) as client, pytest.raises(Damaged, match="a arrived damaged"):
        send_path(client, area, path, "a", "text/plain", size=7, tell=heard)
    assert heard.done == 0


@pytest.mark.spec("ARC-10")
def test_survives_one_broken_connection_but_not_every(
    config: Configuration, area: str, tmp_path: Path
) -> None:
    numbers = count()
    path, heard = wrote(tmp_path / "a", b"content"), Heard()
    once = Meddling(lambda request: None if is_file(request) and next(numbers) < 2 else request)
    with through(config, once) as client:
        assert send_path(client, area, path, "a", "text/plain", size=7, tell=heard).size == 7
    assert heard.done == 7
    always = Meddling(lambda request: None if is_file(request) else request)
    with through(config, always) as client, pytest.raises(Unreachable):
        send_path(client, area, path, "a", "text/plain", size=7)


@pytest.mark.spec("ARC-10")
def test_a_file_is_sent_again_when_the_answer_breaks_off(
    config: Configuration, area: str, tmp_path: Path
) -> None:
    numbers = count()
    path, heard = wrote(tmp_path / "a", b"content"), Heard()
    network = Meddling(lambda r: r, cuts=lambda r: is_file(r) and next(numbers) == 0)
    with through(config, network) as client:
        assert send_path(client, area, path, "a", "text/plain", size=7, tell=heard).size == 7
    assert sum(asked.startswith("PUT") for asked in network.asked) == 2
    assert heard.done == 7


@pytest.mark.spec("ARC-10")
@pytest.mark.parametrize("now", [b"shorter", b"a lot longer than before"])
def test_a_file_that_changes_under_way_is_not_sent_as_something_else(
    client: Client, area: str, tmp_path: Path, now: bytes
) -> None:
    path = wrote(tmp_path / "a", now)
    with pytest.raises(FileChanged):
        send_path(client, area, path, "a", "text/plain", size=12)
    assert list(api.list_area_files(client, area)) == []


@pytest.mark.spec("ARC-08")
def test_reports_refusal_of_store(client: Client, area: str, tmp_path: Path) -> None:
    path = wrote(tmp_path / "a", b"a")
    with pytest.raises(NotFound):
        send_path(client, UUIDS[0], path, "a", "text/plain", size=1)
    client.session.request("PATCH", api.area_path(area), json={"state": "LOCKED"})
    with pytest.raises(Conflict) as refused:
        send_path(client, area, path, "a", "text/plain", size=1)
    assert refused.value.code == "area_locked"


@pytest.mark.spec("ARC-14")
def test_stops_on_request(client: Client, area: str, tmp_path: Path) -> None:
    stop, heard = Event(), Heard()
    stop.set()
    path = wrote(tmp_path / "a", b"content")
    with pytest.raises(Stopped):
        send_path(client, area, path, "a", "text/plain", size=7, tell=heard, stop=stop)
    assert heard.done == 0
