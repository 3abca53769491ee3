import time
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from store_client.areas import parts
from store_client.areas.bodies import Body
from store_client.areas.parts import Part, carry
from store_client.areas.reading import Changed, Outgoing, Stopped
from store_client.areas.sent import Sending
from store_client.checksums import BLOCK, compute
from store_client.client import Client
from store_client.errors import Damaged
from tests.client.areas.builders import Heard, noise, outgoing, wrote

NOBODY = cast(Client, SimpleNamespace())


class Place:
    """Where parts arrive."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self._lock = Lock()

    def take(self, part: Part, body: Body) -> None:
        data = b"".join(body.blocks())
        assert len(data) == part.size
        with self._lock:
            self.parts[part.number] = data

    def whole(self) -> bytes:
        return b"".join(self.parts[number] for number in sorted(self.parts))


def carried(file: Outgoing, take: Any, heard: Heard, **how: Any) -> Any:
    how.setdefault("stored", ())
    return carry(Sending(NOBODY, "area", tell=heard), file, take, **how)


@pytest.mark.parametrize("part_size", [BLOCK, 3 * BLOCK, 1_500_000, 9_999_999, 10_000_000])
def test_every_part_arrives_and_the_checksums_are_of_the_whole(
    tmp_path: Path, part_size: int
) -> None:
    data = noise(10_000_000)
    place, heard = Place(), Heard()
    file = outgoing(wrote(tmp_path / "a", data))
    sums = carried(file, place.take, heard, part_size=part_size)
    assert place.whole() == data
    assert sorted(place.parts) == list(range(1, parts.count(len(data), part_size) + 1))
    assert sums == compute([data], len(data))
    assert heard.done == len(data)


def test_what_is_there_already_is_read_and_not_sent(tmp_path: Path) -> None:
    data = noise(10 * BLOCK)
    place, heard = Place(), Heard()
    file = outgoing(wrote(tmp_path / "a", data))
    sums = carried(file, place.take, heard, part_size=3 * BLOCK, stored={1, 3})
    assert sorted(place.parts) == [2, 4]
    assert sums == compute([data], len(data))
    assert heard.done == len(data)


def test_an_error_of_one_part_ends_it(tmp_path: Path) -> None:
    place, heard = Place(), Heard()
    file = outgoing(wrote(tmp_path / "a", noise(20 * BLOCK)))

    def take(part: Part, body: Body) -> None:
        if part.number == 3:
            raise Damaged("the third")
        place.take(part, body)

    before = parts.BUFFERS._value
    with pytest.raises(Damaged, match="the third"):
        carried(file, take, heard, part_size=BLOCK)
    assert len(place.parts) < 20
    assert parts.BUFFERS._value == before


def test_it_stops_soon_when_it_is_asked_to_while_parts_are_slow(tmp_path: Path) -> None:
    heard = Heard()
    sending = Sending(NOBODY, "area", tell=heard)
    file = outgoing(wrote(tmp_path / "a", noise(20 * BLOCK)))

    def take(part: Part, body: Body) -> None:
        for _ in body.blocks():
            sending.stop.set()
            time.sleep(0.01)

    before, began = parts.BUFFERS._value, time.monotonic()
    with pytest.raises(Stopped):
        carry(sending, file, take, part_size=5 * BLOCK, stored=())
    assert time.monotonic() - began < 5
    assert parts.BUFFERS._value == before


def test_a_file_that_became_shorter_or_longer_is_told(tmp_path: Path) -> None:
    path = wrote(tmp_path / "a", noise(4 * BLOCK))
    before = parts.BUFFERS._value
    for size in (3 * BLOCK, 5 * BLOCK, 4 * BLOCK + 1):
        file = Outgoing(path, "a", "text/plain", size)
        with pytest.raises(Changed):
            carried(file, Place().take, Heard(), part_size=BLOCK)
    assert parts.BUFFERS._value == before


def test_no_more_parts_are_in_memory_than_are_allowed(tmp_path: Path) -> None:
    lock = Lock()
    most = now = 0
    file = outgoing(wrote(tmp_path / "a", noise(30 * BLOCK)))

    def take(part: Part, body: Body) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1

    carried(file, take, Heard(), part_size=BLOCK)
    assert 1 < most <= parts.AT_ONCE
