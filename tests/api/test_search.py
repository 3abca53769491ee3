"""Search over HTTP."""

import json
from typing import Any

import pytest

from tests.api.builders import VERSION, uuid_of


@pytest.fixture
def found(depositor, client):
    """Three bundles with metadata, searchable in both replicas."""
    for number in (1, 2, 3):
        source = depositor.stage(
            json.dumps({"describedBy": "x", "organ": f"o{number}"}).encode(),
            f"m{number}.json",
            "application/json",
        )
        file = uuid_of(0x100 + number)
        depositor.put_file(file, source=source)
    depositor.drain()
    for number in (1, 2, 3):
        file = uuid_of(0x100 + number)
        entry = {"uuid": file, "version": VERSION, "name": "donor.json", "indexed": True}
        depositor.put_bundle(uuid_of(number), [entry], version=f"2026-0{number}-01T000000.000000Z")
    depositor.drain()

    def search(query, *, path="/v1/search?replica=aws"):
        return client.post(path, json={"es_query": query})

    return search


@pytest.mark.spec("FMT-04", "SEA-02", "SEA-03")
def test_an_empty_query_finds_every_bundle_newest_first(found) -> None:
    answer = found({}).json
    assert answer["total_hits"] == 3
    assert answer["es_query"] == {}
    uuids = [one["bundle_fqid"].partition(".")[0] for one in answer["results"]]
    assert uuids == [uuid_of(3), uuid_of(2), uuid_of(1)]
    first = answer["results"][0]
    assert first["bundle_url"] == (
        f"http://localhost/v1/bundles/{uuid_of(3)}?version=2026-03-01T000000.000000Z&replica=aws"
    )
    assert first.keys() == {"bundle_fqid", "bundle_url", "search_score"}
    assert first["bundle_fqid"] == f"{uuid_of(3)}.2026-03-01T000000.000000Z"
    assert first["search_score"] is None or isinstance(first["search_score"], int | float)


@pytest.mark.spec("SEA-04")
def test_a_query_finds_what_it_names_and_raw_adds_the_document(found) -> None:
    query = {"query": {"match": {"files.donor_json.organ": "o2"}}}
    answer = found(query, path="/v1/search?replica=gcp&output_format=raw").json
    (one,) = answer["results"]
    assert one["metadata"]["files"]["donor_json"] == [{"describedBy": "x", "organ": "o2"}]


@pytest.mark.spec("SEA-07", "CON-02")
def test_a_walk_sees_every_match_once(found, client) -> None:
    path, seen, statuses = "/v1/search?replica=aws&per_page=2", [], []
    while path:
        page = found({}, path=path)
        seen += [one["bundle_fqid"] for one in page.json["results"]]
        statuses.append(page.status_code)
        path = page.headers.get("Link", "").partition(">")[0].removeprefix("<http://localhost")
    assert len(set(seen)) == len(seen) == 3
    assert statuses == [206, 200]


@pytest.mark.spec("SEA-06")
def test_a_pointer_belongs_to_its_query(found) -> None:
    link = found({}, path="/v1/search?replica=aws&per_page=2").headers["Link"]
    path = link.partition(">")[0].removeprefix("<http://localhost")
    other = found({"query": {"match_all": {}}}, path=path)
    assert (other.status_code, other.json["code"]) == (400, "illegal_token")
    elsewhere = found({}, path=path.replace("aws", "gcp"))
    assert (elsewhere.status_code, elsewhere.json["code"]) == (400, "illegal_token")


@pytest.mark.spec("BUN-51", "SEA-08")
def test_a_withdrawn_bundle_is_not_found_before_the_index_knows(found, client) -> None:
    path = f"/v1/bundles/{uuid_of(3)}?replica=gcp"
    gone = client.delete(path, json={"reason": "x"}, headers={"Authorization": "Bearer ingest"})
    assert gone.status_code == 200
    for replica in ("aws", "gcp"):
        answer = found({}, path=f"/v1/search?replica={replica}").json
        shown = [one["bundle_fqid"].partition(".")[0] for one in answer["results"]]
        assert (shown, answer["total_hits"]) == ([uuid_of(2), uuid_of(1)], 2)


