"""Spelling of names and default values of parameters over HTTP."""

from dataclasses import replace
from typing import Any

import pytest

from api.app import OPERATIONS, create_app
from api.http.loading import load_query
from storage.errors import Invalid
from tests.api.builders import INGEST, READER, VERSION, Depositor
from tests.api.conftest import verify
from tests.api.test_conventions import given

FILE = "ABCDEF00-0000-4000-8000-00000000000A"
BUNDLE = "ABCDEF00-0000-4000-8000-00000000000B"
COLLECTION = "ABCDEF00-0000-4000-8000-00000000000C"


@pytest.mark.spec("FMT-01")
def test_accepts_uuids_in_any_case_and_returns_lower_case(
    client: Any, depositor: Depositor
) -> None:
    begun = depositor.put_file(FILE)
    depositor.drain()
    task = client.get(f"/v1/tasks/{begun.json['task_id'].upper()}").json
    assert task["uuid"] == FILE.lower()
    entry = {"uuid": FILE, "version": VERSION, "name": "a", "indexed": False}
    made = depositor.put_bundle(BUNDLE, [entry])
    assert made.json["manifest"]["files"][0]["uuid"] == FILE.lower()
    link = {"type": "bundle", "uuid": BUNDLE, "version": VERSION}
    collected = client.put(
        f"/v1/collections?uuid={COLLECTION}&version={VERSION}&replica=aws",
        json={"name": "n", "description": "d", "details": {}, "contents": [link]},
        headers=INGEST,
    )
    assert collected.json["uuid"] == COLLECTION.lower()
    depositor.drain()
    for spelled in (BUNDLE, BUNDLE.lower()):
        read = client.get(f"/v1/bundles/{spelled}?replica=gcp").json["bundle"]
        assert (read["uuid"], read["files"][0]["uuid"]) == (BUNDLE.lower(), FILE.lower())
        again = depositor.put_bundle(spelled, [entry])
        assert again.status_code == 200
    for spelled in (FILE, FILE.lower()):
        assert client.head(f"/v1/files/{spelled}?replica=gcp").status_code == 200
    shown = client.get(f"/v1/collections/{COLLECTION}?replica=gcp", headers=INGEST).json
    assert (shown["uuid"], shown["contents"][0]["uuid"]) == (COLLECTION.lower(), BUNDLE.lower())
    changed = client.patch(
        f"/v1/bundles/{BUNDLE}?version={VERSION}&replica=aws", json={}, headers=INGEST
    )
    assert changed.json["uuid"] == BUNDLE.lower()
    made = client.put(
        "/v1/subscriptions?replica=aws",
        json={"callback_url": "http://127.0.0.1:9/"},
        headers=READER,
    )
    path = f"/v1/subscriptions/{made.json['uuid'].upper()}?replica=aws"
    assert client.get(path, headers=READER).json["uuid"] == made.json["uuid"]
    assert client.get(f"/v1/events/{BUNDLE}?replica=aws&version={VERSION}").status_code == 200


DEFAULTS = {
    "get_bundle": 500,
    "get_bundles_all": 100,
    "get_file_bundles": 100,
    "get_collections": 500,
    "get_events": 1,
}


@pytest.mark.spec("BUN-03", "BUN-17", "COL-16", "EVT-02", "CON-06", "LIM-02")
@pytest.mark.parametrize("name", DEFAULTS)
def test_pages_have_default_size(name: str) -> None:
    query = next(one.query for one in OPERATIONS if one.name == name)
    assert load_query(query, given(query)).per_page == DEFAULTS[name]


@pytest.mark.spec("SEA-05", "LIM-02")
@pytest.mark.parametrize(("form", "size"), [("", 100), ("summary", 100), ("raw", 10)])
def test_search_pages_have_100_hits_or_10_raw_ones(
    settings: Any, stores: Any, job_queue: Any, form: str, size: int
) -> None:
    class Noting:
        """An index that keeps how many hits it was asked for."""

        def search(self, *given: Any, **more: Any) -> Any:
            asked.append(more["size"])
            return stores.search["aws"].search(*given, **more)

    asked: list[int] = []
    own = replace(stores, search={"aws": Noting(), "gcp": stores.search["gcp"]})
    client = create_app(settings, own, job_queue=job_queue, verify=verify).test_client()
    query = f"&output_format={form}" if form else ""
    assert client.post(f"/v1/search?replica=aws{query}", json={"es_query": {}}).status_code == 200
    # One more than the page has tells whether another one follows.
    assert asked == [size + 1]


