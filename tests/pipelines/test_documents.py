"""Metadata documents, their shapes, and the memory reserved to load them."""

import json
import socket
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import documents
from pipelines.documents import MAX_FILE_BYTES, assemble_document, document_key, withhold_paths
from pipelines.limits import MAX_INDEXED_FILES
from pipelines.search import (
    FIELDS_PER_SHAPE,
    MAX_SHAPES,
    FieldKinds,
    ShapeChoice,
    choose_shape,
    find_conflicts,
)
from storage.catalog import bundles
from storage.errors import Unavailable
from storage.json_codec import MemoryBudget, estimate_parsed_size
from storage.model import FQID, Checksums, ManifestEntry
from storage.search.documents import flatten_document
from storage.stores import Stores
from tests.builders import make_file
from tests.peak_memory import memory_below
from tests.pipelines.lost_catalog import write
from tests.storage.contracts import real_data

pytestmark = pytest.mark.spec("SEA-20", "VER-03")

BUNDLE = FQID("b" * 8, "2026-01-01T000000.000000Z")
SUMS = Checksums("1" * 40, "2" * 64, "3" * 8, "4" * 32)
LIMIT = 10_000
JSON = 'application/json; dcp-type="metadata/biomaterial"'


def entry(
    name: str, *, indexed: bool = True, content_type: str = JSON, size: int = 10
) -> ManifestEntry:
    return ManifestEntry(name, FQID(f"file-{name}", "v"), indexed, content_type, size, SUMS)


def assembled(contents: Mapping[str, Any], field_limit: int = LIMIT) -> documents.AssembledDocument:
    """A document of files with this JSON, or these bytes."""
    pairs = [
        (entry(name), value if isinstance(value, bytes | None) else json.dumps(value).encode())
        for name, value in contents.items()
    ]
    return assemble_document(BUNDLE, 7, [each for each, _ in pairs], pairs, field_limit=field_limit)


def reasons(made: documents.AssembledDocument) -> list[str]:
    return [error["reason"] for error in made.errors]


@pytest.mark.spec("SVC-08", "SEA-14")
def test_a_document_has_its_bundle_its_manifest_and_its_files() -> None:
    lines = [entry("cell_0.json"), entry("reads.fastq", indexed=False)]
    made = assemble_document(BUNDLE, 7, lines, [(lines[0], b'{"a": 1}')], field_limit=LIMIT)
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


@pytest.mark.spec("SEA-15")
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
    assert document_key(name) == key


@pytest.mark.spec("SEA-15")
def test_files_of_one_key_keep_the_order_of_the_manifest() -> None:
    made = assembled({"cell_2.json": {"n": 2}, "x.json": 0, "cell_0.json": [0], "cell_1.json": "1"})
    assert made.document["files"] == {"cell_json": [{"n": 2}, [0], "1"], "x_json": [0]}


@pytest.mark.spec("SEA-15")
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
def test_metadata_files_are_indexed_json(indexed: bool, content_type: str, expected: bool) -> None:
    assert (
        documents.is_metadata_file(entry("a", indexed=indexed, content_type=content_type))
        is expected
    )


@pytest.mark.spec("SEA-16", "SEA-17")
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
def test_reports_unreadable_files_and_keeps_the_rest(content: bytes | None, reason: str) -> None:
    made = assembled({"good.json": 1, "bad.json": content, "fine.json": 2})
    assert made.document["files"] == {"good_json": [1], "fine_json": [2]}
    assert [error["file"] for error in made.errors] == ["bad.json"]
    assert reason in made.errors[0]["reason"]
    assert made.document["errors"] == list(made.errors)


@pytest.mark.spec("SEA-16")
def test_duplicate_names_are_reported_and_the_last_counts() -> None:
    made = assembled({"a.json": b'{"x": 1, "y": {"z": 1, "z": 2}, "x": 3}'})
    assert made.document["files"] == {"a_json": [{"x": 3, "y": {"z": 2}}]}
    assert reasons(made) == [
        'duplicate name "z", the last counts',
        'duplicate name "x", the last counts',
    ]


