"""Files of a bundle by folder, its metadata, its verification, and what refers to it."""

import threading
import time
from collections.abc import Callable

from pipelines import (
    bundle_contents,
    bundles,
    collections,
    failover,
    subscriptions,
)
from pipelines.bundles import NewEntry
from pipelines.collections import CollectionDraft
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.search_results import find_title
from pipelines.subscriptions import NewSubscription
from storage import keys
from storage.catalog import files
from storage.catalog.integrity import record_damage
from storage.model import FQID, BundleVersion, CollectionLink
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.pipelines.test_bundle_versions import OWNER, put, put_entries

NAMES = ["a.txt", "z.txt", "raw/1.fq", "raw/2.fq", "raw/deep/x", "Raw/b", "rä/y", "raw0"]


def row_of(stores: Stores, fqid: FQID) -> BundleVersion:
    return bundles.find(stores, "aws", *fqid)


def test_folders_are_listed_in_byte_order_by_pages(stores: Stores) -> None:
    row = row_of(stores, put(stores, new_uuid(), 0, {name: name.encode() for name in NAMES}))
    found = bundle_contents.list_folder(stores, row, "", limit=99)
    assert [(one.name, one.files, one.size) for one in found] == [
        ("Raw/", 1, 5),
        ("a.txt", 1, 5),
        ("raw/", 3, 8 + 8 + 10),
        ("raw0", 1, 4),
        ("rä/", 1, 5),
        ("z.txt", 1, 5),
    ]
    assert [one.entry.name for one in found if one.entry] == ["a.txt", "raw0", "z.txt"]
    walked, after = [], ""
    while page := bundle_contents.list_folder(stores, row, "", after=after, limit=2):
        walked += page
        after = page[-1].name
    assert walked == found
    inside = bundle_contents.list_folder(stores, row, "raw/", limit=99)
    assert [(one.name, one.entry and one.entry.size) for one in inside] == [
        ("1.fq", 8),
        ("2.fq", 8),
        ("deep/", None),
    ]
    assert bundle_contents.list_folder(stores, row, "none/", limit=9) == []
    assert bundle_contents.measure_size(stores, row) == sum(len(name.encode()) for name in NAMES)


def test_files_of_later_segments_are_found(stores: Stores) -> None:
    file, other = make_file(stores, b"a"), make_file(stores, b"other")
    count = 2 * SEGMENT_ENTRIES
    entries = [NewEntry(f"d/{at:05d}", file, False) for at in range(count)]
    fqid = put_entries(stores, FQID(new_uuid(), version()), [*entries, NewEntry("x", other, False)])
    row = row_of(stores, fqid)
    folder, single = bundle_contents.list_folder(stores, row, "", limit=9)
    assert (folder.name, folder.files, folder.entry) == ("d/", count, None)
    assert single.entry is not None
    assert single.entry.file == other
    after = f"{SEGMENT_ENTRIES - 2:05d}"
    page = bundle_contents.list_folder(stores, row, "d/", after=after, limit=3)
    assert [one.entry.name for one in page if one.entry] == [
        f"d/{SEGMENT_ENTRIES + at:05d}" for at in (-1, 0, 1)
    ]


def test_metadata_is_read_within_bounds(stores: Stores, monkeypatch) -> None:
    monkeypatch.setattr(bundle_contents, "METADATA_FILE_BYTES_MAX", 60)
    contents = {
        "sample_0.json": b'{"organism": [{"text": ""}, {"text": "Danio rerio"}], "age": 3}'[:60],
        "sample_1.json": b'{"organism": [{"text": ""}, {"text": "Mus"}], "age": 3}',
        "large.json": b'"' + b"x" * 60 + b'"',
        "data.txt": b"{}",
    }
    row = row_of(stores, put(stores, new_uuid(), 0, contents))
    broken, sample, large = bundle_contents.read_metadata(stores, "aws", row)
    assert str(broken.problem).startswith("Not readable: not JSON")
    assert sample.value == {"organism": [{"text": ""}, {"text": "Mus"}], "age": 3}
    assert large.problem == "Too large to be shown here."
    files = {sample.key: [sample.value]}
    for name in ("files.sample_json.organism.text", "text"):
        assert find_title(files, ["none", name]) == "Mus"
    assert find_title(files, ["age"]) == "3"
    for name in ("files.sample_json", "files.other_json.age", "sample_json.age", "files", ""):
        assert find_title(files, [name]) == ""


