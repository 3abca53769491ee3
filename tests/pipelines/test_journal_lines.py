"""The frozen format of journal lines and manifests."""

from dataclasses import replace

import pytest

from pipelines import events, journals
from storage.catalog.events import Replay, SequencedEvent
from storage.errors import DamagedObjectError
from storage.keys import JournalKey
from storage.model import FQID, BundleEvent

pytestmark = pytest.mark.spec("FMT-07")

UUID = "0a1b2c3d-0000-4000-8000-00000000000f"
VERSION = "2024-01-31T235959.000001Z"
EVENT = BundleEvent(
    "6f2f7a52-0000-5000-8000-000000000001", "aws", "CREATE", FQID(UUID, VERSION), 7, 1
)
DOCUMENT = {
    "event_type": "CREATE",
    "bundle_info": {"uuid": UUID, "version": VERSION},
    "uuid": UUID,
    "manifest": {"creator_uid": 1, "files": []},
    "files": {"a_json": [{"é": 2**70}]},
    "shape_descriptor": "unversioned",
}
INFO = f'"bundle_info":{{"uuid":"{UUID}","version":"{VERSION}"}},"uuid":"{UUID}"'


def test_line_is_document_with_event_type() -> None:
    line = journals.format_event_line(replace(EVENT, type="TOMBSTONE"), DOCUMENT)
    assert line.decode() == (
        '{"event_type":"TOMBSTONE",' + INFO + ',"manifest":{"creator_uid":1,"files":[]},'
        '"files":{"a_json":[{"é":1180591620717411303424}]},"shape_descriptor":"unversioned"}'
    )


def test_line_of_purged_bundle_has_event_only() -> None:
    assert journals.format_purged_line(EVENT).decode() == '{"event_type":"CREATE",' + INFO + "}"


def test_manifest_locates_each_event() -> None:
    found = [
        SequencedEvent(EVENT, 4, 1_700_000_000_000_001),
        SequencedEvent(EVENT, 5, 1_700_000_000_000_001),
    ]
    made = journals.join_lines(JournalKey("aws", 4, 5), found, [b'{"a":1}', b"{}"])
    assert made.data == b'{"a":1}\n{}\n'
    assert [tuple(place) for place in made.places] == [(4, 0, 7), (5, 8, 2)]
    shown = (
        '{"at":"1970-01-01T000000.000001Z","event_id":"6f2f7a52-0000-5000-8000-000000000001",'
        '"event_type":"CREATE","offset":%d,"seq":%d,"size":%d,'
        '"timestamp":"2023-11-14T221320.000001Z","uuid":"' + UUID + '","version":"' + VERSION + '"}'
    )
    assert made.manifest.decode() == (
        '{"events":[' + shown % (0, 4, 7) + "," + shown % (8, 5, 2) + '],"first":4,'
        '"format":"store-journal/1","last":5,"replica":"aws","sha256":'
        '"e1b3d9b97e5341da0111643d5bf665b473afe3f05da587a0fc6549b2caa282ff","size":11}'
    )
    assert journals.parse_manifest(made.manifest) == [
        replace(each, event=replace(EVENT, bundle_id=0), offset=place.offset, size=place.size)
        for each, place in zip(found, made.places, strict=True)
    ]


def test_a_manifest_of_another_format_is_refused() -> None:
    with pytest.raises(DamagedObjectError):
        journals.parse_manifest(b'{"format":"store-journal/2","events":[]}')


def test_a_replayed_event_has_an_id_of_its_own_that_is_always_the_same() -> None:
    one = Replay(UUID, 1, "aws", 1, 2, 0, 0, None)
    again = events.make_replayed_event(one, EVENT)
    assert again == replace(EVENT, id=again.id)
    assert again.id == "294f054c-d8e6-5d80-9b85-91205c9da4c0"
