"""A depositor that keeps many requests in flight, on one event loop."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession, TCPConnector

from bench.rows import version
from storage.model import FQID

VERSION = version(0)
DATA_BYTES = 20_000
PENDING_S = 0.25
"""Until a request is sent again that found its files not verified yet."""


@dataclass(frozen=True)
class Depositor:
    """A depositor with an upload area, at one store."""

    http: ClientSession
    area: str

    async def file(self, name: str, data: bytes, content_type: str, *, wait: bool = False) -> FQID:
        """Upload a file and have it taken in; `wait` until it is."""
        path = f"/v1/area/{self.area}/files/{name}"
        staged = await self._call("PUT", path, 201, data=data, content_type=content_type)
        fqid = FQID(str(uuid4()), VERSION)
        await self._call(
            "PUT",
            f"/v1/files/{fqid.uuid}?version={VERSION}&replica=aws",
            201 if wait else 202,
            data=json.dumps({"source_url": staged["url"], "creator_uid": 1}).encode(),
            prefer="wait=60" if wait else "respond-async",
        )
        return fqid

    async def metadata(self, number: int, *, wait: bool = False) -> FQID:
        """A file of metadata that differs from all others."""
        content = {
            "core": {"schema_url": "http://bench.example/sample.json", "schema_version": "1.0.0"},
            "sample": {"number": number, "organ": f"organ {number % 7}", "text": "word " * 50},
        }
        data = json.dumps(content).encode()
        return await self.file(f"{number}/sample.json", data, "application/json", wait=wait)

    async def data(self, number: int, *, wait: bool = False) -> FQID:
        """A small file that is not indexed."""
        stream = "application/octet-stream"
        return await self.file(f"{number}/reads.bin", os.urandom(DATA_BYTES), stream, wait=wait)

    async def bundle(self, metadata: FQID, data: FQID) -> FQID:
        """A bundle of two files; waits for them if need be."""
        fqid = FQID(str(uuid4()), VERSION)
        await self.put_bundle(fqid, metadata, data)
        return fqid

    async def put_bundle(self, fqid: FQID, metadata: FQID, data: FQID) -> None:
        """The same under a given identity."""
        entries = [_entry(metadata, "sample.json", True), _entry(data, "reads.bin", False)]
        await self._call(
            "PUT",
            f"/v1/bundles/{fqid.uuid}?version={fqid.version}&replica=aws",
            201,
            data=json.dumps({"creator_uid": 1, "files": entries}).encode(),
            prefer="wait=60",
        )

    async def subscribe(self, callback_url: str) -> None:
        """Be told of every bundle of replica aws."""
        body = json.dumps({"callback_url": callback_url, "jmespath_query": "bundle_info.uuid"})
        await self._call("PUT", "/v1/subscriptions?replica=aws", 201, data=body.encode())

    async def _call(
        self,
        method: str,
        path: str,
        wanted: int,
        *,
        data: bytes = b"",
        content_type: str = "application/json",
        prefer: str = "",
    ) -> Any:
        headers = {"Content-Type": content_type, "Prefer": prefer}
        # What was to be answered later may be done already.
        wanted_now = {wanted, 201}
        while True:
            async with self.http.request(method, path, data=data, headers=headers) as answer:
                text = await answer.text()
            if answer.status in wanted_now:
                return json.loads(text)
            # Older releases let few requests of one client wait.
            pending = answer.status == 202 or (answer.status == 409 and "file_pending" in text)
            assert pending, f"{method} {path}: {answer.status} {text[:300]}"
            await asyncio.sleep(PENDING_S)
            wanted_now = {wanted, 200, 201}


def _entry(fqid: FQID, name: str, indexed: bool) -> dict[str, Any]:
    return {"uuid": fqid.uuid, "version": fqid.version, "name": name, "indexed": indexed}


@asynccontextmanager
async def depositing(api: str, token: str, *, connections: int) -> AsyncIterator[Depositor]:
    """A depositor with its own area."""
    headers = {"Authorization": f"Bearer {token}"}
    connector = TCPConnector(limit=connections)
    async with ClientSession(api, headers=headers, connector=connector) as http:
        depositor = Depositor(http, str(uuid4()))
        await depositor._call("POST", f"/v1/area/{depositor.area}", 201)
        yield depositor
