"""Search results as pandas frames, of a served store."""

import json
import subprocess
import sys
import time

import pandas
import pytest

import store_client
from store_client import Client, Misused
from tests.client.remote.conftest import Deposit

SAMPLES = [
    {"organism": "Danio rerio", "age": 3, "weight": 1.5, "treated": True, "marks": ["a", "b", "a"]},
    {"organism": "Danio rerio", "age": 4, "weight": 2, "treated": False, "marks": ["a"]},
    {"organism": "Mus musculus", "age": 5},
]
KIND = "frames0"
"""A word of all samples here, and of nothing else in the store."""


@pytest.fixture(scope="module")
def bundles(deposit: Deposit) -> list[str]:
    """Their uuids in the order of the samples."""
    return [
        deposit({"sample.json": json.dumps({**one, "kind": KIND}).encode(), "reads": b"x" * 10})
        for one in SAMPLES
    ]


@pytest.fixture
def ready(client: Client, bundles: list[str]) -> Client:
    """A client of the store once all are found by a search."""
    deadline = time.monotonic() + 60
    while len(store_client.search_frame(KIND, client=client)) < len(bundles):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return client


def test_row_for_each_bundle(ready: Client, bundles: list[str]) -> None:
    frame = store_client.search_frame(KIND, client=ready)
    assert list(frame.columns) == ["uuid", "version"]
    assert set(frame["uuid"]) == set(bundles)
    assert len(store_client.search_frame(KIND, client=ready, limit=2)) == 2


def test_columns_have_fitting_types(ready: Client, bundles: list[str]) -> None:
    fields = ["organism", "age", "weight", "treated", "files.sample_json.marks", "count", "size"]
    frame = store_client.search_frame(KIND, fields, client=ready).set_index("uuid")
    frame = frame.loc[bundles]
    assert list(frame.columns) == ["version", *fields]
    assert frame["organism"].tolist() == [one["organism"] for one in SAMPLES]
    kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert kinds["age"] == "Int64"
    assert kinds["weight"] == "Float64"
    assert kinds["treated"] == "boolean"
    assert frame["weight"].tolist()[:2] == [1.5, 2.0]
    assert frame["weight"].isna().tolist() == [False, False, True]
    assert frame["files.sample_json.marks"].tolist()[:2] == [["a", "b"], "a"]
    assert pandas.isna(frame["files.sample_json.marks"].iloc[2])
    assert frame["count"].tolist() == [2, 2, 2]
    assert (frame["size"] > 10).all()
    assert frame.groupby("organism")["age"].mean().to_dict() == {
        "Danio rerio": 3.5,
        "Mus musculus": 5.0,
    }


def test_words_filters_and_queries_choose(ready: Client, bundles: list[str]) -> None:
    def found(*query: object, **more: object) -> set[str]:
        return set(store_client.search_frame(*query, client=ready, **more)["uuid"])  # type: ignore[arg-type]

    assert found(f"{KIND} danio") == set(bundles[:2])
    assert found(f"{KIND} organism:mus") == {bundles[2]}
    assert found(KIND, filters={"organism": "Mus musculus"}) == {bundles[2]}
    assert found(KIND, filters={"age": ["3", "5"]}) == {bundles[0], bundles[2]}
    assert found({"match": {"files.sample_json.kind": KIND}}) == set(bundles)


def test_short_name_stands_for_all_fields_that_end_with_it(ready: Client, deposit: Deposit) -> None:
    other = deposit({"donor.json": b'{"organism": "Homo sapiens", "kind": "frames1"}'})
    deadline = time.monotonic() + 60
    # Its fields are known as soon as it is found.
    while store_client.search_frame("frames1", client=ready).empty:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    frame = store_client.search_frame("frames1", ["organism"], client=ready)
    assert frame.to_dict("records")[0] | {"version": ""} == {
        "uuid": other,
        "version": "",
        "organism": "Homo sapiens",
    }
    both = store_client.search_frame(KIND, ["organism"], client=ready)
    assert set(both["organism"]) == {"Danio rerio", "Mus musculus"}


def test_no_result_is_an_empty_frame(ready: Client) -> None:
    frame = store_client.search_frame("nowhere0", ["organism"], client=ready)
    assert (len(frame), list(frame.columns)) == (0, ["uuid", "version", "organism"])


@pytest.mark.parametrize(
    ("query", "fields", "more", "said"),
    [
        ("", ["organisn"], {}, "organisn"),
        ("", "organism", {}, "fields"),
        ("", [], {"limit": 0}, "limit"),
        ("", [], {"filters": {"organisn": "x"}}, "organisn"),
        ({"match_all": {}}, [], {"filters": {"organism": "x"}}, "filters"),
        ("", [], {"replica": "azure"}, "azure"),
    ],
)
def test_names_what_is_wrong(
    ready: Client, query: object, fields: object, more: dict[str, object], said: str
) -> None:
    with pytest.raises(Misused, match=said):
        store_client.search_frame(query, fields, client=ready, **more)  # type: ignore[arg-type]


def test_without_pandas_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None; import store_client\n"
        "try: store_client.search_frame('x')\n"
        "except store_client.Misused as error: print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "consortium-store-client[pandas]" in done.stdout, done.stderr
