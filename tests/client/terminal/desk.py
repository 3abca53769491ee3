"""A running store with some bundles, and a terminal there."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from ops.local_store import LocalStore, running_store
from store_client import Client
from store_client.configuration import Configuration
from tests.client.cli.people import PROGRAM
from tests.client.download.deposits import Depositor
from tests.client.terminal.recorder import ROWS, Shell
from tests.drill.fault_proxy import Proxy, before
from tests.waiting import until

# Before those of other bundles that sessions make, where bundles are listed.
LIVER = "00000001-40c5-4f36-9a1e-5c7d8e90f2a3"
HEART = "00000002-7d3e-4b95-8c60-1e2f3a4b5c6d"
KIDNEY = "00000003-1c2d-4e8f-b0a1-6d7e8f9a0b1c"
HOME = ".client"
"""The client's own folder, in that of a session."""
FIRST, SECOND = "2026-01-12T093000.000000Z", "2026-01-20T141500.000000Z"
READS = Random(1).randbytes(1_200_000)
LARGE = Random(2).randbytes(3_000_000)
"""A file that takes long where the network is slow."""


@dataclass(frozen=True)
class Desk:
    """A store, and ways to sit down at it."""

    store: LocalStore

    @contextmanager
    def sit_down(self, *, rows: int = ROWS, url: str = "") -> Iterator[Shell]:
        """A shell in an empty folder, of an administrator who is logged in."""
        # The name is as long wherever temporary files are; see the recorder's FOLDER.
        folder = Path(tempfile.mkdtemp(prefix="st", dir="/tmp"))
        environ = {
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "STORE_CLIENT_HOME": str(folder / HOME),
            "NO_PROXY": "127.0.0.1",
        }
        place = ("--url", url or self.store.api, "--profile", "work")
        login = [str(PROGRAM), "login", *place, "--access-token", "-", "-q"]
        try:
            subprocess.run(
                login, input=self.store.token, env=environ, text=True, check=True, timeout=60
            )
            with Shell(cwd=folder, environ=environ, rows=rows) as shell:
                yield shell
        finally:
            shutil.rmtree(folder)

    @contextmanager
    def slow(self, only: bytes) -> Iterator[Proxy]:
        """A way to the store on which requests that begin so are slow, once its mode says so."""
        where = urlsplit(self.store.api)
        with before(str(where.hostname), int(where.port or 0), Random(1)) as proxy:
            proxy.only = only
            yield proxy


@contextmanager
def running_desk(folder: Path) -> Iterator[Desk]:
    """Start the store, and put bundles into it."""
    (folder / "store").mkdir()
    with running_store(folder / "store", {}) as store:
        config = Configuration(folder / "client", folder / "client/cache", store.api)
        with Client(config=config, token=store.token) as client:
            _deposit(client)
        yield Desk(store)


def _deposit(client: Client) -> None:
    depositor = Depositor(client)

    def file(name: str, data: bytes) -> dict[str, object]:
        return depositor.file(name, data, indexed=name.endswith(".json"), soon=True)

    def bundle(uuid: str, version: str, files: list[dict[str, object]]) -> None:
        client.call(
            "put_bundle", uuid=uuid, version=version, replica="aws", creator_uid=7, files=files
        )

    reads = file("reads.fastq.gz", READS)
    old = file("specimen.json", _describe("liver", "female", age=3))
    new = file("specimen.json", _describe("liver", "female", age=4))
    bundle(LIVER, FIRST, [old, reads, file("protocol.txt", b"first\n")])
    bundle(LIVER, SECOND, [new, reads, file("readme.txt", b"Corrected the age.\n")])
    bundle(HEART, FIRST, [file("specimen.json", _describe("heart", "male", age=2)), reads])
    large = file("large.bam", LARGE)
    kidney = file("specimen.json", _describe("kidney", "female", age=1))
    bundle(KIDNEY, FIRST, [kidney, reads, large])
    query = {"query": {"match_all": {}}}
    until(lambda: client.call("post_search", replica="aws", es_query=query)["total_hits"] == 4)


def _describe(organ: str, sex: str, *, age: int) -> bytes:
    document = {"organism": "Danio rerio", "organ": organ, "sex": sex, "age": age}
    return json.dumps(document, indent=1).encode()


def write_sample(folder: Path, *, lane: int = 400_000, large: bool = False) -> Path:
    """A directory to upload."""
    (folder / "reads").mkdir(parents=True)
    # Other fields than those of the store's bundles, whose numbers are shown.
    document = {"species": "Mus musculus", "tissue": "lung"}
    (folder / "specimen.json").write_text(json.dumps(document))
    for number in (1, 2):
        data = Random(number).randbytes(lane)
        (folder / "reads" / f"lane{number}.fastq.gz").write_bytes(data)
    if large:
        (folder / "reads" / "large.bam").write_bytes(Random(3).randbytes(3_000_000))
    return folder


def large_digest() -> str:
    """The SHA-256 of the large file in the store."""
    return hashlib.sha256(LARGE).hexdigest()


def closed_port() -> int:
    """A port of five digits where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    assert port > 9999
    return port
