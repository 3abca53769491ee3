"""The metadata document, from literals."""

import json
import socket
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.finding import documents, field_names
from pipelines.finding.documents import MAX_FILE_BYTES, assemble, file_key, withholding
from pipelines.limits import MAX_INDEXED_FILES
from storage.json_size import parsed_size
from storage.model import FQID, Checksums, Entry
from storage.query.analysis import flatten

BUNDLE = FQID("b" * 8, "2026-01-01T000000.000000Z")
SUMS = Checksums("1" * 40, "2" * 64, "3" * 8, "4" * 32)
LIMIT = 10_000
JSON = 'application/json; dcp-type="metadata/biomaterial"'


def entry(name: str, *, indexed: bool = True, content_type: str = JSON, size: int = 10) -> Entry:
    return Entry(name, FQID(f"file-{name}", "v"), indexed, content_type, size, SUMS)


def assembled(contents: Mapping[str, Any], field_limit: int = LIMIT) -> documents.Assembled:
    """A document of files with this JSON, or these bytes."""
    pairs = [
        (entry(name), value if isinstance(value, bytes | None) else json.dumps(value).encode())
        for name, value in contents.items()
    ]
    return assemble(BUNDLE, 7, [each for each, _ in pairs], pairs, field_limit=field_limit)


def reasons(made: documents.Assembled) -> list[str]:
    return [error["reason"] for error in made.errors]


def test_a_document_has_its_bundle_its_manifest_and_its_files() -> None:
    lines = [entry("cell_0.json"), entry("reads.fastq", indexed=False)]
    made = assemble(BUNDLE, 7, lines, [(lines[0], b'{"a": 1}')], field_limit=LIMIT)
    assert made.errors == ()
    assert made.document == {
        "event_type": "CREATE",
        "bundle_info": {"uuid": BUNDLE.uuid, "version": BUNDLE.version},
        "uuid": BUNDLE.uuid,
        "manifest": made.document["manifest"],
        "files": {"cell_json": [{"a": 1}]},
        "shape_descriptor": "unversioned",
    }
    assert made.document["manifest"]["creator_uid"] == 7
    assert made.document["manifest"]["files"][1] == {
        "name": "reads.fastq",
        "uuid": "file-reads.fastq",
        "version": "v",
        "content-type": JSON,
        "crc32c": SUMS.crc32c,
        "indexed": False,
        "s3_etag": SUMS.s3_etag,
        "sha1": SUMS.sha1,
        "sha256": SUMS.sha256,
        "size": 10,
    }


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("project.json", "project_json"),
        ("cell_suspension_0.json", "cell_suspension_json"),
        ("cell_suspension_12.json", "cell_suspension_json"),
        ("a.b_1.json", "a_b_json"),
        ("cell_1_2.json", "cell_1_json"),
        ("cell1.json", "cell1_json"),
        ("_3.json", "_json"),
        ("cell_1.json.txt", "cell_1_json_txt"),
        ("deep/cell_1.json", "deep/cell_json"),
        ("cell_\u0663.json", "cell_\u0663_json"),
    ],
)
def test_keys(name: str, key: str) -> None:
    assert file_key(name) == key


def test_files_of_one_key_keep_the_order_of_the_manifest() -> None:
    made = assembled({"cell_2.json": {"n": 2}, "x.json": 0, "cell_0.json": [0], "cell_1.json": "1"})
    assert made.document["files"] == {"cell_json": [{"n": 2}, [0], "1"], "x_json": [0]}


@pytest.mark.parametrize(
    ("indexed", "content_type", "expected"),
    [
        (True, "application/json", True),
        (True, "Application/JSON;charset=utf-8", True),
        (True, JSON, True),
        (False, "application/json", False),
        (True, "text/plain", False),
        (True, "x-application/json", False),
    ],
)
def test_what_counts_as_metadata(indexed: bool, content_type: str, expected: bool) -> None:
    assert documents.is_metadata(entry("a", indexed=indexed, content_type=content_type)) is expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not JSON: Expecting property name"),
        (b"", "not JSON"),
        (b"{} {}", "Extra data"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'{"a": NaN}', "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "1e999"),
        (b'["\\ud800"]', "surrogate"),
        (b'{"\\uDC00": 1}', "surrogate"),
        (b"[" * 101 + b"]" * 101, "deeper than 100"),
        (b"[" * 100_000, "deeper than 100"),
        (b"1" * 5000, "more than 4300 digits"),
        (None, "larger than"),
        (b'{"' + b"a." * 30_000 + b'a": 1}', "names of its fields"),
    ],
    ids=lambda given: None if isinstance(given, str) else f"{len(given or b'')}",
)
def test_what_cannot_be_read_is_reported_and_the_rest_is_kept(
    content: bytes | None, reason: str
) -> None:
    made = assembled({"good.json": 1, "bad.json": content, "fine.json": 2})
    assert made.document["files"] == {"good_json": [1], "fine_json": [2]}
    assert [error["file"] for error in made.errors] == ["bad.json"]
    assert reason in made.errors[0]["reason"]
    assert made.document["errors"] == list(made.errors)


