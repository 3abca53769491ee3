"""The limits of the specification, repeated as literals."""

import pytest

from pipelines import documents, limits
from pipelines.queries import bounded_jmespath
from storage.errors import Invalid
from storage.search.documents import MAX_KEYWORD_BYTES


@pytest.mark.spec("SEA-21", "LIM-04", "LIM-06", "LIM-07", "LIM-08")
def test_numbers_match_specification() -> None:
    assert limits.MB == 1_048_576
    assert limits.ETAG_CHUNK == 67_108_864
    assert limits.ETAG_CHUNK_MAX_SIZE == 640_000 * 1_048_576
    assert limits.ETAG_MAX_PARTS == 10_000
    assert limits.MAX_INDEXED_FILES == 20_000
    assert limits.ATTACHMENTS_MAX_BYTES == 131_072
    assert limits.COLLECTION_ITEMS_MAX == 1_000
    assert limits.PATCH_MAX == 1_000
    assert (limits.PAGE_MAX, limits.PAGE_RAW_MAX, limits.PAGE_EVENTS_MAX) == (500, 10, 10)
    assert MAX_KEYWORD_BYTES == 8_191


@pytest.mark.spec("SEA-17")
def test_metadata_limits_match_specification() -> None:
    assert documents.MAX_FILE_BYTES == 32 * 1_048_576
    assert documents.MAX_DOCUMENT_BYTES == 64 * 1_048_576


@pytest.mark.spec("NOT-24")
def test_expression_limits_match_specification() -> None:
    assert (
        bounded_jmespath.MAX_SOURCE_BYTES,
        bounded_jmespath.MAX_DEPTH,
        bounded_jmespath.MAX_STEPS,
    ) == (4_096, 64, 1_000_000)
    bounded_jmespath.parse_expression("a".ljust(4_096))
    bounded_jmespath.parse_expression("!" * 63 + "a")
    for beyond in ("a".ljust(4_097), "é".ljust(4_096), "!" * 64 + "a"):
        with pytest.raises(Invalid):
            bounded_jmespath.parse_expression(beyond)
