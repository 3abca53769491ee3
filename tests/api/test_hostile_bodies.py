"""Small request bodies that would be expensive to parse are rejected early."""

import json

import pytest

from api.app import create_app
from api.http import loading
from api.schemas.bundles import decode_bundle
from storage import json_codec
from storage.errors import Invalid
from storage.json_codec import MemoryBudget
from tests.api.builders import INGEST, READER, VERSION, uuid_of
from tests.api.conftest import verify
from tests.builders import new_uuid
from tests.peak_memory import memory_below

pytestmark = pytest.mark.spec("CON-16")

MB = 1024 * 1024
UUID = uuid_of(1)
COLLECTION = f"/v1/collections?uuid={UUID}&version={VERSION}&replica=aws"
MANY = b"[" + b",".join([b"{}"] * 100_000) + b"]"


def below_a_long_name(value: bytes) -> bytes:
    """An object whose one member is long in name and lists this value ten times, then zeros."""
    return b'{"%s": [%s]}' % (b"x" * 100_000, b",".join([value] * 10 + [b"0"] * 20_000))


@pytest.mark.parametrize(
    ("method", "path", "member", "rest"),
    [
        ("PATCH", f"/v1/bundles/{UUID}?version={VERSION}&replica=aws", "add_files", b""),
        ("PATCH", f"/v1/bundles/{UUID}?version={VERSION}&replica=aws", "remove_files", b""),
        ("PUT", COLLECTION, "contents", b', "name": "", "description": "", "details": {}'),
        (
            "PATCH",
            f"/v1/collections/{UUID}?version={VERSION}&replica=aws",
            "add_contents",
            b"",
        ),
    ],
)
def test_rejects_too_many_items_before_loading_any(client, method, path, member, rest):
    body = b'{"%s": %s%s}' % (member.encode(), MANY, rest)
    with memory_below(40 * MB):
        answer = client.open(path, method=method, data=body, headers=READER)
    assert answer.status_code == 400
    (faults,) = answer.json["errors"].items()
    assert faults[0] == f"/{member}"
    assert faults[1][0].startswith("Must have at most 1000 ")


@pytest.mark.parametrize("member", ["form_fields", "attachments"])
def test_members_with_names_of_the_client_are_counted_too(client, member):
    many = {str(number): 1 for number in range(1_001)}
    body = {"callback_url": "https://a.example/", "jmespath_query": "a", member: many}
    answer = client.post("/v1/subscriptions/dry-run?replica=aws", json=body, headers=READER)
    assert answer.status_code == 400
    assert answer.json["errors"] == {f"/{member}": ["Must have at most 1000 members."]}


def test_repeated_members_with_long_names_take_bounded_memory(app):
    body = b'{"details": %s}' % below_a_long_name(b'{"a": 1, "a": 1}')
    with (
        app.test_request_context(method="PUT", data=body) as context,
        memory_below(40 * MB),
        pytest.raises(Invalid) as refused,
    ):
        loading.read_json(context.request, max_bytes=MB, max_depth=10, once=True)
    assert 0 < len(refused.value.errors) <= loading.MAX_REPEATED_REPORTED
    assert all(len(where) <= loading.MAX_POINTER_CHARS for where in refused.value.errors)


@pytest.mark.spec("COL-07")
def test_many_large_integers_take_bounded_memory(client):
    details = below_a_long_name(b"1" * 30)
    body = b'{"name": "", "description": "", "contents": [], "details": %s}' % details
    with memory_below(40 * MB):
        answer = client.put(COLLECTION, data=body, headers=INGEST)
    assert answer.status_code == 201


@pytest.mark.parametrize("small", [b"[]", b"{}", b'{"":1}', b'"ab"', b"[[[[]]]]"])
def test_a_body_of_many_small_values_is_not_parsed(client, small):
    body = b'{"details": [' + (small + b",") * (8 * MB // (len(small) + 1)) + b"0]}"
    with memory_below(3 * len(body)):
        answer = client.put(COLLECTION, data=body, headers=INGEST)
    assert answer.status_code == 413
    assert answer.json["code"] == "too_large"


def test_the_shortest_manifest_entries_are_within_the_bound():
    one = {"uuid": new_uuid(), "version": VERSION, "name": "a", "indexed": True}
    text = json.dumps([one] * 100_000, separators=(",", ":")).encode()
    assert json_codec.estimate_roughly(text) < loading.PARSED_TIMES * len(text)


@pytest.mark.parametrize("name", ["", "a", "\u00e9", "\U0001f600"])
def test_decoded_entries_fit_in_reserved_memory(name):
    one = {"uuid": name, "version": name, "name": name, "indexed": True}
    body = {"creator_uid": 1, "files": [one] * 50_000}
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    with memory_below(loading.TYPED_TIMES * len(text)):
        assert decode_bundle(text) is not None


def test_reads_no_large_body_of_unauthorized_caller(client):
    body = b'{"name": "%s"}' % (b"x" * 20 * MB)
    with memory_below(12 * MB):
        answer = client.put(COLLECTION, data=body, headers=READER)
    assert answer.status_code == 403


def test_large_bodies_wait_for_memory(settings, stores, job_queue, monkeypatch):
    budget = MemoryBudget(40 * MB, timeout_s=0.01)
    monkeypatch.setattr("api.app.new_memory_budget", lambda: budget)
    client = create_app(settings, stores, job_queue=job_queue, verify=verify).test_client()
    body = b'{"name": "", "description": "", "contents": [], "details": {"a": "%s"}, "b": 1}'
    large = body % (b"x" * 6 * MB)
    with budget.reserve(40 * MB):
        answer = client.put(COLLECTION, data=large, headers=INGEST)
        small = client.put(COLLECTION, data=body % b"x", headers=INGEST)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert small.status_code == 400
    assert client.put(COLLECTION, data=large, headers=INGEST).status_code == 400
    with budget.reserve(40 * MB):
        # The request that was refused with 400 has given its memory back.
        pass