@pytest.mark.spec("SEA-07")
@pytest.mark.parametrize("withdrawn", [1, 2, 3])
def test_a_page_is_full_and_none_is_empty_before_the_index_knows(
    found, client, withdrawn: int
) -> None:
    path = f"/v1/bundles/{uuid_of(withdrawn)}?replica=aws"
    client.delete(path, json={"reason": "x"}, headers={"Authorization": "Bearer ingest"})
    page = found({}, path="/v1/search?replica=aws&per_page=1")
    seen = [page]
    while "Link" in page.headers:
        page = found({}, path=path_of(page))
        seen.append(page)
    assert [(one.status_code, len(one.json["results"])) for one in seen] == [(206, 1), (200, 1)]
    shown = [one.json["results"][0]["bundle_fqid"].partition(".")[0] for one in seen]
    assert shown == [uuid_of(left) for left in (3, 2, 1) if left != withdrawn]


@pytest.mark.spec("BUN-51", "SEA-08")
def test_tombstoned_bundles_vanish(found, client, drain) -> None:
    path = f"/v1/bundles/{uuid_of(2)}?replica=aws"
    client.delete(path, json={"reason": "x"}, headers={"Authorization": "Bearer ingest"})
    drain()
    assert found({}).json["total_hits"] == 2


@pytest.mark.spec("SEA-04", "SEA-05", "LIM-03")
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "replica"),
        ("replica=azure", "replica"),
        ("replica=aws&output_format=long", "output_format"),
        ("replica=aws&per_page=0", "per_page"),
        ("replica=aws&per_page=501", "per_page"),
        ("replica=aws&per_page=ten", "per_page"),
        ("replica=aws&output_format=raw&per_page=11", "per_page"),
        ("replica=aws&output_format=raw&per_page=0", "per_page"),
    ],
)
def test_a_bad_parameter_is_named(found, query: str, said: str) -> None:
    answer = found({}, path=f"/v1/search?{query}")
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    assert said in answer.json["detail"]


@pytest.mark.spec("SEA-05")
@pytest.mark.parametrize(
    "query", ["per_page=500", "output_format=raw&per_page=10", "OUTPUT=x&per_page=1&per_page=0"]
)
def test_limits_themselves_are_allowed_and_unknown_parameters_ignored(found, query: str) -> None:
    assert found({}, path=f"/v1/search?replica=aws&{query}").status_code in (200, 206)


@pytest.mark.spec("SEA-01")
@pytest.mark.parametrize("body", [{}, {"es_query": []}, {"es_query": {}, "size": 3}, []])
def test_a_body_is_a_query_and_nothing_else(client, body) -> None:
    answer = client.post("/v1/search?replica=aws", json=body)
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")


def nested(depth: int) -> dict[str, Any]:
    query: dict[str, Any] = {"match_all": {}}
    for _ in range(depth):
        query = {"bool": {"must": [query]}}
    return query


@pytest.mark.spec("SEA-01", "SEA-09", "ERR-12")
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"query": {"nonsense": {}}}, "nonsense"),
        ({"query": {"match_all": {}}, "size": 3}, "size"),
        ({"query": {"term": {"a": ["b"]}}}, "term"),
        ({"query": {"terms": {"a": {"index": "users", "id": "1", "path": "p"}}}}, "terms"),
        ({"query": {"regexp": {"a": "(" * 3}}}, "regexp"),
        ({"query": {"script": {"script": "1"}}}, "script"),
        ({"query": {"bool": {"must": [{"match_all": {}}] * 1100}}}, "16384"),
        (nested(21), "20"),
    ],
)
def test_rejects_invalid_queries_with_reason(found, query, said: str) -> None:
    answer = found(query)
    assert (answer.status_code, answer.json["code"]) == (400, "elasticsearch_bad_request")
    told = answer.json["detail"] + json.dumps(answer.json["errors"])
    assert said in told


@pytest.mark.spec("SEA-01")
@pytest.mark.parametrize(
    "query", [{}, {"query": {"match_all": {}}}, {"match_all": {}}, {"bool": {}}]
)
def test_the_forms_that_match_everything(found, query) -> None:
    assert found(query).json["total_hits"] == 3


@pytest.mark.spec("SEA-04", "CON-04")
def test_raw_pages_have_10_hits_and_exact_numbers(depositor, client) -> None:
    written = '{"exact":9007199254740993,"huge":123456789012345678901234567890,"tenth":0.10}'
    source = depositor.stage(written.encode(), "n.json", "application/json")
    depositor.put_file(uuid_of(0x200), source=source)
    depositor.drain()
    entry = {"uuid": uuid_of(0x200), "version": VERSION, "name": "n.json", "indexed": True}
    for number in range(1, 12):
        depositor.put_bundle(uuid_of(number), [entry])
    depositor.drain()
    page = client.post("/v1/search?replica=aws&output_format=raw", json={"es_query": {}})
    assert (page.status_code, len(page.json["results"])) == (206, 10)
    assert b'"exact":9007199254740993,"huge":123456789012345678901234567890' in page.data
    assert "output_format=raw" in page.headers["Link"]
    assert page.headers["X-OpenAPI-Paginated-Content-Key"] == "results"
    last = client.post(path_of(page), json={"es_query": {}})
    assert (last.status_code, len(last.json["results"]), "Link" in last.headers) == (200, 1, False)


