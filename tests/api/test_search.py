import json

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
        entry = {"uuid": file, "version": VERSION, "name": "donor.json", "indexed": True}
        depositor.put_bundle(uuid_of(number), [entry], version=f"2026-0{number}-01T000000.000000Z")
    depositor.drain()

    def search(query, *, path="/v1/search?replica=aws"):
        return client.post(path, json={"es_query": query})

    return search


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
    assert "search_score" in first
    assert "metadata" not in first


def test_a_query_finds_what_it_names_and_raw_adds_the_document(found) -> None:
    query = {"query": {"match": {"files.donor_json.organ": "o2"}}}
    answer = found(query, path="/v1/search?replica=gcp&output_format=raw").json
    (one,) = answer["results"]
    assert one["metadata"]["files"]["donor_json"] == [{"describedBy": "x", "organ": "o2"}]


def test_a_walk_sees_every_match_once(found, client) -> None:
    path, seen, statuses = "/v1/search?replica=aws&per_page=2", [], []
    while path:
        page = found({}, path=path)
        seen += [one["bundle_fqid"] for one in page.json["results"]]
        statuses.append(page.status_code)
        path = page.headers.get("Link", "").partition(">")[0].removeprefix("<http://localhost")
    assert len(set(seen)) == len(seen) == 3
    assert statuses == [206, 200]


def test_a_pointer_belongs_to_its_query(found) -> None:
    link = found({}, path="/v1/search?replica=aws&per_page=2").headers["Link"]
    path = link.partition(">")[0].removeprefix("<http://localhost")
    other = found({"query": {"match_all": {}}}, path=path)
    assert (other.status_code, other.json["code"]) == (400, "illegal_token")
    assert found({}, path=path.replace("aws", "gcp")).status_code == 400


def test_tombstoned_bundles_vanish(found, client, drain) -> None:
    path = f"/v1/bundles/{uuid_of(2)}?replica=aws"
    client.delete(path, json={"reason": "x"}, headers={"Authorization": "Bearer ingest"})
    drain()
    assert found({}).json["total_hits"] == 2
