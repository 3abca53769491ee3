"""Builders of common API requests."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from flask.testing import FlaskClient

from pipelines.mirrors import FailedEvent, MirrorPlan, MirrorState, state_key
from storage.catalog import store_state
from storage.stores import Stores
from tests.builders import new_uuid

AREA = str(UUID(int=1))
VERSION = "2026-01-31T235959.000000Z"
INGEST = {"Authorization": "Bearer ingest"}
READER = {"Authorization": "Bearer reader"}
ADMIN = {"Authorization": "Bearer admin"}


def uuid_of(number: int) -> str:
    """A uuid that is easy to tell from others."""
    return str(UUID(int=number + 0x1000))


@dataclass
class Depositor:
    """Somebody with ingest rights, at one store."""

    client: FlaskClient
    drain: Callable[[], int]

    def stage(self, data: bytes, name: str = "a.txt", content_type: str = "text/plain") -> str:
        """Bytes in an upload area, as a source URL."""
        self.client.post(f"/v1/area/{AREA}", headers=INGEST)
        answer = self.client.put(
            f"/v1/area/{AREA}/files/{name}", data=data, content_type=content_type, headers=INGEST
        )
        assert answer.status_code == 201, answer.text
        return str((answer.json or {})["url"])

    def put_file(self, uuid: str, data: bytes = b"content", **more: Any) -> Any:
        """The answer to a new file's PUT, nothing waited for."""
        version, source = more.get("version", VERSION), more.get("source") or self.stage(data)
        return self.client.put(
            f"/v1/files/{uuid}?version={version}",
            json={"source_url": source, "creator_uid": 7},
            headers=INGEST,
        )

    def put_files(self, sources: Mapping[str, str]) -> Any:
        """The answer to one PUT of files by their uuids."""
        files = [
            {"uuid": uuid, "version": VERSION, "source_url": source, "creator_uid": 7}
            for uuid, source in sources.items()
        ]
        return self.client.put("/v1/files?replica=aws", json={"files": files}, headers=INGEST)

    def file(self, number: int, data: bytes = b"content") -> dict[str, Any]:
        """A verified file, as a bundle's entry."""
        (entry,) = self.files([number], data)
        return entry

    def files(self, numbers: Iterable[int], data: bytes = b"content") -> list[dict[str, Any]]:
        """Verified files, as a bundle's entries."""
        entries = []
        for number in numbers:
            uuid, source = uuid_of(number), self.stage(data, f"f{number}.txt")
            assert self.put_file(uuid, source=source).status_code in (200, 202)
            named = {"uuid": uuid, "version": VERSION, "name": f"f{number}.txt"}
            entries.append({**named, "indexed": False})
        self.drain()
        return entries

    def put_bundle(
        self, uuid: str, files: list[dict[str, Any]], *, version: str = VERSION, **more: Any
    ) -> Any:
        """The answer to a new bundle's PUT."""
        return self.client.put(
            f"/v1/bundles/{uuid}?version={version}&replica={more.get('replica', 'aws')}",
            json={"creator_uid": 7, "files": files},
            headers=INGEST | more.get("headers", {}),
        )

    def bundle(self, number: int, *, files: int = 1, version: str = VERSION) -> str:
        """A bundle in both replicas; its uuid."""
        entries = self.files(0x100 * number + place for place in range(files))
        uuid = uuid_of(number)
        assert self.put_bundle(uuid, entries, version=version).status_code == 201
        self.drain()
        return uuid


MIRRORED = "https://source.example.org"
"""The store that a mirror follows."""


def record_mirror(stores: Stores, *, success_us: int, complete_us: int, failed: int) -> None:
    """Record how far the mirror of a store is, with so many events that failed."""
    plan = MirrorPlan(MIRRORED, "aws", "ada@example.org")
    state = {plan.failed_key: MirrorState(success_us, complete_us)}
    event = FailedEvent(f"{new_uuid()}.{VERSION}", "CREATE", "wrong bytes")
    values = {state_key(MIRRORED): state, plan.failed_key: [event] * failed}
    with stores.catalog.write() as tx:
        for key, value in values.items():
            store_state.write_value(tx, key, msgspec.json.encode(value).decode())