def path_of(page) -> str:
    return page.headers["Link"].partition(">")[0].removeprefix("<http://localhost")


@pytest.mark.spec("SEA-06", "CON-05", "ERR-07")
def test_a_pointer_that_was_tampered_with_is_refused(found) -> None:
    path = path_of(found({}, path="/v1/search?replica=aws&per_page=2"))
    base, _, pointer = path.partition("search_after=")
    flipped = ("A" if pointer[0] != "A" else "B") + pointer[1:]
    for bad in (flipped, pointer[:-4], "", "x", pointer + "A"):
        answer = found({}, path=f"{base}search_after={bad}")
        assert (answer.status_code, answer.json["code"]) == (400, "illegal_token"), bad
    raw = found({}, path=path.replace("per_page=2", "output_format=raw&per_page=2"))
    assert (raw.status_code, raw.json["code"]) == (400, "illegal_token")
    assert found({}, path=path.replace("per_page=2", "per_page=1")).status_code == 200


@pytest.mark.spec("SEA-07")
def test_paging_is_stable_while_bundles_change(found, depositor, client) -> None:
    page = found({}, path="/v1/search?replica=aws&per_page=1")
    seen = [one["bundle_fqid"] for one in page.json["results"]]
    entry = {"uuid": uuid_of(0x101), "version": VERSION, "name": "donor.json", "indexed": True}
    depositor.put_bundle(uuid_of(9), [entry], version="2026-09-01T000000.000000Z")
    gone = f"/v1/bundles/{uuid_of(2)}?replica=aws"
    client.delete(gone, json={"reason": "x"}, headers={"Authorization": "Bearer ingest"})
    depositor.drain()
    while "Link" in page.headers:
        page = found({}, path=path_of(page))
        seen += [one["bundle_fqid"] for one in page.json["results"]]
    assert [fqid.partition(".")[0] for fqid in seen] == [uuid_of(3), uuid_of(1)]


@pytest.mark.spec("VER-03")
def test_a_query_may_ask_for_the_schema_versions_of_metadata(depositor, client) -> None:
    for number, version in ((1, "8.6.1"), (2, "9.0.0")):
        described = {"describedBy": f"https://s.example/type/biomaterial/{version}/cell"}
        source = depositor.stage(json.dumps(described).encode(), "m.json", "application/json")
        depositor.put_file(uuid_of(0x300 + number), source=source)
        depositor.drain()
        file = {"uuid": uuid_of(0x300 + number), "version": VERSION}
        depositor.put_bundle(uuid_of(number), [{**file, "name": "cell_0.json", "indexed": True}])
    depositor.drain()
    query = {"term": {"shape_descriptor.keyword": "cell@9.0.0"}}
    answer = client.post("/v1/search?replica=gcp", json={"es_query": query})
    assert [one["bundle_fqid"] for one in answer.json["results"]] == [f"{uuid_of(2)}.{VERSION}"]


@pytest.mark.spec("SEA-22")
def test_a_file_beyond_the_field_limit_leaves_its_bundle_searchable(depositor, client) -> None:
    entries = []
    for number, value in enumerate([{"organ": "o"}, {f"f{n}": n for n in range(10_001)}]):
        name = f"m{number}.json"
        source = depositor.stage(json.dumps(value).encode(), name, "application/json")
        depositor.put_file(uuid_of(0x100 + number), source=source)
        entry = {"uuid": uuid_of(0x100 + number), "version": VERSION, "name": name, "indexed": True}
        entries.append(entry)
    depositor.drain()
    assert depositor.put_bundle(uuid_of(1), entries).status_code == 201
    depositor.drain()
    query = {"es_query": {"query": {"match": {"files.m0_json.organ": "o"}}}}
    for replica in ("aws", "gcp"):
        path = f"/v1/search?replica={replica}&output_format=raw"
        (one,) = client.post(path, json=query).json["results"]
        assert list(one["metadata"]["files"]) == ["m0_json"]
        assert [error["file"] for error in one["metadata"]["errors"]] == ["m1.json"]
        event = client.get(f"/v1/events/{uuid_of(1)}?replica={replica}&version={VERSION}")
        assert event.json["errors"] == one["metadata"]["errors"]
    assert client.get("/health").json["parts"]["unindexed"]["status"] == "ok"
