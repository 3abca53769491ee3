"""Numbers in metadata round-trip exactly, whatever their size."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from tests.api.builders import INGEST, READER, VERSION, uuid_of

pytestmark = pytest.mark.spec("SEA-17")

LARGE = {
    "integers": [2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 10**4300 - 1],
    "doubles": [1e300, -0.0, 5e-324, 0.1, 1e16],
    "text": "9" * 40,
}
NUMBERS = (
    st.integers() | st.integers(2**53, 2**70) | st.floats(allow_nan=False, allow_infinity=False)
)
METADATA = st.dictionaries(
    st.text("abé.", min_size=1, max_size=3),
    st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=3), max_leaves=8),
    max_size=4,
)


def same(one: object, other: object) -> bool:
    """Equal, also in type and sign; without a comparison of thousands of digits on failure."""
    return repr(one) == repr(other)


@pytest.fixture
def deposited(depositor, client, stores):
    """Deposits metadata as a bundle; answers every place that shows it."""
    subscription = {
        "callback_url": "https://receiver.example/",
        "attachments": {"all": {"type": "jmespath", "expression": "files.m_json[0]"}},
    }
    made = client.put("/v1/subscriptions?replica=aws", json=subscription, headers=READER)
    assert made.status_code == 201
    numbers = iter(range(1, 1000))

    def shown(content: str) -> dict[str, Any]:
        number = next(numbers)
        uuid, file = uuid_of(number), uuid_of(0x1000 + number)
        source = depositor.stage(content.encode(), f"{number}.json", "application/json")
        depositor.put_file(file, source=source)
        depositor.drain()
        entry = {"uuid": file, "version": VERSION, "name": "m.json", "indexed": True}
        assert depositor.put_bundle(uuid, [entry]).status_code == 201
        depositor.drain()
        asked = {"es_query": {"query": {"term": {"uuid.keyword": uuid}}}}
        raw = client.post("/v1/search?replica=gcp&output_format=raw", json=asked)
        event = client.get(f"/v1/events/{uuid}?replica=aws&version={VERSION}")
        with stores.catalog.read() as tx:
            sent = tx.execute(text("SELECT payload FROM deliveries ORDER BY id DESC LIMIT 1"))
            delivery = json.loads(sent.scalar_one())
        dry = client.post(
            "/v1/subscriptions/dry-run?replica=aws", json=subscription, headers=READER
        ).json
        return {
            "search": raw.json["results"][0]["metadata"]["files"]["m_json"][0],
            "event": json.loads(event.data)["files"]["m_json"][0],
            "delivery": delivery["attachments"]["all"],
            "dry run": dry["bundles"][0]["payload"]["attachments"]["all"],
        }

    return shown


def test_large_numbers_are_exact_wherever_metadata_is_shown(deposited) -> None:
    for place, value in deposited(json.dumps(LARGE)).items():
        assert same(value, LARGE), place


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(METADATA)
def test_random_metadata_round_trips(deposited, value) -> None:
    for place, found in deposited(json.dumps(value)).items():
        assert same(found, value), place


@pytest.mark.parametrize("number", [2**64, 10**30, 10**400], ids=["2^64", "10^30", "10^400"])
def test_a_query_with_a_large_integer_is_answered_and_echoed_exactly(deposited, client, number):
    deposited(json.dumps({"n": number}))
    query = {"query": {"term": {"files.m_json.n": number}}}
    answer = client.post("/v1/search?replica=aws", json={"es_query": query})
    assert answer.status_code == 200, answer.text
    assert answer.json["es_query"] == query
    # Numbers are found as doubles; what no double can hold is not searchable.
    assert answer.json["total_hits"] == (1 if number < 10**300 else 0)


def test_a_file_with_an_integer_of_too_many_digits_is_named_in_errors(depositor, client) -> None:
    source = depositor.stage(b'{"n": ' + b"9" * 4301 + b"}", "n.json", "application/json")
    depositor.put_file(uuid_of(0x100), source=source)
    depositor.drain()
    entry = {"uuid": uuid_of(0x100), "version": VERSION, "name": "n.json", "indexed": True}
    depositor.put_bundle(uuid_of(1), [entry])
    depositor.drain()
    event = client.get(f"/v1/events/{uuid_of(1)}?replica=aws&version={VERSION}").json
    assert event["files"] == {}
    assert event["errors"] == [{"file": "n.json", "reason": "an integer has more than 4300 digits"}]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/bundles/{u}?version={v}&replica=aws", '{"creator_uid": NUMBER, "files": []}'),
        ("PUT", "/v1/files/{u}?version={v}", '{"creator_uid": NUMBER, "source_url": "s3://a/b"}'),
        (
            "POST",
            "/v1/subscriptions/dry-run?replica=aws",
            '{"callback_url": "https://a.example/", "bundles": NUMBER}',
        ),
        (
            "PUT",
            "/v1/collections?uuid={u}&version={v}&replica=aws",
            '{"name": NUMBER, "description": "", "contents": [], "details": {}}',
        ),
        (
            "POST",
            "/v1/search?replica=aws",
            '{"es_query": {"range": {"a": {"gte": NUMBER, "boost": NUMBER}}}}',
        ),
        (
            "POST",
            "/v1/search?replica=aws",
            '{"es_query": {"match": {"a": {"query": NUMBER, "slop": NUMBER}}}}',
        ),
        (
            "POST",
            "/v1/search?replica=aws",
            '{"es_query": {"bool": {"should": [], "minimum_should_match": NUMBER}}}',
        ),
    ],
)
@pytest.mark.parametrize("zeros", [30, 400, 4299, 5000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_large_integers_in_bodies_never_fail_inside(client, method, path, body, sign, zeros):
    answer = client.open(
        path.format(u=uuid_of(1), v=VERSION),
        method=method,
        data=body.replace("NUMBER", f"{sign}1{'0' * zeros}"),
        headers=INGEST,
    )
    assert answer.status_code in (200, 400), answer.text
    assert len(answer.data) < 20_000
