"""Responses of OpenSearch and URLs that name one."""

from collections.abc import Iterator
from typing import Any

import pytest

from config import SettingsError
from storage.errors import DomainError, Invalid, TimeLimitExceeded, Unavailable
from storage.protocols import IndexedDocument
from storage.search.grammar.clauses import MatchAllClause
from storage.search.opensearch import generations
from storage.search.opensearch.client import OpenSearchEngine
from storage.search.opensearch.documents import PreparedDocument
from storage.search.opensearch.index import OpenSearchIndex, open_opensearch
from tests.storage.search.fake_opensearch import FakeEngine, Reply, serving, stored

VERSION = "2026-01-01T000000.000000Z"
GENERATION = "store-aws-words1-leaves1-3"
FULL: dict[str, Any] = {"type": "rejected_execution_exception", "reason": "queue is full"}
WRONG: dict[str, Any] = {
    "type": "mapper_parsing_exception",
    "reason": "failed to parse",
    "caused_by": {"type": "illegal_argument_exception", "reason": "too many leaves"},
}


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    with serving(FakeEngine(GENERATION)) as engine:
        yield engine


@pytest.fixture
def index(fake: FakeEngine) -> Iterator[OpenSearchIndex]:
    opened = open_opensearch(f"{fake.url}/store", "aws", time_limit_s=5.0, field_limit=100)
    yield opened
    opened.close()


@pytest.fixture
def engine(fake: FakeEngine) -> Iterator[OpenSearchEngine]:
    made = OpenSearchEngine(fake.url, time_limit_s=5.0)
    yield made
    made.close()


def made(number: int) -> IndexedDocument:
    return IndexedDocument(f"u{number}", VERSION, "s#1", 1, {"n": number})


def prepared(number: int, size: int = 20) -> PreparedDocument:
    return PreparedDocument(f"u{number}", VERSION, 1, b'"' + b"x" * (size - 2) + b'"')


def refusing(status: int, said: Any) -> Reply:
    return status, {"error": said, "status": status}


def test_retries_full_engine_with_backoff(fake: FakeEngine, engine: OpenSearchEngine) -> None:
    answers = iter([refusing(429, FULL), refusing(429, FULL)])
    fake.bulk = lambda lines: next(answers, (200, stored(lines)))
    slept: list[float] = []
    assert generations.put_documents(engine, GENERATION, [prepared(1)], sleep=slept.append) == []
    assert fake.sizes == [1, 1, 1]
    assert 0 < slept[0] <= generations.BACKOFF_S[0]
    assert slept[0] < slept[1] * 2


def test_resends_only_rejected_documents(fake: FakeEngine, engine: OpenSearchEngine) -> None:
    def once_full(lines: list[dict[str, Any]]) -> Reply:
        said = stored(lines)
        if len(fake.sizes) == 1:
            said["items"][1]["index"] = {"status": 429, "error": FULL}
        return 200, said

    fake.bulk = once_full
    documents = [prepared(number) for number in range(3)]
    assert generations.put_documents(engine, GENERATION, documents, sleep=lambda s: None) == []
    assert fake.sizes == [3, 1]


def test_an_engine_that_stays_full_is_unavailable(
    fake: FakeEngine, engine: OpenSearchEngine
) -> None:
    fake.bulk = lambda lines: (200, stored(lines, 429, error=FULL))
    slept: list[float] = []
    with pytest.raises(Unavailable) as refused:
        generations.put_documents(engine, GENERATION, [prepared(1)], sleep=slept.append)
    assert refused.value.retry_after_s
    assert sum(slept) <= sum(generations.BACKOFF_S)
    assert len(fake.sizes) == len(generations.BACKOFF_S) + 1


def test_requests_are_of_bounded_size() -> None:
    documents = [prepared(number, generations.MAX_BULK_BYTES // 3) for number in range(7)]
    assert [len(chunk) for chunk in generations.split_chunks(documents)] == [3, 3, 1]
    assert [
        len(chunk)
        for chunk in generations.split_chunks([prepared(1, generations.MAX_BULK_BYTES * 2)] * 2)
    ] == [1, 1]
    small = [prepared(number) for number in range(generations.MAX_BULK_DOCUMENTS + 1)]
    assert [len(chunk) for chunk in generations.split_chunks(small)] == [
        generations.MAX_BULK_DOCUMENTS,
        1,
    ]


def test_a_document_too_large_for_the_engine_is_refused_and_no_other(
    fake: FakeEngine, index: OpenSearchIndex
) -> None:
    def narrow(lines: list[dict[str, Any]]) -> Reply:
        if len(lines) > 2 or lines[1]["uuid"] == "u2":
            return refusing(413, {"type": "too_large", "reason": "too large"})
        return 200, stored(lines)

    fake.bulk = narrow
    (refusal,) = index.write([made(number) for number in range(4)])
    assert refusal.uuid == "u2"
    assert fake.sizes == [4, 1, 1, 1, 1]


def test_refused_document_has_engines_reason(fake: FakeEngine, index: OpenSearchIndex) -> None:
    def second(lines: list[dict[str, Any]]) -> Reply:
        said = stored(lines)
        said["items"][1]["index"] = {"status": 400, "error": WRONG}
        return 200, said

    fake.bulk = second
    (refusal,) = index.write([made(1), made(2), made(3)])
    assert refusal.uuid == "u2"
    assert "too many leaves" in refusal.reason


def test_older_change_is_no_error(fake: FakeEngine, index: OpenSearchIndex) -> None:
    fake.bulk = lambda lines: (200, stored(lines, 409, error=WRONG))
    assert index.write([made(1)]) == []


def test_a_document_that_was_not_stored_is_never_passed_over(
    fake: FakeEngine, index: OpenSearchIndex
) -> None:
    blocked = {"type": "cluster_block_exception", "reason": "disk usage exceeded"}
    fake.bulk = lambda lines: (200, stored(lines, 403, error=blocked))
    with pytest.raises(Unavailable, match="disk usage"):
        index.write([made(1)])


def test_writes_never_create_an_index(fake: FakeEngine, index: OpenSearchIndex) -> None:
    index.write([made(1)])
    assert fake.requests == [
        "GET /_alias/store-aws,store-aws-building",
        f"POST /{GENERATION}-writing/_bulk",
        "GET /_alias/store-aws,store-aws-building",
    ]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (refusing(400, {"type": "query_shard_exception", "reason": "too many"}), Invalid),
        (refusing(503, {"type": "search_phase_execution_exception", "reason": "x"}), Unavailable),
        (refusing(429, FULL), Unavailable),
        (refusing(403, {"type": "security_exception", "reason": "no"}), Unavailable),
        (refusing(504, {"type": "timeout", "reason": "late"}), TimeLimitExceeded),
        (refusing(500, {"type": "query_phase", "reason": "Time exceeded"}), TimeLimitExceeded),
        (
            refusing(500, {"type": "task", "reason": "Cancellation timeout of 1ms"}),
            TimeLimitExceeded,
        ),
        (
            (200, {"timed_out": True, "hits": {"total": {"value": 3}, "hits": []}}),
            TimeLimitExceeded,
        ),
    ],
)
def test_translates_engine_errors(
    fake: FakeEngine, index: OpenSearchIndex, reply: Reply, expected: type[DomainError]
) -> None:
    fake.search = lambda lines: reply
    with pytest.raises(expected):
        index.search(MatchAllClause(), size=1)


