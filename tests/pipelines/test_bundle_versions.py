"""Versions of a bundle with tombstones, the state of one, and differences of two."""

import json
from collections.abc import Mapping

import pytest

from pipelines import bundle_versions, bundles
from pipelines.bundle_versions import FileLine, compare_files, compare_values
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.limits import SEGMENT_ENTRIES
from storage.errors import NotFoundError
from storage.model import FQID
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version

OWNER = "depositor@example.org"
JSON = "application/json"


def put(stores: Stores, uuid: str, number: int, contents: Mapping[str, bytes]) -> FQID:
    """A bundle version with new files of these contents, JSON ones indexed."""
    entries = [
        NewEntry(
            name,
            make_file(stores, data, content_type=JSON if name.endswith(".json") else "text/plain"),
            name.endswith(".json"),
        )
        for name, data in contents.items()
    ]
    return put_entries(stores, FQID(uuid, version(number)), entries)


def put_entries(stores: Stores, fqid: FQID, entries: list[NewEntry]) -> FQID:
    bundles.put(stores, BundleDraft(fqid, "aws", 1, entries), OWNER)
    return fqid


def test_history_has_live_and_withdrawn_versions_latest_first(stores: Stores) -> None:
    uuid = new_uuid()
    for number in range(4):
        put(stores, uuid, number, {"a.txt": b"x" * number + b"y", "b.txt": b"12345"})
    put(stores, new_uuid(), 9, {"a.txt": b"other"})
    bundles.delete(stores, "aws", uuid, version(1), reason="wrong donor", author="ada@example.org")
    found = bundle_versions.list_history(stores, uuid, limit=10, with_sizes=True)
    assert [one.row.fqid.version for one in found] == [version(n) for n in (3, 2, 1, 0)]
    assert [one.size for one in found] == [9, 8, 7, 6]
    assert [one.is_live for one in found] == [True, True, False, True]
    assert [one.row.file_count for one in found] == [2] * 4
    stone = found[2].tombstone
    assert stone is not None
    assert (stone.reason, stone.author) == ("wrong donor", "ada@example.org")
    assert found[0].replicas == {"aws"}
    later = bundle_versions.list_history(stores, uuid, before=version(2), limit=1)
    assert [one.row.fqid.version for one in later] == [version(1)]


def test_tombstone_of_bundle_covers_all_versions(stores: Stores) -> None:
    uuid = new_uuid()
    put(stores, uuid, 0, {"a.txt": b"a"})
    put(stores, uuid, 1, {"a.txt": b"b"})
    bundles.delete(stores, "aws", uuid, None, reason="consent", author=OWNER)
    found = bundle_versions.list_history(stores, uuid, limit=10, with_sizes=True)
    assert [one.tombstone.reason if one.tombstone else "" for one in found] == ["consent"] * 2
    for chosen in (None, version(0)):
        state = bundle_versions.find_state(stores, "aws", uuid, chosen)
        assert state.state == "withdrawn"
        assert state.end is not None
        assert state.end.reason == "consent"
    assert state.row is not None
    assert state.row.fqid.version == version(0)


def test_state_says_whether_version_is_live_or_in_other_replica(stores: Stores) -> None:
    fqid = put(stores, new_uuid(), 0, {"a.txt": b"a"})
    assert bundle_versions.find_state(stores, "aws", *fqid).state == "live"
    assert bundle_versions.find_state(stores, "aws", fqid.uuid, None).state == "live"
    assert bundle_versions.find_state(stores, "gcp", *fqid).state == "elsewhere"
    for uuid, chosen in ((new_uuid(), None), (fqid.uuid, version(5))):
        with pytest.raises(NotFoundError):
            bundle_versions.find_state(stores, "aws", uuid, chosen)


def test_size_is_left_out_where_summing_takes_too_long(stores: Stores, monkeypatch) -> None:
    monkeypatch.setattr(bundle_versions, "HISTORY_ENTRIES_MAX", 3)
    uuid = new_uuid()
    for number in range(2):
        put(stores, uuid, number, {"a.txt": bytes([number]), "b.txt": b"22"})
    found = bundle_versions.list_history(stores, uuid, limit=10, with_sizes=True)
    assert [one.size for one in found] == [3, None]


def names(changes) -> list[str]:
    return [change.name for change in changes]


