"""JSON documents: every fault with its line and column, or the pointer of a schema."""

import json
import resource
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_client.validation.documents import (
    DETAILED_BYTES,
    MAX_FAULTS,
    MAX_METADATA,
    validate_document,
)
from store_client.validation.findings import Finding
from store_client.validation.schemas import SchemaSet
from tests.peak_memory import memory_below

pytestmark = pytest.mark.spec("CLI-160")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
INDENT = st.sampled_from([None, 0, 1, 3])


def dump(value: object, indent: int | None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def place(before: str) -> tuple[int, int]:
    """Line and column of what follows a text, counted apart from the client."""
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    assert found.severity == "error"
    return found


@given(JSON, INDENT)
def test_accepts_all_json(value: object, indent: int | None) -> None:
    assert validate_document("a.json", dump(value, indent).encode()) == []


@given(JSON, INDENT, st.text(" \n\t\r", max_size=5), st.sampled_from("x}]:,%"))
def test_places_what_follows_a_document(
    value: object, indent: int | None, space: str, extra: str
) -> None:
    # Digits would prolong a number.
    text = dump([value], indent) + space
    found = only(validate_document("a.json", (text + extra).encode()))
    assert (found.line, found.column) == place(text)


@given(st.lists(JSON, max_size=3), INDENT, st.sampled_from(["NaN", "Infinity", "-Infinity"]))
def test_places_constants_that_are_not_json(
    values: list[object], indent: int | None, constant: str
) -> None:
    mark = '"here"'
    before, _, after = dump([*values, "here"], indent).rpartition(mark)
    text = f"{before}{constant}{after}"
    found = only(validate_document("a.json", text.encode()))
    assert (found.line, found.column) == place(before)
    assert found.message == f"{constant} is not JSON"


@given(
    st.dictionaries(st.text(), JSON, min_size=1, max_size=4),
    st.lists(JSON, max_size=2),
    INDENT,
)
def test_places_each_name_that_is_given_again(
    members: dict[str, object], others: list[object], indent: int | None
) -> None:
    name = next(iter(members))
    inner = dump(members, indent)
    again = f"{inner[:-1]},\n {json.dumps(name)}: 1, {json.dumps(name)}: 2}}"
    before = dump([*others, 0], indent)[: -1 if indent is None else None].rstrip("]\n ")
    text = f"{before}, {again}]"
    found = validate_document("a.json", text.encode())
    first = text.rindex(f"{json.dumps(name)}: 1")
    second = text.rindex(f"{json.dumps(name)}: 2")
    assert [(one.line, one.column) for one in found] == [place(text[:first]), place(text[:second])]
    assert all("is given twice in one object" in one.message for one in found)


@given(st.text(string.printable, max_size=30), st.binary(max_size=5))
def test_places_the_first_byte_that_is_not_utf_8(before: str, after: bytes) -> None:
    found = only(validate_document("a.json", before.encode() + b"\xff" + after))
    assert (found.line, found.column, found.message) == (*place(before), "not UTF-8")


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_never_fails_and_agrees_with_python(data: bytes) -> None:
    found = validate_document("a.json", data)
    try:
        json.loads(data.decode())
    except ValueError:
        assert found
    assert all(one.line is not None and one.column is not None for one in found)


def test_finds_deep_nesting() -> None:
    assert only(validate_document("a.json", b"[" * 200_000)).message == "nested too deeply"


def test_a_large_document_without_rules_takes_little_memory() -> None:
    data = b"[" + b"{}," * (DETAILED_BYTES // 3) + b"{}]"
    # As values, the objects alone would take fifteen times their text.
    with memory_below(8 * len(data)):
        assert validate_document("a.json", data, SchemaSet()) == []


@pytest.mark.parametrize(("item", "column"), [(b"NaN", 3), (b'{"a": 1, "a": 2}', 12)])
def test_places_many_faults_of_a_large_document(item: bytes, column: int) -> None:
    data = b'["' + b"x" * 1_000_000 + b'"\n' + b"\n".join([b", " + item] * 20_000) + b"]"
    began = time.process_time()
    found = validate_document("a.json", data)
    # Each place was once counted from the beginning, which took minutes.
    assert time.process_time() - began < 5
    assert [(one.line, one.column) for one in found] == [(n + 2, column) for n in range(MAX_FAULTS)]


def test_long_texts_beside_a_fault_take_little_memory() -> None:
    data = b'["' + b"x" * 4_000_000 + b'", NaN]'
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (found,) = validate_document("a.json", data)
    assert found.column == len(data) - 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10 * len(data) / 1024


def test_warns_of_documents_that_the_store_does_not_search() -> None:
    (found,) = validate_document("a.json", b" " * (MAX_METADATA + 1), SchemaSet())
    assert (found.severity, found.message) == (
        "warning",
        "larger than 32 MiB: the store does not search it",
    )


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (Finding("a.json", "Expecting value", line=2, column=7), "a.json:2:7: Expecting value"),
        (Finding("a.json", "is wrong", pointer="/b/0"), "a.json: /b/0: is wrong"),
        (Finding("a.json", "is wrong", pointer=""), "a.json: is wrong"),
        (Finding("t.tsv", "2 cells", "warning", line=3), "t.tsv:3: warning: 2 cells"),
        (Finding("a", "is empty", "warning"), "a: warning: is empty"),
    ],
)
def test_findings_read_as_those_of_compilers(finding: Finding, line: str) -> None:
    assert str(finding) == line
