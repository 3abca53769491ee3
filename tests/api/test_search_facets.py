"""Facets and fields over HTTP."""

import json

import pytest

from tests.api.builders import VERSION, uuid_of

FACETS = "/v1/search/facets?replica=aws"
FIELDS = "/v1/search/fields?replica=aws"
ORGAN = "files.donor_json.organ"
AGE = "files.donor_json.age"


@pytest.fixture
def deposited(depositor):
    """Four bundles; three are of livers."""
    donors = [("liver", 3), ("liver", 3), ("kidney", 7), ("liver", 1.5)]
    for number, (organ, age) in enumerate(donors, 1):
        content = json.dumps({"organ": organ, "age": age, "living": age < 2}).encode()
        source = depositor.stage(content, f"m{number}.json", "application/json")
        depositor.put_file(uuid_of(0x100 + number), source=source)
    depositor.drain()
    for number in range(1, 5):
        file = {"uuid": uuid_of(0x100 + number), "version": VERSION}
        depositor.put_bundle(uuid_of(number), [{**file, "name": "donor.json", "indexed": True}])
    depositor.drain()


@pytest.fixture
def count(client, deposited):
    def send(fields, query=None, *, path=FACETS, **more):
        body = {"es_query": query or {}, "fields": fields, **more}
        return client.post(path, json=body)

    return send


@pytest.mark.spec("SEA-26", "SEA-27")
def test_counts_matches_by_value(count) -> None:
    answer = count([ORGAN, AGE, "files.donor_json.living"])
    assert answer.status_code == 200
    assert answer.json == {
        "total": 4,
        "facets": {
            ORGAN: [{"value": "liver", "count": 3}, {"value": "kidney", "count": 1}],
            AGE: [
                {"value": 3, "count": 2},
                {"value": 1.5, "count": 1},
                {"value": 7, "count": 1},
            ],
            "files.donor_json.living": [
                {"value": False, "count": 3},
                {"value": True, "count": 1},
            ],
        },
        "unknown_fields": {},
    }


@pytest.mark.spec("SEA-26")
def test_counts_only_what_a_query_matches(count) -> None:
    narrow = count([ORGAN], {"query": {"range": {AGE: {"gte": 3}}}}).json
    assert narrow["total"] == 3
    assert narrow["facets"][ORGAN] == [
        {"value": "liver", "count": 2},
        {"value": "kidney", "count": 1},
    ]


@pytest.mark.spec("SEA-28")
def test_size_limits_the_values_of_each_field(count) -> None:
    assert [len(found) for found in count([ORGAN, AGE], size=1).json["facets"].values()] == [1, 1]


@pytest.mark.spec("SEA-28")
def test_ten_values_are_counted_by_default(count, client, depositor) -> None:
    ages = [{"age": number} for number in range(12)]
    source = depositor.stage(json.dumps({"all": ages}).encode(), "all.json", "application/json")
    depositor.put_file(uuid_of(0x200), source=source)
    depositor.drain()
    file = {"uuid": uuid_of(0x200), "version": VERSION, "name": "all.json", "indexed": True}
    depositor.put_bundle(uuid_of(9), [file])
    depositor.drain()
    assert len(count(["files.all_json.all.age"]).json["facets"]["files.all_json.all.age"]) == 10


@pytest.mark.spec("SEA-29")
def test_unknown_field_is_empty_and_nearest_are_named(count) -> None:
    answer = count([ORGAN, "files.donor_json.orgna", "zzz", "files.donor_json"]).json
    assert answer["facets"]["files.donor_json.orgna"] == answer["facets"]["zzz"] == []
    assert answer["unknown_fields"] == {"files.donor_json.orgna": [ORGAN], "zzz": []}


@pytest.mark.spec("SEA-29")
def test_field_without_values_among_the_matches_is_known(count) -> None:
    answer = count([ORGAN], {"match_none": {}}).json
    assert (answer["total"], answer["facets"], answer["unknown_fields"]) == (0, {ORGAN: []}, {})


@pytest.mark.spec("SEA-26", "SEA-28")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"es_query": {}}, "fields"),
        ({"fields": [ORGAN]}, "es_query"),
        ({"es_query": {}, "fields": []}, "fields"),
        ({"es_query": {}, "fields": [ORGAN] * 21}, "fields"),
        ({"es_query": {}, "fields": ORGAN}, "fields"),
        ({"es_query": {}, "fields": [""]}, "fields"),
        ({"es_query": {}, "fields": ["x" * 1001]}, "fields"),
        ({"es_query": {}, "fields": [ORGAN], "size": 0}, "size"),
        ({"es_query": {}, "fields": [ORGAN], "size": 101}, "size"),
        ({"es_query": {}, "fields": [ORGAN], "size": "3"}, "size"),
    ],
)
def test_rejects_invalid_facet_requests(client, body, said: str) -> None:
    answer = client.post(FACETS, json=body)
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    assert said in answer.json["detail"] + json.dumps(answer.json["errors"])