def test_bucket_that_hangs_is_asked_once(stores: Stores, monkeypatch) -> None:
    row = row_of(stores, put(stores, new_uuid(), 0, {"a.json": b"1", "b.json": b"2"}))
    asked, answered = [], threading.Event()

    def hang(*_args: object) -> bytes:
        asked.append(1)
        answered.wait(30)
        return b""

    monkeypatch.setattr(failover, "read_blob", hang)
    monkeypatch.setattr(failover, "PATIENCE_S", 0.05)
    found = bundle_contents.read_metadata(stores, "aws", row)
    answered.set()
    assert [one.problem for one in found] == ["The bucket of replica aws does not answer."] * 2
    assert all(one.is_away for one in found)
    assert len(asked) == 1


def test_verification_names_earliest_time_and_damage(stores: Stores) -> None:
    fqid = put(stores, new_uuid(), 0, {"a.txt": b"a", "b.txt": b"b"})
    found = bundle_contents.find_bundle_verification(stores, row_of(stores, fqid))
    assert set(found.record) == {"aws"}
    assert found.files is not None
    assert [(name, one.objects) for name, one in found.files.items()] == [("aws", 2)]
    assert (found.files["aws"].verified_us or 0) > 0
    with stores.catalog.read() as tx:
        file = files.find(tx, make_file(stores, b"c"))
    assert file is not None
    with stores.catalog.write() as tx:
        record_damage(tx, "aws", keys.blob_key(file.checksums.sha256), "its bytes differ")
    here = bundle_contents.find_file_verification(stores, file)
    assert here["aws"].damage == "its bytes differ"
    assert here["gcp"].stored_us is None


def test_events_of_a_bundle_are_latest_first(stores: Stores, drain: Callable[[], int]) -> None:
    fqid = put(stores, new_uuid(), 0, {"a.txt": b"a"})
    drain()
    bundles.delete(stores, "aws", *fqid, reason="r", author=OWNER)
    found = bundle_contents.list_events(stores, [fqid])
    assert [(one.type, one.replica) for one in found][-1] == ("CREATE", "aws")
    assert {one.type for one in found[:2]} == {"TOMBSTONE"}
    assert bundle_contents.list_events(stores, []) == []


def test_own_collections_list_bundle_in_their_latest_version(stores: Stores) -> None:
    fqid = put(stores, new_uuid(), 0, {"a.txt": b"a"})
    other = put(stores, new_uuid(), 0, {"a.txt": b"a"})

    def collect(uuid: str, number: int, target: FQID, name: str, owner: str = OWNER) -> None:
        links = [CollectionLink("bundle", target)]
        draft = CollectionDraft(FQID(uuid, version(number)), "aws", name, "", {}, links)
        collections.put(stores, draft, owner)

    first, second, third = new_uuid(), new_uuid(), new_uuid()
    collect(first, 0, fqid, "zebra fish")
    collect(second, 0, fqid, "changed")
    collect(second, 1, other, "changed")
    collect(third, 0, other, "mouse")
    collect(third, 1, fqid, "mouse")
    collect(new_uuid(), 0, fqid, "of another", owner="bob@example.org")
    found = bundle_contents.list_collections(stores, OWNER, fqid)
    assert [(one.name, one.fqid.uuid) for one in found] == [("mouse", third), ("zebra fish", first)]


def test_own_subscriptions_that_match_are_found(stores: Stores) -> None:
    fqid = put(stores, new_uuid(), 0, {"sample.json": b'{"organism": "Mus"}'})

    def subscribe(owner: str = OWNER, **query: object) -> str:
        new = NewSubscription("http://127.0.0.1:9/hook", "aws", **query)  # type: ignore[arg-type]
        return subscriptions.create_subscription(
            stores, new, owner, uuid=new_uuid(), seal=lambda s, _c: s, limit=9, allow_private=True
        ).uuid

    matching = {
        subscribe(),
        subscribe(jmespath_query="files.sample_json[?organism=='Mus']"),
        subscribe(es_query={"query": {"match": {"files.sample_json.organism": "mus"}}}),
    }
    subscribe(jmespath_query="files.sample_json[?organism=='Homo']")
    subscribe(owner="bob@example.org")
    row = row_of(stores, fqid)
    found = bundle_contents.find_matching_subscriptions(
        stores, "aws", row, OWNER, time_s=9, clock=time.monotonic
    )
    assert {one.uuid for one in found.subscriptions} == matching
    assert found.problem is None
    late = bundle_contents.find_matching_subscriptions(
        stores, "aws", row, OWNER, time_s=-1, clock=time.monotonic
    )
    assert late.problem is not None
    nobody = bundle_contents.find_matching_subscriptions(
        stores, "aws", row, "cy@example.org", time_s=-1, clock=time.monotonic
    )
    assert (nobody.subscriptions, nobody.problem) == ([], None)
