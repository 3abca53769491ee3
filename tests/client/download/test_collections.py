"""A collection of a served store, with all that it leads to."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from store_client.client import Client
from store_client.downloads.bundles import download_collection
from store_client.downloads.options import DownloadOptions
from store_client.errors import NotFound
from tests.client.download.deposits import VERSION, Depositor, link, uuid_of
from tests.client.download.test_bundles import contents

pytestmark = pytest.mark.spec("DWN-17")

BUNDLE = {"sample.json": b'{"donor": {"age": [3, 4]}}', "reads/a.gz": b"reads"}


@pytest.fixture
def filled(depositor: Depositor) -> str:
    """A collection with one of each, and another that links back to it."""
    bundle = depositor.bundle(1, BUNDLE)
    alone = depositor.file("x", b"alone")["uuid"]
    data = depositor.file("y.json", BUNDLE["sample.json"], indexed=True)["uuid"]
    depositor.collection(0x20, [link("bundle", bundle)])
    inner = depositor.collection(0x21, [link("collection", uuid_of(0x20)), link("bundle", bundle)])
    return depositor.collection(
        0x22,
        [
            link("bundle", bundle),
            link("file", alone),
            link("collection", inner),
            link("collection", uuid_of(0x20)),
            link("metadata", data, path="/donor/age/1"),
            link("fragment", data, path="/donor"),
            link("fragment", data, path=""),
        ],
    )


def test_downloads_everything_that_is_linked(
    client: Client, filled: str, options: DownloadOptions
) -> None:
    report = download_collection(client, filled, options=options)
    root = options.directory / f"{filled}.{VERSION}"
    assert report.directory == str(root)
    found = contents(root)
    assert json.loads(found.pop("collection.json"))["name"] == "collection 34"
    bundle = f"bundles/{uuid_of(1)}.{VERSION}"
    inner, innermost = (f"collections/{uuid_of(n)}.{VERSION}" for n in (0x21, 0x20))
    for place in ("", f"{inner}/", f"{innermost}/"):
        for name, data in BUNDLE.items():
            assert found.pop(f"{place}{bundle}/{name}") == data
    assert {found.pop(f"{place}/collection.json")[:1] for place in (inner, innermost)} == {b"{"}
    (alone,) = (found.pop(name) for name in list(found) if name.startswith("files/"))
    assert alone == b"alone"
    values = sorted(json.dumps(json.loads(found.pop(name))) for name in list(found))
    assert values == ["4", '{"age": [3, 4]}', '{"donor": {"age": [3, 4]}}']
    assert (report.collections, report.bundles, report.fragments) == (2, 3, 3)


def test_ends_on_circular_links(
    client: Client, depositor: Depositor, options: DownloadOptions
) -> None:
    one, other = uuid_of(0x31), uuid_of(0x32)
    depositor.collection(0x31, [])
    depositor.collection(0x32, [link("collection", one)])
    later = "2027-01-31T235959.000000Z"
    depositor.client.call(
        "put_collection",
        uuid=one,
        version=later,
        replica="aws",
        name="again",
        description="",
        details={},
        contents=[link("collection", other)],
    )

    class Circle:
        """The store as it would be if the first version linked to the other one, too."""

        def call(self, name: str, /, **arguments: object) -> object:
            found = client.call(name, **arguments)
            return {
                **found,
                "contents": [link("collection", other if found["uuid"] == one else one)],
            }

        def pages(self, name: str, /, **arguments: object) -> object:
            raise AssertionError(name)

    report = download_collection(Circle(), one, options=options, version=VERSION)  # type: ignore[arg-type]
    assert report.collections == 1
    plain = download_collection(client, one, options=options)
    assert (plain.version, plain.collections) == (later, 2)


@pytest.mark.spec("DWN-03")
def test_second_download_fetches_nothing(
    client: Client, filled: str, options: DownloadOptions
) -> None:
    download_collection(client, filled, options=options)
    assert download_collection(client, filled, options=options).counts.fetched_files == 0


def test_missing_target_fails_alone(client: Client, filled: str, options: DownloadOptions) -> None:
    client.call("delete_bundle", uuid=uuid_of(1), replica="aws", reason="test")
    with pytest.raises(NotFound, match="2 more failed"):
        download_collection(client, filled, options=replace(options, jobs=1))
    root = Path(options.directory / f"{filled}.{VERSION}")
    assert [path.read_bytes() for path in (root / "files").iterdir()] == [b"alone"]
    assert len(list((root / "fragments").iterdir())) == 3


@pytest.mark.spec("DWN-18")
def test_a_dry_run_writes_nothing(client: Client, filled: str, options: DownloadOptions) -> None:
    report = download_collection(client, filled, options=replace(options, dry_run=True))
    assert report.counts.fetched_bytes > 0
    assert list(options.directory.iterdir()) == []


def test_an_absent_collection_is_not_found(client: Client, options: DownloadOptions) -> None:
    with pytest.raises(NotFound):
        download_collection(client, uuid_of(0x99), options=options)