@pytest.mark.spec("SEA-28")
def test_most_fields_and_values_are_allowed(count) -> None:
    fields = ["x" * 1000, *(f"f{number}" for number in range(19))]
    assert count(fields, size=100).status_code == 200


@pytest.mark.spec("SEA-26", "SEA-09")
def test_rejects_invalid_queries_with_their_place(count) -> None:
    answer = count([ORGAN], {"query": {"nonsense": {}}})
    assert (answer.status_code, answer.json["code"]) == (400, "elasticsearch_bad_request")
    assert "/es_query/query/nonsense" in json.dumps(answer.json)
    assert client_status(count, path="/v1/search/facets") == 400


def client_status(count, *, path: str) -> int:
    return int(count([ORGAN], path=path).status_code)


@pytest.mark.spec("SEA-31")
def test_lists_fields_with_kind_and_documents(client, deposited) -> None:
    page = client.get(f"{FIELDS}&prefix=files.")
    assert page.status_code == 200
    assert page.json == {
        "fields": [
            {"name": AGE, "kind": "number", "documents": 4},
            {"name": "files.donor_json.living", "kind": "boolean", "documents": 4},
            {"name": ORGAN, "kind": "string", "documents": 4},
        ]
    }


@pytest.mark.spec("SEA-31", "SEA-32")
def test_a_walk_lists_every_field_once(client, deposited) -> None:
    path, seen, statuses = f"{FIELDS}&per_page=3", [], []
    while path:
        page = client.get(path)
        seen += [field["name"] for field in page.json["fields"]]
        statuses.append(page.status_code)
        path = page.headers.get("Link", "").partition(">")[0].removeprefix("<http://localhost")
    assert seen == sorted(set(seen))
    assert {ORGAN, "uuid", "manifest.files.size", "bundle_info.version"} <= {*seen}
    assert statuses == [206] * (len(statuses) - 1) + [200]


@pytest.mark.spec("SEA-32")
def test_a_pointer_belongs_to_its_prefix(client, deposited) -> None:
    link = client.get(f"{FIELDS}&prefix=files.&per_page=1").headers["Link"]
    path = link.partition(">")[0].removeprefix("<http://localhost")
    other = client.get(path.replace("prefix=files.", "prefix=f"))
    assert (other.status_code, other.json["code"]) == (400, "illegal_token")
    for bad in ("per_page=0", "per_page=501", f"prefix={'x' * 1001}"):
        assert client.get(f"{FIELDS}&{bad}").status_code == 400


@pytest.mark.spec("SEA-32")
def test_hundred_fields_are_listed_by_default(client, depositor) -> None:
    content = json.dumps({f"f{number:03}": 1 for number in range(120)}).encode()
    source = depositor.stage(content, "wide.json", "application/json")
    depositor.put_file(uuid_of(0x100), source=source)
    depositor.drain()
    file = {"uuid": uuid_of(0x100), "version": VERSION, "name": "wide.json", "indexed": True}
    depositor.put_bundle(uuid_of(1), [file])
    depositor.drain()
    page = client.get(f"{FIELDS}&prefix=files.wide_json.")
    assert (page.status_code, len(page.json["fields"])) == (206, 100)


@pytest.mark.spec("SEA-34")
@pytest.mark.parametrize(
    ("words", "total"),
    [
        ("LIVER", 3),
        ("kidney brain", 1),
        ("nowhere", 0),
        ('"donor.json"', 4),
        ("liver -kidney", 3),
        ("liver | kidney", 4),
    ],
)
def test_words_are_looked_for_in_every_field(client, deposited, words: str, total: int) -> None:
    query = {"query": {"simple_query_string": {"query": words}}}
    answer = client.post("/v1/search?replica=aws", json={"es_query": query})
    assert answer.json["total_hits"] == total


@pytest.mark.spec("SEA-34")
def test_every_word_may_be_required(client, deposited) -> None:
    clause = {"query": "liver 1.5", "default_operator": "and"}
    body = {"es_query": {"query": {"simple_query_string": clause}}}
    assert client.post("/v1/search?replica=aws", json=body).json["total_hits"] == 1