def test_duplicate_names_are_reported_and_the_last_counts() -> None:
    made = assembled({"a.json": b'{"x": 1, "y": {"z": 1, "z": 2}, "x": 3}'})
    assert made.document["files"] == {"a_json": [{"x": 3, "y": {"z": 2}}]}
    assert reasons(made) == [
        'duplicate name "z", the last counts',
        'duplicate name "x", the last counts',
    ]


def test_many_duplicates_take_no_time_and_little_room() -> None:
    content = b"{" + b",".join(b'"k%d": 1, "k%d": 2' % (n, n) for n in range(50_000)) + b"}"
    made = assembled({"a.json": content}, field_limit=100_000)
    assert len(made.errors) == 10


def test_good_json_is_kept_exactly() -> None:
    value = {"big": 2**70 + 1, "deep": [[]], "pair": "\U0001f600", "float": 0.1, "none": None}
    made = assembled({"a.json": b"\xef\xbb\xbf" + json.dumps(value).encode()})
    assert made.document["files"] == {"a_json": [value]}
    assert documents.load(documents.dump(made.document)) == made.document
    assert str(2**70 + 1).encode() in documents.dump(made.document)


def test_the_deepest_that_is_allowed_is_read() -> None:
    assert assembled({"a.json": b"[" * 100 + b"]" * 100}).errors == ()


def test_names_of_fields_fill_a_document_to_its_bound() -> None:
    # Each file repeats one long name a thousand times: 40 MB of names from 50 kB of JSON.
    wide = {"x" * 40_000: {str(number): 0 for number in range(1000)}}
    made = assembled({f"{letter}.json": wide for letter in "abc"} | {"d.json": {"x.y": [{"z": 1}]}})
    assert [error["file"] for error in made.errors] == ["b.json", "c.json"]
    assert set(made.document["files"]) == {"a_json", "d_json"}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1, 0),
        ([1, [2]], 0),
        ({"ab": 1, "c": None}, 3),
        ({"a": {"b": 1}}, 4),
        ({"a.b": 1}, 4),
        ({"a": [{"b": 1}, {"b": 2}, [{"c": 3}]]}, 7),
    ],
)
def test_each_name_counts_once_whole(value: Any, found: int) -> None:
    assert field_names.text(value) == found


def test_a_file_beyond_its_bound_is_not_parsed() -> None:
    made = assembled({"a.json": b" " * MAX_FILE_BYTES + b"1", "b.json": 1})
    assert made.document["files"] == {"b_json": [1]}
    assert reasons(made) == [f"larger than {MAX_FILE_BYTES} bytes"]


def test_a_document_is_filled_up_to_its_bound() -> None:
    large = b" " * (MAX_FILE_BYTES - 1) + b"1"
    made = assembled({"a.json": large, "b.json": large, "c.json": b"3"})
    assert made.document["files"] == {"a_json": [1], "c_json": [3]}
    assert "the document would be larger" in reasons(made)[0]


def test_a_manifest_of_too_many_files_is_left_out() -> None:
    line = entry("a.json")
    most = assemble(BUNDLE, 7, [line] * MAX_INDEXED_FILES, [(line, b"1")], field_limit=LIMIT)
    assert len(most.document["manifest"]["files"]) == MAX_INDEXED_FILES
    more = assemble(BUNDLE, 7, [line] * (MAX_INDEXED_FILES + 1), [(line, b"1")], field_limit=LIMIT)
    assert more.document["manifest"] == {"creator_uid": 7, "files": []}
    assert more.document["files"] == {"a_json": [1]}


