"""The evaluator of stored queries, against the known answers."""

import json

import pytest

from storage.errors import TimedOut
from storage.query.analysis import flatten
from storage.query.evaluate import compile_query
from storage.query.grammar import parse_request
from tests.storage.contracts.meanings import DOCUMENTS, MEANINGS, Meaning, document, identity


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda meaning: json.dumps(meaning.query))
def test_a_query_means_what_is_written_down(meaning: Meaning) -> None:
    matches = compile_query(parse_request(meaning.query))
    assert [n for n in DOCUMENTS if matches(document(n))] == meaning.names.split()


def test_a_flattened_document_gives_the_same_answer() -> None:
    matches = compile_query(parse_request({"term": {"organism": "homo"}}))
    assert matches(flatten(document("human")))
    assert not matches(flatten(document("mouse")))


def test_ids_are_uuid_and_version() -> None:
    uuid, version = identity("mouse")
    matches = compile_query(parse_request({"ids": {"values": [f"{uuid}.{version}"]}}))
    assert [n for n in DOCUMENTS if matches(document(n))] == ["mouse"]


def test_paths_that_a_document_reports_in_its_errors_are_not_looked_at() -> None:
    matches = compile_query(parse_request({"exists": {"field": "tissue"}}))
    withheld = {"errors": [{"path": "tissue", "reason": "another kind"}]}
    assert matches(document("human"))
    assert not matches({**document("human"), **withheld})


def test_a_query_that_looks_at_too_much_is_given_up() -> None:
    words = " ".join(f"w{number}" for number in range(10_000))
    fuzzy = [{"wildcard": {"text": f"*x*{number}"}} for number in range(300)]
    matches = compile_query(parse_request({"bool": {"should": fuzzy}}))
    with pytest.raises(TimedOut):
        matches({"text": words})
