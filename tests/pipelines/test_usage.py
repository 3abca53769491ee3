"""What each owner has deposited."""

from dataclasses import replace

import pytest

from pipelines import areas, bundles
from pipelines.areas import IncomingFile
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.usage import OwnerUsage, VersionUsage, measure_usage
from storage.catalog import areas as area_rows
from storage.model import FQID
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version

pytestmark = pytest.mark.spec("OPS-41")

DEPOSITOR = "depositor@example.org"
ADA = "ada@example.org"


def put_bundle(stores: Stores, author: str, *files: FQID) -> None:
    entries = [NewEntry(f"{place}.txt", file, False) for place, file in enumerate(files)]
    draft = BundleDraft(FQID(new_uuid(), version()), "aws", 1, entries)
    bundles.put(stores, draft, author)


def test_counts_files_and_bundles_of_each_owner(stores: Stores) -> None:
    files = [make_file(stores, bytes(size), everywhere=True) for size in (1, 10, 10)]
    put_bundle(stores, DEPOSITOR, *files)
    put_bundle(stores, ADA, files[0])
    found = measure_usage(stores.catalog)
    own = replace(found[DEPOSITOR], lacking={})
    assert own == OwnerUsage(files=3, bytes=21, bundles=1)
    assert (found[ADA].files, found[ADA].bundles) == (0, 1)
    assert measure_usage(stores.catalog, {ADA}).keys() == {ADA}
    assert measure_usage(stores.catalog, set()) == {}


def test_names_what_a_replica_lacks(stores: Stores) -> None:
    make_file(stores, b"12345", everywhere=True)
    make_file(stores, b"123", origin="gcp")
    found = measure_usage(stores.catalog)[DEPOSITOR]
    assert (found.files, found.bytes) == (2, 8)
    assert found.lacking == {"aws": VersionUsage(files=1, bytes=3)}


def test_an_empty_catalog_has_no_owners(stores: Stores) -> None:
    assert measure_usage(stores.catalog) == {}


def test_counts_areas_that_are_not_deleted(stores: Stores) -> None:
    first, second, other = new_uuid(), new_uuid(), new_uuid()
    for uuid, owner in ((first, ADA), (second, ADA), (other, DEPOSITOR)):
        areas.create(stores, uuid, owner)
    for uuid in (first, second):
        incoming = IncomingFile(uuid, "a.txt", "text/plain", iter([b"content"]), 7, 2**30)
        areas.receive_file(stores, incoming, ADA)
    with stores.catalog.write() as tx:
        area_rows.set_state(tx, first, "DELETED")
    found = measure_usage(stores.catalog)
    assert found[ADA] == OwnerUsage(areas=1, area_files=1, area_bytes=7)
    assert found[DEPOSITOR] == OwnerUsage(areas=1)


def test_pages_add_up(stores: Stores) -> None:
    for number in range(7):
        make_file(stores, bytes(number), everywhere=True)
    whole = measure_usage(stores.catalog)
    assert measure_usage(stores.catalog, ids_per_page=2) == whole
    assert whole[DEPOSITOR].files == 7