def test_diff_lists_files_by_name_and_checksum(stores: Stores) -> None:
    uuid = new_uuid()
    first = put(
        stores,
        uuid,
        0,
        {
            "same.txt": b"same",
            "old.txt": b"gone",
            "moved.txt": b"moved",
            "sample.json": b'{"a": 1}',
        },
    )
    second = put(
        stores,
        uuid,
        1,
        {"same.txt": b"same", "new.txt": b"new", "here.txt": b"moved", "sample.json": b'{"a": 2}'},
    )
    diff = bundle_versions.compare_versions(stores, "aws", uuid, first.version, second.version)
    assert {kind: names(changes) for kind, changes in diff.changes.items()} == {
        "added": ["new.txt"],
        "removed": ["old.txt"],
        "changed": ["sample.json"],
        "renamed": ["here.txt"],
        "rewritten": ["same.txt"],
    }
    assert diff.counts == dict.fromkeys(diff.changes, 1)
    assert [(one.name, one.changes) for one in diff.metadata] == [
        ("sample.json", [("a", "1", "2")])
    ]
    with pytest.raises(NotFoundError):
        bundle_versions.compare_versions(stores, "aws", uuid, first.version, version(7))


def test_diff_reads_no_segments_that_both_share(stores: Stores) -> None:
    uuid, file = new_uuid(), make_file(stores, b"a")
    count = SEGMENT_ENTRIES + 3
    entries = [NewEntry(f"f{at:05d}", file, False) for at in range(count)]
    first = put_entries(stores, FQID(uuid, version()), entries)
    patched = bundles.patch_bundle(
        stores, bundles.BundlePatch(first, "aws", [NewEntry("new", file, False)], []), OWNER
    )
    found = bundle_versions.compare_versions(
        stores, "aws", uuid, first.version, patched.fqid.version
    )
    assert found.counts == {"added": 1, "removed": 0, "changed": 0, "renamed": 0, "rewritten": 0}
    history = bundle_versions.list_history(stores, uuid, limit=10, with_sizes=True)
    assert [one.size for one in history] == [count + 1, count]


def test_metadata_that_cannot_be_compared_says_why(stores: Stores) -> None:
    uuid = new_uuid()
    large = json.dumps("x" * bundle_versions.DIFF_JSON_BYTES_MAX).encode()
    put(stores, uuid, 0, {"a.json": b"{", "b.json": large, "c.json": b"[1, 2]"})
    put(stores, uuid, 1, {"a.json": b"[]", "b.json": b"[]", "c.json": b"[1]"})
    diff = bundle_versions.compare_versions(stores, "aws", uuid, version(0), version(1))
    problems = {one.name: one.problem for one in diff.metadata}
    assert str(problems["a.json"]).startswith("Not compared: not JSON")
    assert problems["b.json"] == "Larger than 256 KiB; not compared."
    assert problems["c.json"] is None
    assert diff.metadata[2].changes == [("[1]", "2", None)]


def test_values_compare_by_path_and_bounded() -> None:
    before = {"donor": {"age": 3, "sex": "f"}, "tags": ["a", "b"], "one": 1}
    after = {"donor": {"age": 3.0, "sex": "m"}, "tags": ["a"], "one": True, "new": None}
    assert compare_values(before, after, limit=99) == [
        ("donor.age", "3", "3.0"),
        ("donor.sex", '"f"', '"m"'),
        ("tags[1]", '"b"', None),
        ("one", "1", "true"),
        ("new", None, "null"),
    ]
    assert compare_values([1], {"a": 1}, limit=9) == [("(whole file)", "[1]", '{"a":1}')]
    assert len(compare_values(["a"] * 900, ["b"] * 900, limit=7)) == 7
    ((_, shown, _),) = compare_values("x" * 9_000, "y", limit=7)
    assert len(shown or "") == bundle_versions.DIFF_VALUE_CHARS


def line(name: str, sha256: str) -> FileLine:
    return FileLine(name, "u", "v", 0, "text/plain", sha256, 1)


def test_each_removed_file_is_renamed_once() -> None:
    before = [line("a", "1"), line("b", "1")]
    after = [line("c", "1"), line("d", "1"), line("e", "1")]
    found = compare_files(before, after)
    assert [(one.before.name, one.after.name) for one in found["renamed"]] == [
        ("a", "c"),
        ("b", "d"),
    ]
    assert names(found["added"]) == ["e"]
    assert found["removed"] == []
