"""Validation of metadata: what is valid is read once, and a long request continues."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import areas, bundles, deposits
from pipelines.areas import IncomingFile
from pipelines.deposits import ChosenFile, DepositRequest
from pipelines.metadata_validation import FileToValidate, MetadataInvalid, validate_metadata
from storage import keys
from storage.cache import ByteCache
from storage.catalog import files
from storage.errors import NotFoundError, Unavailable
from storage.metadata_schemas import open_metadata_schemas
from storage.model import FQID
from storage.stores import Stores
from tests.api.builders import AREA, uuid_of
from tests.builders import make_file
from tests.conftest import Outbox, draining

ME = "me@example.org"


@pytest.fixture
def validating(stores: Stores, tmp_path: Path) -> Stores:
    """Stores with a schema for *.json."""
    (tmp_path / "name.json").write_text(json.dumps({"required": ["name"]}))
    (tmp_path / "patterns.json").write_text(json.dumps({"*.json": "name.json"}))
    opened = open_metadata_schemas(str(tmp_path / "patterns.json"))
    return replace(stores, metadata_schemas=opened, copy_parallel=1)


def stored(stores: Stores, *contents: bytes) -> list[FileToValidate]:
    """Stored files, as a bundle's metadata."""
    found = []
    for number, content in enumerate(contents):
        fqid = make_file(stores, content)
        with stores.catalog.read() as tx:
            (row,) = files.look_up(tx, "aws", [fqid])
        found.append(FileToValidate(f"{number}.json", row[3], row[5], stores.metadata_schemas))
    return found


def remove_content(stores: Stores, file: FileToValidate) -> None:
    for blobs in stores.replicas.values():
        blobs.delete(keys.blob_key(file.sha256))


@pytest.mark.spec("BUN-71")
def test_a_valid_file_is_not_read_again(validating: Stores) -> None:
    good, bad = stored(validating, b'{"name": 1}', b"{}")
    validate_metadata(validating, "aws", [good])
    for _ in range(2):
        with pytest.raises(MetadataInvalid):
            validate_metadata(validating, "aws", [bad])
    remove_content(validating, good)
    validate_metadata(validating, "aws", [good])
    with pytest.raises(Unavailable):
        validate_metadata(
            replace(validating, valid_metadata=type(validating.valid_metadata)(9)), "aws", [good]
        )


@pytest.mark.spec("BUN-71")
def test_other_schemas_validate_again(validating: Stores, tmp_path: Path) -> None:
    (good,) = stored(validating, b'{"name": 1}')
    validate_metadata(validating, "aws", [good])
    (tmp_path / "name.json").write_text(json.dumps({"required": ["title"]}))
    changed = open_metadata_schemas(str(tmp_path / "patterns.json"))
    with pytest.raises(MetadataInvalid):
        validate_metadata(validating, "aws", [good._replace(schemas=changed)])


@pytest.mark.spec("BUN-71")
def test_a_request_that_takes_too_long_is_continued(validating: Stores) -> None:
    found = stored(validating, b'{"name": 1}', b'{"name": 2}', b'{"name": 3}')
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            validate_metadata(validating, "aws", found, time_limit_s=-1)
        assert caught.value.retry_after_s == 1
    validate_metadata(validating, "aws", found, time_limit_s=-1)


@pytest.mark.spec("BUN-71")
def test_more_files_than_are_remembered_are_validated_in_the_end(validating: Stores) -> None:
    found = stored(validating, *(b'{"name": %d}' % number for number in range(12)))
    little = replace(validating, copy_parallel=1, valid_metadata=ByteCache(4))
    for _ in range(11):
        with pytest.raises(Unavailable):
            validate_metadata(little, "aws", found, time_limit_s=-1)
    validate_metadata(little, "aws", found, time_limit_s=-1)


@pytest.mark.spec("BUN-71")
def test_a_bundle_that_differs_in_one_file_is_not_taken_for_another(validating: Stores) -> None:
    found = stored(validating, b'{"name": 1}', b'{"name": 2}', b"{}")
    little = replace(validating, copy_parallel=1, valid_metadata=ByteCache(4))
    with pytest.raises(Unavailable):
        validate_metadata(little, "aws", found[:2], time_limit_s=-1)
    with pytest.raises(MetadataInvalid):
        validate_metadata(little, "aws", [found[2], found[1]], time_limit_s=-1)


@pytest.mark.spec("BUN-71")
def test_faults_that_were_found_in_time_are_told(validating: Stores) -> None:
    found = stored(validating, b'{"name": 1}', b"{}", b'{"name": 3}')
    with pytest.raises(Unavailable):
        validate_metadata(validating, "aws", found, time_limit_s=-1)
    with pytest.raises(MetadataInvalid) as caught:
        validate_metadata(validating, "aws", found, time_limit_s=-1)
    assert [fault.name for fault in caught.value.faults] == ["1.json"]


@pytest.mark.spec("BUN-71")
def test_many_files_are_validated_at_once(validating: Stores) -> None:
    contents = [
        json.dumps({"name": number} if number != 17 else {}).encode() for number in range(40)
    ]
    found = stored(validating, *contents)
    with pytest.raises(MetadataInvalid) as caught:
        validate_metadata(replace(validating, copy_parallel=8), "aws", found)
    assert [fault.name for fault in caught.value.faults] == ["17.json"]


@pytest.mark.spec("BUN-71")
def test_a_deposit_of_invalid_metadata_fails_with_its_faults(
    validating: Stores, job_queue: Outbox
) -> None:
    drain: Callable[[], int] = draining(validating, job_queue)
    areas.create(validating, AREA, ME)
    for name in ("a.json", "b.json"):
        data = b"{}" if name == "a.json" else b'{"name": "b"}'
        file = IncomingFile(AREA, name, "x/y", iter([data]), len(data), 2**20)
        areas.receive_file(validating, file, ME)
    drain()
    chosen = [ChosenFile(name, name, True) for name in ("a.json", "b.json")]
    deposit = deposits.plan(validating, DepositRequest(AREA, "aws", uuid_of(7), 7, chosen), ME)
    deposits.start(validating, deposit)
    drain()
    failed = deposits.find_owned(validating, deposit.id, ME)
    assert failed.state == "FAILED"
    assert failed.faults == {
        "": "The metadata does not satisfy the schemas of this store: a.json.",
        "a.json": '"name" is a required property',
    }
    states = deposits.list_file_states(validating, failed, 0, 9)
    assert [(one.name, one.state) for one in states] == [
        ("a.json", "failed"),
        ("b.json", "verified"),
    ]
    with pytest.raises(NotFoundError):
        bundles.find(validating, "aws", FQID(uuid_of(7), failed.version).uuid, None)