@pytest.mark.parametrize(
    ("files", "descriptor"),
    [
        ({}, "unversioned"),
        ({"a.json": {"id": 1}}, "unversioned"),
        (
            {"a.json": {"describedBy": "https://s.example/type/biomaterial/8.6.1/cell"}},
            "cell@8.6.1",
        ),
        (
            {"a.json": {"describedBy": "https://s.example/type/5.1.0/x", "schema_version": "5.2"}},
            "x@5.2",
        ),
        (
            {
                "b.json": {
                    "core": {"schema_url": "http://s/sample.json", "schema_version": "3.0.0"}
                },
                "a_1.json": [
                    {"core": {"schema_url": "http://s/assay.json", "schema_version": "3"}}
                ],
                "a_2.json": {"core": {"schema_url": "http://s/assay.json", "schema_version": "3"}},
            },
            "assay@3,sample@3.0.0",
        ),
        ({"a.json": {"schema_version": "2"}}, "@2"),
        ({"a.json": {"describedBy": 3, "schema_version": {}, "core": "x"}}, "unversioned"),
    ],
)
def test_the_descriptor_names_the_schemas(
    files: dict[str, Any], descriptor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever fetched a schema would need one.
    monkeypatch.delattr(socket, "socket")
    assert assembled(files).document["shape_descriptor"] == descriptor


def test_withheld_paths_stay_in_the_document_but_are_not_searchable() -> None:
    made = assembled({"a.json": {"x": 1, "y": 2}, "bad.json": b"{"}).document
    held = withholding(made, {"files.a_json.x"})
    assert held["files"] == made["files"]
    assert [error.get("path") for error in held["errors"]] == [None, "files.a_json.x"]
    assert "files.a_json.x" in flatten(made).numbers
    assert "files.a_json.x" not in flatten(held).numbers
    assert withholding(made, ()) is made


def fields_of(made: documents.Assembled) -> int:
    """Fields as both engines count them."""
    return sum(1 for _ in flatten(made.document).paths())


def many(count: int, name: str = "f") -> dict[str, int]:
    return {f"{name}{number}": number for number in range(count)}


def test_a_file_beyond_the_field_limit_is_left_out_and_named() -> None:
    made = assembled({"a.json": {"x": 1}, "big.json": many(100), "b.json": {"y": 2}}, 50)
    assert made.document["files"] == {"a_json": [{"x": 1}], "b_json": [{"y": 2}]}
    assert made.document["errors"] == [
        {
            "file": "big.json",
            "reason": "has 100 fields, with which the document has more than 50",
        }
    ]
    assert fields_of(made) <= 50


def test_files_are_taken_as_long_as_their_fields_fit_together() -> None:
    made = assembled({f"k{n}.json": many(10) for n in range(10)}, 60)
    assert list(made.document["files"]) == ["k0_json", "k1_json", "k2_json", "k3_json"]
    assert [error["file"] for error in made.errors] == [f"k{n}.json" for n in range(4, 10)]


def test_fields_that_files_have_in_common_count_once() -> None:
    made = assembled({f"cell_{n}.json": many(30) for n in range(200)}, 60)
    assert (made.errors, len(made.document["files"]["cell_json"])) == ((), 200)


@given(
    st.lists(
        st.recursive(
            st.none() | st.integers() | st.text("a:.", max_size=2),
            lambda inner: st.lists(inner) | st.dictionaries(st.text("ab.: ", max_size=3), inner),
            max_leaves=12,
        ),
        max_size=6,
    ),
    st.integers(25, 60),
)
@settings(max_examples=50)
def test_no_document_has_more_fields_than_the_limit(values: list[Any], limit: int) -> None:
    made = assembled({f"m{n % 2}.json.{n // 2}": value for n, value in enumerate(values)}, limit)
    assert fields_of(made) <= limit
    taken = sum(map(len, made.document["files"].values()))
    assert taken + len({error["file"] for error in made.errors}) == len(values)


def test_a_file_of_many_small_values_is_left_out_before_it_is_parsed() -> None:
    small = b"[" + b",".join([b'{"":1}'] * (11 * 1024 * 1024 // 7)) + b"]"
    good = b'{"a":1}'
    tracemalloc.start()
    made = assembled({"small.json": small, "good.json": good})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(small)
    assert [error["file"] for error in made.errors] == ["small.json"]
    assert "of memory" in made.errors[0]["reason"]
    assert made.document["files"] == {"good_json": [{"a": 1}]}


def test_all_files_of_a_document_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    one = b"[" + b",".join([b'{"":1}'] * 1000) + b"]"
    monkeypatch.setattr(documents, "MAX_PARSED_BYTES", int(2.5 * parsed_size(one)))
    made = assembled({f"{name}.json": one for name in "abc"})
    assert [error["file"] for error in made.errors] == ["c.json"]
