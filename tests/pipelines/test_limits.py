"""The numbers of the contract, written out a second time: other tests take them from the code."""

import pytest

from pipelines import limits
from pipelines.finding import documents
from pipelines.queries import jmes
from storage.errors import Invalid
from storage.query.analysis import MAX_KEYWORD_BYTES


def test_the_numbers_are_those_of_the_contract() -> None:
    assert limits.MB == 1_048_576
    assert limits.ETAG_CHUNK == 67_108_864
    assert limits.ETAG_CHUNK_UNTIL == 640_000 * 1_048_576
    assert limits.ETAG_MAX_PARTS == 10_000
    assert limits.MAX_INDEXED_FILES == 20_000
    assert limits.ATTACHMENTS_BYTES == 131_072
    assert limits.COLLECTION_MAX == 1_000
    assert limits.PATCH_MAX == 1_000
    assert (limits.PAGE_MAX, limits.PAGE_RAW_MAX, limits.PAGE_EVENTS_MAX) == (500, 10, 10)
    assert MAX_KEYWORD_BYTES == 8_191


def test_metadata_are_bounded_as_the_contract_says() -> None:
    assert documents.MAX_FILE_BYTES == 32 * 1_048_576
    assert documents.MAX_DOCUMENT_BYTES == 64 * 1_048_576


def test_expressions_are_bounded_as_the_contract_says() -> None:
    assert (jmes.MAX_SOURCE_BYTES, jmes.MAX_DEPTH, jmes.MAX_STEPS) == (4_096, 64, 1_000_000)
    jmes.parse("a".ljust(4_096))
    jmes.parse("!" * 63 + "a")
    for beyond in ("a".ljust(4_097), "é".ljust(4_096), "!" * 64 + "a"):
        with pytest.raises(Invalid):
            jmes.parse(beyond)