def test_silent_engine_times_out(fake: FakeEngine) -> None:
    fake.search = lambda lines: (-1, None)
    engine = OpenSearchEngine(fake.url, time_limit_s=5.0)
    with pytest.raises(TimeLimitExceeded):
        engine.request("POST", "/any/_search", {}, timeout_s=0.1)
    engine.close()


def test_an_engine_that_is_not_there_is_unavailable() -> None:
    index = open_opensearch("http://127.0.0.1:9/store", "aws", time_limit_s=1.0, field_limit=9)
    with pytest.raises(Unavailable) as refused:
        index.ping()
    assert refused.value.retry_after_s
    index.close()


def test_an_index_of_another_analysis_is_rebuilt_not_mixed(
    fake: FakeEngine, index: OpenSearchIndex
) -> None:
    fake.generation = "store-aws-words0-leaves1-3"
    with pytest.raises(Unavailable, match="rebuild"):
        index.search(MatchAllClause(), size=1)
    with pytest.raises(Unavailable, match="rebuild"):
        index.write([made(1)])


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9200/Store",
        "http://localhost:9200/a/b",
        "http:///store",
        "http://localhost/store?shard=2",
        "http://localhost/store?shards=0",
        "http://localhost/store?shards=many",
        "http://localhost:none/store",
    ],
)
def test_a_url_that_names_no_engine_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError):
        open_opensearch(url, "aws", time_limit_s=1.0, field_limit=9)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:p%40ss@search.example/store",
        "http://[::1]:9200",
        "http://localhost:9200/lab-1?shards=4",
    ],
)
def test_a_url_names_an_engine_without_asking_it(url: str) -> None:
    assert open_opensearch(url, "aws", time_limit_s=1.0, field_limit=9)


@pytest.mark.parametrize("said", [{}, {"status": "ok"}, "welcome", []])
def test_invalid_response_is_an_outage(fake: FakeEngine, index: OpenSearchIndex, said: Any) -> None:
    fake.search = lambda lines: (200, said)
    with pytest.raises(Unavailable):
        index.search(MatchAllClause(), size=1)
    fake.bulk = lambda lines: (200, said)
    with pytest.raises(Unavailable):
        index.write([made(1)])


@pytest.mark.spec("SEA-12")
def test_every_search_forbids_the_engine_to_answer_in_part(
    fake: FakeEngine, index: OpenSearchIndex
) -> None:
    nothing = {"timed_out": False, "hits": {"total": {"value": 0}, "hits": []}}
    fake.search = lambda _: (200, nothing)
    index.search(MatchAllClause(), size=1)
    index.get("u1", VERSION)
    list(index.list_ids())
    asked = zip(fake.requests, fake.options, strict=True)
    searches = [options for request, options in asked if request.endswith("/_search")]
    assert len(searches) == 3
    assert all("allow_partial_search_results=false" in options for options in searches)


def test_an_index_without_counts_is_searched_but_has_no_facets(
    fake: FakeEngine, index: OpenSearchIndex
) -> None:
    fake.search = lambda lines: (200, {"timed_out": False, "hits": {"total": {"value": 3}}})
    assert index.search(MatchAllClause(), size=1).total == 3
    with pytest.raises(Unavailable, match="rebuild"):
        index.count_facets(MatchAllClause(), ["a"], size=1)
    with pytest.raises(Unavailable, match="rebuild"):
        index.list_fields(size=1)


@pytest.mark.parametrize("said", [{}, {"timed_out": True, "hits": {"total": {"value": 3}}}])
def test_partial_counts_are_an_error(
    fake: FakeEngine, index: OpenSearchIndex, said: dict[str, Any]
) -> None:
    fake.generation = GENERATION.replace("leaves1", "leaves2")
    fake.search = lambda lines: (200, said)
    with pytest.raises(TimeLimitExceeded if said else Unavailable):
        index.count_facets(MatchAllClause(), ["a"], size=1)
