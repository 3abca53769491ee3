"""One store with a few bundles, which the tests of the nouns share."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config import Settings
from storage.connect import connect
from storage.pubsub import MemoryPubSub
from store_client import Client
from store_client.configuration import URL, Configuration
from tests.catalogs import Spares
from tests.client.cli.people import Typist, nowhere, showing
from tests.client.conftest import ADMIN_TOKEN, Served, served
from tests.client.download.deposits import VERSION, Depositor
from tests.conftest import Outbox, draining, keyed
from tests.waiting import until

LATER = "2026-02-28T120000.000000Z"
"""The version of the second deposit of the liver."""
READS = b"\x1f\x8b reads \x00\xff" * 1000


@dataclass(frozen=True)
class Shelf:
    """A store, its client, and the bundles in it."""

    store: Served
    client: Client
    depositor: Depositor
    liver: str
    """Two versions; the earlier has the file notes.txt, the later one readme.txt."""
    heart: str

    @property
    def host(self) -> str:
        """Host and port of the store."""
        return self.store.url.removeprefix("http://")

    def file_of(self, bundle: str, name: str) -> dict[str, str]:
        """The entry of a file in the latest version."""
        found = self.client.call("get_bundle", uuid=bundle, replica="aws")
        (entry,) = (one for one in found["bundle"]["files"] if one["name"] == name)
        return dict(entry)


def describe(**more: object) -> bytes:
    """A metadata document of this shelf; searches count those of this organism."""
    return json.dumps({"organism": "Danio rerio", "term": "CL:0000236", **more}).encode()


@pytest.fixture(scope="package")
def shelf(
    tmp_path_factory: pytest.TempPathFactory, spares: Spares, signing_file: Path
) -> Iterator[Shelf]:
    """The store; tests add to it, and delete only what they made."""
    folder = tmp_path_factory.mktemp("nouns")
    home, outbox = keyed(folder / "home", signing_file), Outbox()
    with spares.lend("sqlite", folder) as url:
        settings = Settings(
            home=home, secret_key="a secret for tests only", wait_s=0.0, catalog_url=url
        )
        stores = connect(settings, notices=MemoryPubSub())
        try:
            with served(settings, stores, outbox, draining(stores, outbox)) as store:
                config = Configuration(folder / "client", folder / "client/cache", store.url)
                with Client(config=config, token=ADMIN_TOKEN) as client:
                    yield _fill(store, client)
        finally:
            stores.catalog.close()


def _fill(store: Served, client: Client) -> Shelf:
    depositor = Depositor(client)
    sample = describe(sex="female", organ="liver", donor=1, note='a "quoted", word')
    liver = depositor.bundle(
        1, {"sample.json": sample, "reads.fastq.gz": READS, "notes.txt": b"old\n"}
    )
    again = describe(sex="female", organ="liver", donor=2, note='a "quoted", word')
    later = [
        depositor.file("sample.json", again, indexed=True, soon=True),
        depositor.file("readme.txt", b"new\n", soon=True),
    ]
    kept = client.call("get_bundle", uuid=liver, replica="aws")["bundle"]["files"]
    later += [
        {name: one[name] for name in ("uuid", "version", "name", "indexed")}
        for one in kept
        if one["name"] == "reads.fastq.gz"
    ]
    client.call("put_bundle", uuid=liver, version=LATER, replica="aws", creator_uid=7, files=later)
    heart = depositor.bundle(
        2, {"sample.json": describe(sex="male", organ="adult heart"), "reads.fastq.gz": b"heart"}
    )
    shelf = Shelf(store, client, depositor, liver, heart)
    for replica in ("aws", "gcp"):
        until(lambda replica=replica: _is_searchable(shelf, replica))
    return shelf


def _is_searchable(shelf: Shelf, replica: str) -> bool:
    found = shelf.client.call("post_search", replica=replica, es_query={"query": {"match_all": {}}})
    names = {hit["bundle_fqid"] for hit in found["results"]}
    return names >= {f"{shelf.liver}.{LATER}", f"{shelf.heart}.{VERSION}"}


@pytest.fixture
def admin(shelf: Shelf, tmp_path: Path) -> Typist:
    """Somebody who may do everything."""
    return Typist(tmp_path / "admin", showing(ADMIN_TOKEN), {URL: shelf.store.url})


@pytest.fixture
def offline(tmp_path: Path) -> Typist:
    """Somebody whose store cannot be reached, and never could."""
    return Typist(tmp_path / "offline", nowhere, {URL: "http://127.0.0.1:9"})


def rows(text: str) -> list[Any]:
    """The JSON values of lines."""
    return [json.loads(line) for line in text.splitlines()]