@pytest.mark.spec("SEA-17")
def test_many_duplicates_take_little_time_and_memory() -> None:
    content = b"{" + b",".join(b'"k%d": 1, "k%d": 2' % (n, n) for n in range(50_000)) + b"}"
    made = assembled({"a.json": content}, field_limit=100_000)
    assert len(made.errors) == 10


@pytest.mark.spec("SEA-17")
def test_valid_json_is_kept_exactly() -> None:
    value = {"big": 2**70 + 1, "deep": [[]], "pair": "\U0001f600", "float": 0.1, "none": None}
    made = assembled({"a.json": b"\xef\xbb\xbf" + json.dumps(value).encode()})
    assert made.document["files"] == {"a_json": [value]}
    assert documents.parse_document(documents.dump_document(made.document)) == made.document
    assert str(2**70 + 1).encode() in documents.dump_document(made.document)


@pytest.mark.spec("SEA-17")
def test_the_deepest_that_is_allowed_is_read() -> None:
    assert assembled({"a.json": b"[" * 100 + b"]" * 100}).errors == ()


@pytest.mark.spec("SEA-17")
def test_names_of_fields_fill_a_document_to_its_bound() -> None:
    # Each file repeats one long name a thousand times: 40 MB of names from 50 kB of JSON.
    wide = {"x" * 40_000: {str(number): 0 for number in range(1000)}}
    made = assembled({f"{letter}.json": wide for letter in "abc"} | {"d.json": {"x.y": [{"z": 1}]}})
    assert [error["file"] for error in made.errors] == ["b.json", "c.json"]
    assert set(made.document["files"]) == {"a_json", "d_json"}


@pytest.mark.spec("SEA-17")
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
    assert documents.measure_field_names(value) == found


@pytest.mark.spec("SEA-17")
def test_a_file_beyond_its_bound_is_not_parsed() -> None:
    made = assembled({"a.json": b" " * MAX_FILE_BYTES + b"1", "b.json": 1})
    assert made.document["files"] == {"b_json": [1]}
    assert reasons(made) == [f"larger than {MAX_FILE_BYTES} bytes"]


@pytest.mark.spec("SEA-17")
def test_a_document_is_filled_up_to_its_bound() -> None:
    large = b" " * (MAX_FILE_BYTES - 1) + b"1"
    made = assembled({"a.json": large, "b.json": large, "c.json": b"3"})
    assert made.document["files"] == {"a_json": [1], "c_json": [3]}
    assert "the document would be larger" in reasons(made)[0]


@pytest.mark.spec("SEA-18", "LIM-06")
def test_a_manifest_of_too_many_files_is_left_out() -> None:
    line = entry("a.json")
    most = assemble_document(
        BUNDLE, 7, [line] * MAX_INDEXED_FILES, [(line, b"1")], field_limit=LIMIT
    )
    assert len(most.document["manifest"]["files"]) == MAX_INDEXED_FILES
    more = assemble_document(
        BUNDLE, 7, [line] * (MAX_INDEXED_FILES + 1), [(line, b"1")], field_limit=LIMIT
    )
    assert more.document["manifest"] == {"creator_uid": 7, "files": []}
    assert more.document["files"] == {"a_json": [1]}


@pytest.mark.spec("SEA-19", "VER-03")
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


@pytest.mark.spec("SEA-20")
def test_withheld_paths_stay_in_the_document_but_are_not_searchable() -> None:
    made = assembled({"a.json": {"x": 1, "y": 2}, "bad.json": b"{"}).document
    held = withhold_paths(made, {"files.a_json.x"})
    assert held["files"] == made["files"]
    assert [error.get("path") for error in held["errors"]] == [None, "files.a_json.x"]
    assert "files.a_json.x" in flatten_document(made).numbers
    assert "files.a_json.x" not in flatten_document(held).numbers
    assert withhold_paths(made, ()) is made