@pytest.mark.spec("BUN-08", "BUN-19", "FIL-35")
@pytest.mark.parametrize("token", ["", "anything", "x" * 3000])
def test_a_token_that_manages_retries_changes_nothing(
    client: Any, depositor: Depositor, token: str
) -> None:
    uuid = depositor.bundle(1)
    file = client.get(f"/v1/bundles/{uuid}?replica=aws").json["bundle"]["files"][0]["uuid"]
    for path in (
        "/v1/bundles/all?replica=aws",
        f"/v1/bundles/{uuid}?replica=aws",
        f"/v1/files/{file}?replica=aws",
    ):
        plain, with_it = client.get(path), client.get(f"{path}&token={token}")
        assert (with_it.status_code, with_it.json) == (plain.status_code, plain.json)


@pytest.mark.spec("FMT-02", "ERR-06")
def test_versions_are_spelled_as_such_wherever_one_is_named() -> None:
    for one in OPERATIONS:
        for name in {"version", "from_date", "to_date", "since", "until"} & set(
            one.query.load_fields
        ):
            for wrong in ("", "2026-01-01T00:00:00Z", "2026-01-01T000000.00000Z", VERSION.lower()):
                with pytest.raises(Invalid) as refused:
                    load_query(one.query, given(one.query, **{name: wrong}))
                assert refused.value.code == "illegal_version", (one.name, name)


@pytest.mark.spec("CON-16")
def test_nesting_and_length_of_bodies_are_the_operators_to_bound(
    settings: Any, stores: Any, job_queue: Any
) -> None:
    own = replace(settings, max_json_depth=5, max_body_bytes=200)
    client = create_app(own, stores, job_queue=job_queue, verify=verify).test_client()
    path = "/v1/search?replica=aws"
    deep: Any = {}
    for _ in range(6):
        deep = {"bool": deep}
    assert client.post(path, json={"es_query": {}}).status_code == 200
    answer = client.post(path, json={"es_query": deep})
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    answer = client.post(path, json={"es_query": {"match": {"a": "x" * 200}}})
    assert (answer.status_code, answer.json["code"]) == (413, "too_large")


@pytest.mark.spec("SVC-05", "FMT-06")
@pytest.mark.parametrize("replica", ["AWS", "azure", "", "aws,gcp"])
def test_a_replica_is_aws_or_gcp_wherever_one_is_named(replica: str) -> None:
    for one in OPERATIONS:
        if "replica" in one.query.load_fields:
            with pytest.raises(Invalid) as refused:
                load_query(one.query, given(one.query, replica=replica))
            assert "replica" in refused.value.errors


@pytest.mark.spec("SVC-05")
def test_data_operations_require_replica() -> None:
    without = {one.name for one in OPERATIONS if "replica" not in one.query.load_fields}
    assert without == {
        *("get_collections", "get_task", "get_replication", "get_integrity", "get_schemas"),
        # Of GA4GH, whose objects say which replicas have them.
        *("get_drs_service_info", "get_drs_object", "get_drs_access"),
        # An area is of no replica: its files become some replica's by put_file.
        *(one.name for one in OPERATIONS if one.path.startswith("/area/")),
    }
    optional = {
        one.name
        for one in OPERATIONS
        if "replica" in one.query.load_fields and not one.query.load_fields["replica"].required
    }
    assert optional == {"put_file"}


@pytest.mark.spec("CON-04")
def test_paged_operations_name_their_items() -> None:
    assert {one.name: one.paged for one in OPERATIONS if one.paged} == {
        "get_bundles_all": "bundles",
        "get_bundle": "bundle.files",
        "get_file_bundles": "bundles",
        "get_collections": "collections",
        "post_search": "results",
        "get_search_fields": "fields",
        "get_events": "event_streams",
        "get_deliveries": "deliveries",
        "get_area": "files",
    }


QUERY = {
    *("replica", "version", "per_page", "search_after", "start_at", "token", "prefix"),
    *("directurls", "presignedurls", "directurl", "content_disposition", "output_format"),
    *("from_date", "to_date", "subscription_type", "replication", "after"),
    *("state", "event_type", "bundle_uuid", "since", "until"),
    *("format", "expand"),
    # Interface 7, and what an upload that is gone on with has no body for
    *("filename", "upload_id", "part"),
}


@pytest.mark.spec("CON-07")
def test_parameters_are_where_the_contract_puts_them() -> None:
    for one in OPERATIONS:
        named = set(one.query.load_fields)
        assert named <= QUERY | ({"uuid"} if one.name == "put_collection" else set()), one.name
        ids = {"uuid", "checkout_job_id", "task_id", "id", "filename", "object_id", "access_id"}
        assert ids >= set(one.path_parameters)
        if one.body is not None:
            assert not named & set(one.body.load_fields), one.name
