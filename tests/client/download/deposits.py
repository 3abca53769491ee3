"""Bundles and collections of a served store, made by the client's own calls."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from store_client.client import Client

VERSION = "2026-01-31T235959.000000Z"
AREA = str(UUID(int=0xA0EA))


def uuid_of(number: int) -> str:
    return str(UUID(int=0xD000 + number))


@dataclass
class Depositor:
    """Somebody who may ingest."""

    client: Client
    made: int = 0
    stored: dict[str, bytes] = field(default_factory=dict)

    def file(
        self, name: str, data: bytes, *, indexed: bool = False, soon: bool = False
    ) -> dict[str, Any]:
        """A file that is, or soon will be, whole in the store, as a bundle's entry."""
        self.made += 1
        uuid, kind = uuid_of(0x100 + self.made), "application/json" if indexed else "text/plain"
        self.client.session.request("POST", f"/v1/area/{AREA}")
        answer = self.client.session.request(
            "PUT",
            f"/v1/area/{AREA}/files/f{self.made}",
            content=data,
            headers={"Content-Type": kind},
        )
        self.client.call(
            "put_file",
            uuid=uuid,
            version=VERSION,
            replica="aws",
            source_url=answer.json()["url"],
            creator_uid=7,
            # A bundle waits for its files.
            headers={"Prefer": "respond-async"} if soon else {},
        )
        return {"uuid": uuid, "version": VERSION, "name": name, "indexed": indexed}

    def bundle(self, number: int, contents: dict[str, bytes]) -> str:
        """A bundle of these; what ends with .json is metadata."""
        files = [
            self.file(name, data, indexed=name.endswith(".json"), soon=True)
            for name, data in contents.items()
        ]
        return self.bundle_of(number, files)

    def bundle_of(self, number: int, files: list[dict[str, Any]]) -> str:
        uuid = uuid_of(number)
        self.client.call(
            "put_bundle", uuid=uuid, version=VERSION, replica="aws", creator_uid=7, files=files
        )
        return uuid

    def collection(self, number: int, contents: list[dict[str, Any]]) -> str:
        uuid = uuid_of(number)
        self.client.call(
            "put_collection",
            uuid=uuid,
            version=VERSION,
            replica="aws",
            name=f"collection {number}",
            description="",
            details={},
            contents=contents,
        )
        return uuid


def link(kind: str, uuid: str, **more: str) -> dict[str, str]:
    """An item of a collection."""
    return {"type": kind, "uuid": uuid, "version": VERSION, **more}
