"""The live feed of a running store whose processes die."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx
import pytest

from ops.local_store import LocalStore, running_store
from tests.api.builders import AREA
from tests.builders import new_uuid, version
from tests.waiting import until

BUNDLES, GONE, KILLS = 40, 8, 9
SETTINGS = {
    "STORE_API_PROCESSES": "2",
    # Streams end, and readers come again, many times.
    "STORE_FEED_LIFE_S": "1.5",
    "STORE_JOURNAL_S": "0.3",
}
PREY = ("worker", "web")
TRANSIENT = (httpx.TransportError, httpx.HTTPStatusError)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    with running_store(tmp_path_factory.mktemp("store"), SETTINGS) as found:
        yield found


def client(stage: LocalStore, **more: Any) -> httpx.Client:
    return httpx.Client(base_url=f"{stage.api}/v1", trust_env=False, timeout=30, **more)


def insisting(http: httpx.Client, method: str, url: str, **more: Any) -> httpx.Response:
    """The answer, once whoever has to give it is back."""
    deadline = time.monotonic() + 90
    while True:
        with suppress(httpx.TransportError):
            answer = http.request(method, url, **more)
            if answer.status_code < 500 and answer.status_code != 409:
                return answer
        assert time.monotonic() < deadline, f"{method} {url}: no answer"
        time.sleep(0.1)


@dataclass
class Deposits:
    """Bundles of one file each, and some of them withdrawn."""

    stage: LocalStore
    written: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def make(self) -> None:
        """Write all of them."""
        with client(self.stage, headers=self._bearer) as http:
            entry = self._file(http)
            for number in range(BUNDLES):
                uuid, named = new_uuid(), {"version": version(number), "replica": "aws"}
                body = {"creator_uid": 1, "files": [entry]}
                put = insisting(http, "PUT", f"/bundles/{uuid}", params=named, json=body)
                assert put.status_code in (200, 201), put.text
                self.written.append(uuid)

    def withdraw(self) -> None:
        """What a replica never had has no event there, so all of them must have come."""
        with client(self.stage, headers=self._bearer) as http:
            for uuid in self.written[::5]:
                asked, body = {"replica": "gcp"}, {"reason": "withdrawn"}
                answer = insisting(http, "DELETE", f"/bundles/{uuid}", params=asked, json=body)
                assert answer.status_code == 200, answer.text
                self.gone.append(uuid)

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.stage.token}"}

    def _file(self, http: httpx.Client) -> dict[str, Any]:
        insisting(http, "POST", f"/area/{AREA}")
        staged = insisting(
            http,
            "PUT",
            f"/area/{AREA}/files/a.json",
            content=b'{"a": 1}',
            headers={"Content-Type": "application/json"},
        )
        uuid, named = new_uuid(), {"version": version(), "replica": "aws"}
        body = {"source_url": staged.json()["url"], "creator_uid": 1}
        put = insisting(http, "PUT", f"/files/{uuid}", params=named, json=body)
        assert put.status_code in (200, 201, 202), put.text
        return {"uuid": uuid, "version": named["version"], "name": "a.json", "indexed": True}


@dataclass
class Reader:
    """Follows the feed of a replica until it is told to stop; remembers its cursor only."""

    stage: LocalStore
    replica: str
    told: list[dict[str, Any]] = field(default_factory=list)
    cursor: str = ""
    turns: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def poll(self) -> None:
        """By requests that wait."""
        with client(self.stage, headers={"Prefer": "wait=2"}) as http:
            while not self.stop.is_set():
                asked = {"replica": self.replica, "after": self.cursor, "per_page": "7"}
                with self._again():
                    answer = http.get("/events/feed", params=asked).raise_for_status().json()
                    self.told += answer["events"]
                    self.cursor = answer["cursor"]

    def stream(self) -> None:
        """As browsers do: the last id is sent when a stream breaks off or ends."""
        with client(self.stage) as http:
            while not self.stop.is_set():
                asked = {"replica": self.replica, "after": ""}
                headers = {"Accept": "text/event-stream"}
                headers |= {"Last-Event-ID": self.cursor} if self.cursor else {}
                with (
                    self._again(),
                    http.stream("GET", "/events/feed", params=asked, headers=headers) as answer,
                ):
                    answer.raise_for_status()
                    self._read(answer)

    def _read(self, answer: httpx.Response) -> None:
        message: dict[str, str] = {}
        for line in answer.iter_lines():
            name, colon, value = line.partition(": ")
            if colon:
                message[name] = value
            elif not line and "id" in message:
                # What breaks off before the empty line was never told.
                self.cursor = message["id"]
                self.told += [json.loads(message["data"])] if "data" in message else []
                message = {}
            if self.stop.is_set():
                return

    def _again(self) -> "suppress":
        self.turns += 1
        if self.turns > 1:
            time.sleep(0.02)
        return suppress(*TRANSIENT)

    def read(self) -> set[str]:
        """Which events it was told of."""
        return {one["event_id"] for one in self.told}


def kill_some(stage: LocalStore, stop: threading.Event) -> list[str]:
    """Kill one process after the other, by its id, as the kernel would."""
    dice, killed = Random(4), []
    while len(killed) < KILLS and not stop.wait(0.4):
        name = PREY[len(killed) % len(PREY)]
        found = stage.read_processes()["processes"].get(name)
        if found is None:
            # It is being started again.
            stop.wait(dice.random() / 5)
            continue
        with suppress(ProcessLookupError):
            os.kill(found["pid"], signal.SIGKILL)
            killed.append(name)
    return killed


@pytest.mark.spec("EVT-14")
@pytest.mark.long
def test_readers_miss_nothing_and_see_nothing_twice_while_processes_die(stage: LocalStore) -> None:
    deposits = Deposits(stage)
    poll, stream = Reader(stage, "aws"), Reader(stage, "gcp")
    killed: list[str] = []
    stop = threading.Event()
    works = [
        threading.Thread(target=poll.poll),
        threading.Thread(target=stream.stream),
        threading.Thread(target=lambda: killed.extend(kill_some(stage, stop))),
    ]
    for work in works:
        work.start()
    try:
        deposits.make()
        until(lambda: min(len(one.read()) for one in (poll, stream)) >= BUNDLES, 120)
        deposits.withdraw()
        until(lambda: min(len(one.read()) for one in (poll, stream)) >= BUNDLES + GONE, 120)
    finally:
        for halt in (stop, poll.stop, stream.stop):
            halt.set()
        for work in works:
            work.join(30)
    assert set(killed) == set(PREY), "too few died to show anything"
    for reader in (poll, stream):
        assert len(reader.told) == len(reader.read()), "an event came twice"
        kinds = {kind: [] for kind in ("CREATE", "TOMBSTONE")}
        for one in reader.told:
            kinds[one["event_type"]].append(one["bundle_uuid"])
        assert sorted(kinds["CREATE"]) == sorted(deposits.written)
        assert sorted(kinds["TOMBSTONE"]) == sorted(deposits.gone)
        assert reader.turns > 3
        _check_journals(stage, reader)


def _check_journals(stage: LocalStore, reader: Reader) -> None:
    """What the feed told, journals list in the same order, with the documents in their bytes."""
    until(lambda: _listed(stage, reader.replica) == [one["event_id"] for one in reader.told], 60)
    with client(stage) as http:
        for stream in _streams(http, reader.replica):
            whole = http.get(stream["stream_url"]).content
            assert len(whole) == stream["size"]
            one = stream["events"][-1]
            last = one["offset"] + one["size"] - 1
            part = http.get(
                stream["stream_url"], headers={"Range": f"bytes={one['offset']}-{last}"}
            )
            assert part.content == whole[one["offset"] : last + 1]
            assert json.loads(part.content)["event_type"] == one["event_type"]


def _listed(stage: LocalStore, replica: str) -> list[str]:
    with client(stage) as http:
        return [one["event_id"] for stream in _streams(http, replica) for one in stream["events"]]


def _streams(http: httpx.Client, replica: str) -> list[dict[str, Any]]:
    """Every journal of a walk."""
    url, found = f"/events?replica={replica}&per_page=2", []
    while url:
        answer = insisting(http, "GET", url)
        found += answer.json()["event_streams"]
        url = answer.links.get("next", {}).get("url", "")
    return found