def fields_of(made: documents.AssembledDocument) -> int:
    """Fields as both engines count them."""
    return sum(1 for _ in flatten_document(made.document).paths())


def many(count: int, name: str = "f") -> dict[str, int]:
    return {f"{name}{number}": number for number in range(count)}


@pytest.mark.spec("SEA-22")
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


@pytest.mark.spec("SEA-22")
def test_takes_files_while_fields_fit() -> None:
    made = assembled({f"k{n}.json": many(10) for n in range(10)}, 60)
    assert list(made.document["files"]) == ["k0_json", "k1_json", "k2_json", "k3_json"]
    assert [error["file"] for error in made.errors] == [f"k{n}.json" for n in range(4, 10)]


@pytest.mark.spec("SEA-22")
def test_fields_that_files_have_in_common_count_once() -> None:
    made = assembled({f"cell_{n}.json": many(30) for n in range(200)}, 60)
    assert (made.errors, len(made.document["files"]["cell_json"])) == ((), 200)


@pytest.mark.spec("SEA-22")
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


@pytest.mark.spec("SEA-16")
def test_a_file_of_many_small_values_is_left_out_before_it_is_parsed() -> None:
    small = b"[" + b",".join([b'{"":1}'] * (11 * 1024 * 1024 // 7)) + b"]"
    good = b'{"a":1}'
    with memory_below(3 * len(small)):
        made = assembled({"small.json": small, "good.json": good})
    assert [error["file"] for error in made.errors] == ["small.json"]
    assert "of memory" in made.errors[0]["reason"]
    assert made.document["files"] == {"good_json": [{"a": 1}]}


@pytest.mark.spec("SEA-16")
def test_files_of_a_document_share_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    one = b"[" + b",".join([b'{"":1}'] * 1000) + b"]"
    monkeypatch.setattr(documents, "MAX_PARSED_BYTES", int(2.5 * estimate_parsed_size(one)))
    made = assembled({f"{name}.json": one for name in "abc"})
    assert [error["file"] for error in made.errors] == ["c.json"]


def settle(documents: list[dict[str, Any]], descriptor: str = "d") -> list[ShapeChoice]:
    """Choose for one document after the other, keeping the shapes as the catalog does."""
    known: list[FieldKinds] = []
    choices = []
    for document in documents:
        choice = choose_shape(descriptor, document, known)
        known[choice.number : choice.number + 1] = [choice.kinds]
        choices.append(choice)
    return choices


def test_documents_that_agree_share_the_first_shape() -> None:
    first, second = settle([{"a": 1, "b": {"c": "x"}}, {"a": 2.5, "d": True}])
    assert (first.name, first.number, second.name, second.number) == ("d#1", 0, "d#1", 0)
    assert second.kinds.items() >= {("a", "number"), ("b", "object"), ("b.c", "string")}
    assert second.kinds["d"] == "boolean"


def test_a_document_that_contradicts_goes_to_the_next_shape() -> None:
    one, two, three = settle([{"a": 1}, {"a": "x"}, {"a": "y", "b": 1}])
    assert [each.number for each in (one, two, three)] == [0, 1, 1]
    assert not one.dropped | two.dropped | three.dropped


def test_empty_values_have_no_kind() -> None:
    one, two = settle([{"a": 1}, {"a": None, "b": []}])
    assert (one.number, two.number) == (0, 0)


def test_objects_and_leaves_contradict_each_other() -> None:
    assert [each.number for each in settle([{"a": {"b": 1}}, {"a": 1}, {"a.b": 2}])] == [0, 1, 0]


def test_withholds_conflicts_when_no_shape_is_left() -> None:
    kinds: list[Any] = [1, "x", True, {"b": 1}]
    assert len(kinds) == MAX_SHAPES
    full = [{"a": value, "k": value} for value in kinds]
    last = settle([*full, {"a": 1, "k": {"deep": {"x": 1}}, "m": 3}])[-1]
    assert last.number == 0
    assert last.dropped == {"k"}
    assert last.kinds["m"] == "number"
    assert last.kinds["k"] == "number"
    assert not [path for path in last.kinds if path.startswith("k.")]


def test_choosing_again_changes_nothing() -> None:
    document = {"a": 1, "b": "x"}
    first = choose_shape("d", document, [])
    assert choose_shape("d", document, [first.kinds]) == first


def test_chooses_shape_with_fewest_conflicts() -> None:
    known = [{"a": "string", "b": "string"}] * (MAX_SHAPES - 1) + [{"a": "number", "b": "string"}]
    assert choose_shape("d", {"a": 1, "b": 2}, known).number == MAX_SHAPES - 1


def test_a_shape_that_would_have_too_many_fields_is_left_as_it_is() -> None:
    full = {f"f{number}": "number" for number in range(FIELDS_PER_SHAPE)}
    assert choose_shape("d", {"new": 1}, [full]).number == 1
    assert choose_shape("d", {"f1": 1}, [{**full, **choose_shape("d", {}, []).kinds}]).number == 1


def test_the_shape_of_a_document_that_reports_errors_is_the_same() -> None:
    known = [choose_shape("d", {"a": 1}, []).kinds]
    reporting = {"a": 1, "errors": [{"file": "x", "reason": "y"}, {"path": "p", "reason": "z"}]}
    assert choose_shape("d", reporting, known).kinds == known[0]


def test_conflicts_are_paths_of_another_kind() -> None:
    assert find_conflicts({"a": "number", "b": "string"}, {"a": "string", "c": "number"}) == {"a"}


def test_real_experiments_find_a_shape_in_every_order() -> None:
    everything = real_data.documents()
    experiments = [each for each in everything if "run_json" not in each["files"]]
    for order in permutations(experiments):
        choices = settle(list(order))
        assert not any(choice.dropped for choice in choices)
    assert all(choice.number < 2 for choice in settle(everything[-2553:]))


MB = 1024 * 1024


def silent(_moved: int) -> None:
    """Report no progress."""


def bundle_of(stores: Stores, content: bytes) -> int:
    file = make_file(stores, content, content_type="application/json")
    fqid = write(stores, file)
    with stores.catalog.read() as tx:
        row = bundles.find(tx, fqid)
    assert row is not None
    return row.id


@pytest.mark.parametrize("is_cached", [False, True])
def test_document_waits_for_memory(stores: Stores, is_cached: bool) -> None:
    budget = MemoryBudget(40 * MB, timeout_s=0.01)
    own = replace(stores, memory=budget)
    ident = bundle_of(own, b"[" + b"{}," * 100_000 + b"{}]")
    if is_cached:
        documents.load_document_text(own, "aws", ident, silent)
    with (
        budget.reserve(40 * MB),
        pytest.raises(Unavailable),
        documents.open_document(own, "aws", ident, silent),
    ):
        pass
    with (
        documents.open_document(own, "aws", ident, silent) as document,
        pytest.raises(Unavailable),
        budget.reserve(40 * MB),
    ):
        assert document["files"]
    assert not document
    with budget.reserve(40 * MB):
        pass


def test_a_text_that_is_assembled_waits_and_a_cached_one_does_not(stores: Stores) -> None:
    budget = MemoryBudget(40 * MB, timeout_s=0.01)
    own = replace(stores, memory=budget)
    ident = bundle_of(own, b"[" + b"{}," * 100_000 + b"{}]")
    with budget.reserve(40 * MB), pytest.raises(Unavailable):
        documents.load_document_text(own, "aws", ident, silent)
    text = documents.load_document_text(own, "aws", ident, silent)
    with budget.reserve(40 * MB):
        assert documents.load_document_text(own, "aws", ident, silent) == text
