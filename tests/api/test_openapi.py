"""The OpenAPI definition is valid, true, and usable by code generators."""

import json
import keyword
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from openapi_schema_validator import OAS30Validator
from openapi_spec_validator import validate

from api.app import OPERATIONS, create_app
from api.http.examples import UUID, make_example, resolve_reference
from api.http.links import STORE_LINKS
from api.http.loading import load_body
from auth.authorization import OPEN_OPERATIONS
from pipelines.queries.payloads import build_payload, build_test_members, build_test_payload
from tests.api.builders import VERSION
from tests.api.conftest import verify
from tests.subscription_builders import BASE_URL, a_subscription, an_event

VERBS = {"get", "put", "post", "delete", "head", "patch"}
SPECIFIED = {
    "get_bundles_all": ("get", "/bundles/all"),
    "get_bundle": ("get", "/bundles/{uuid}"),
    "get_bundle_archive": ("get", "/bundles/{uuid}/archive"),
    "put_bundle": ("put", "/bundles/{uuid}"),
    "patch_bundle": ("patch", "/bundles/{uuid}"),
    "delete_bundle": ("delete", "/bundles/{uuid}"),
    "post_bundles_checkout": ("post", "/bundles/{uuid}/checkout"),
    "get_bundles_checkout": ("get", "/bundles/checkout/{checkout_job_id}"),
    "put_file": ("put", "/files/{uuid}"),
    "put_files": ("put", "/files"),
    "get_file": ("get", "/files/{uuid}"),
    "get_file_bundles": ("get", "/files/{uuid}/bundles"),
    "head_file": ("head", "/files/{uuid}"),
    "get_collections": ("get", "/collections"),
    "put_collection": ("put", "/collections"),
    "get_collection": ("get", "/collections/{uuid}"),
    "patch_collection": ("patch", "/collections/{uuid}"),
    "delete_collection": ("delete", "/collections/{uuid}"),
    "get_task": ("get", "/tasks/{task_id}"),
    "get_replication": ("get", "/replication"),
    "get_integrity": ("get", "/integrity"),
    "get_drs_service_info": ("get", "/ga4gh/drs/v1/service-info"),
    "get_drs_object": ("get", "/ga4gh/drs/v1/objects/{object_id}"),
    "get_drs_access": ("get", "/ga4gh/drs/v1/objects/{object_id}/access/{access_id}"),
    "post_search": ("post", "/search"),
    "get_schemas": ("get", "/schemas"),
    "post_search_facets": ("post", "/search/facets"),
    "get_search_fields": ("get", "/search/fields"),
    "get_events": ("get", "/events"),
    "get_events_feed": ("get", "/events/feed"),
    "get_event": ("get", "/events/{uuid}"),
    "get_subscriptions": ("get", "/subscriptions"),
    "put_subscription": ("put", "/subscriptions"),
    "get_subscription": ("get", "/subscriptions/{uuid}"),
    "delete_subscription": ("delete", "/subscriptions/{uuid}"),
    "get_deliveries": ("get", "/subscriptions/{uuid}/deliveries"),
    "get_delivery": ("get", "/subscriptions/{uuid}/deliveries/{id}"),
    "resend_delivery": ("post", "/subscriptions/{uuid}/deliveries/{id}/resend"),
    "retry_delivery": ("post", "/subscriptions/{uuid}/deliveries/{id}/retry"),
    "test_subscription": ("post", "/subscriptions/{uuid}/test"),
    "retry_deliveries": ("post", "/subscriptions/{uuid}/deliveries/retry"),
    "put_subscription_secret": ("put", "/subscriptions/{uuid}/secret"),
    "pause_subscription": ("post", "/subscriptions/{uuid}/pause"),
    "resume_subscription": ("post", "/subscriptions/{uuid}/resume"),
    "dry_run_subscription": ("post", "/subscriptions/dry-run"),
    "replay_subscription": ("post", "/subscriptions/{uuid}/replay"),
    "get_replay": ("get", "/subscriptions/{uuid}/replays/{id}"),
    "post_area": ("post", "/area/{uuid}"),
    "head_area": ("head", "/area/{uuid}"),
    "get_area": ("get", "/area/{uuid}"),
    "patch_area": ("patch", "/area/{uuid}"),
    "delete_area": ("delete", "/area/{uuid}"),
    "put_area_file": ("put", "/area/{uuid}/files/{filename}"),
    "put_area_files": ("put", "/area/{uuid}/files"),
    "post_area_file": ("post", "/area/{uuid}/files/{filename}"),
    "get_area_checksum": ("get", "/area/{uuid}/checksum"),
    "get_area_validate": ("get", "/area/{uuid}/validate"),
    "get_area_checksums": ("get", "/area/{uuid}/checksums"),
    "get_area_validations": ("get", "/area/{uuid}/validations"),
    "post_area_upload": ("post", "/area/{uuid}/uploads/{filename}"),
    "get_area_upload": ("get", "/area/{uuid}/uploads/{filename}"),
    "put_area_part": ("put", "/area/{uuid}/uploads/{filename}"),
    "post_area_upload_complete": ("post", "/area/{uuid}/complete/{filename}"),
    "delete_area_upload": ("delete", "/area/{uuid}/uploads/{filename}"),
    "post_area_part": ("post", "/area/{uuid}/parts/{filename}"),
    "post_area_credentials": ("post", "/area/{uuid}/credentials"),
}
PAGED = {
    "get_bundles_all",
    "get_bundle",
    "get_file_bundles",
    "get_collections",
    "post_search",
    "get_deliveries",
    "get_events",
    "get_area",
    "get_search_fields",
}


@pytest.fixture
def document(client) -> dict[str, Any]:
    return client.get("/v1/swagger.json").json


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, described in verbs.items():
            yield path, verb, described


def every(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from every(inner)


@pytest.mark.spec("DEF-01")
def test_definition_is_valid_and_equal_at_both_paths(client, document) -> None:
    assert document["openapi"].startswith("3.0.")
    validate(document)
    assert client.get("/swagger.json").json == document


@pytest.mark.spec("CON-07", "CON-12", "DEF-02")
def test_definition_has_exactly_the_operations(document) -> None:
    found = {one["operationId"]: (verb, path) for path, verb, one in operations(document)}
    assert found == SPECIFIED


@pytest.mark.spec("DEF-02")
def test_put_file_is_listed_after_put_files(document) -> None:
    """Of two methods of one name, `put_file`, the original clients keep the last."""
    paths = list(document["paths"])
    assert paths.index("/files") < paths.index("/files/{uuid}")


@pytest.mark.spec("DEF-03", "VER-01")
def test_the_server_is_the_external_base_with_v1(document) -> None:
    assert document["servers"] == [{"url": "http://localhost/v1"}]
    assert document["info"]["description"]


@pytest.mark.spec("DEF-06")
def test_paths_have_only_methods(document) -> None:
    assert {verb for verbs in document["paths"].values() for verb in verbs} <= VERBS


@pytest.mark.spec("DEF-06")
def test_parameter_names_are_identifiers_and_no_keywords(document) -> None:
    for _, _, one in operations(document):
        for parameter in one["parameters"]:
            assert parameter["name"].isidentifier()
            assert not keyword.iskeyword(parameter["name"])
            assert parameter["in"] in ("path", "query")


@pytest.mark.spec("DEF-06")
def test_avoids_constructs_that_break_code_generators(document) -> None:
    for item in every(document):
        assert not {"anyOf", "oneOf", "allOf"} & item.keys()
        assert "$ref" not in item or len(item) == 1
        assert not isinstance(item.get("type"), list)


@pytest.mark.spec("DEF-06")
def test_no_schema_contains_itself(document) -> None:
    schemas = document["components"]["schemas"]

    def walk(name: str, seen: tuple[str, ...]) -> None:
        assert name not in seen
        for item in every(schemas[name]):
            if "$ref" in item:
                walk(item["$ref"].rpartition("/")[2], (*seen, name))

    for name in schemas:
        walk(name, ())


@pytest.mark.spec("CON-12")
def test_omits_aliases_for_old_clients(document) -> None:
    described = {one["operationId"]: one for _, _, one in operations(document)}
    (body,) = described["put_subscription"]["requestBody"]["content"].values()
    named = body["schema"].get("$ref", "").rpartition("/")[2]
    schema = document["components"]["schemas"][named] if named else body["schema"]
    assert "callback_url" in schema["properties"]
    assert "replica" not in schema["properties"]
    for operation, member in (("delete_bundle", "reason"), ("patch_collection", "uuid")):
        asked = {one["name"] for one in described[operation]["parameters"] if one["in"] == "query"}
        assert "replica" in asked
        assert member not in asked


@pytest.mark.spec("DEF-05", "WHO-04")
def test_security_is_listed_only_where_required(document) -> None:
    for _, _, one in operations(document):
        name = one["operationId"]
        if name == "get_subscriptions":
            assert one["security"] == [{"bearer": []}, {}]
        elif name in OPEN_OPERATIONS:
            assert "security" not in one
        else:
            assert one["security"] == [{"bearer": []}]
    schemes = document["components"]["securitySchemes"]
    assert schemes["bearer"]["scheme"] == "bearer"
    assert any("openIdConnectUrl" in scheme for scheme in schemes.values())


@pytest.mark.spec("DEF-04")
def test_every_operation_has_responses_and_206_only_where_pages_are(document) -> None:
    for _, _, one in operations(document):
        assert one["responses"]
        assert all(response["description"] for response in one["responses"].values())
        assert ("206" in one["responses"]) == (one["operationId"] in PAGED)


@pytest.mark.spec("DEF-04")
def test_lists_every_possible_status(document) -> None:
    for _, _, one in operations(document):
        named = {int(status) for status in one["responses"] if status.isdigit()}
        wants_token = one["operationId"] not in OPEN_OPERATIONS
        has_json = "application/json" in one.get("requestBody", {}).get("content", {})
        assert {400, 401} <= named
        assert 403 in named or not wants_token
        assert {413, 415} <= named or not has_json


@pytest.mark.spec("DEF-07")
def test_nullable_members_are_marked(document) -> None:
    for operation in OPERATIONS:
        if operation.body is not None:
            described = document["components"]["schemas"][type(operation.body).__name__]
            for name, field in operation.body.load_fields.items():
                nullable = described["properties"][name].get("nullable", False)
                assert nullable == bool(field.allow_none), (operation.name, name)


@pytest.mark.spec("DEF-07")
def test_optional_bodies_are_marked(client, document) -> None:
    for path, verb, one in operations(document):
        if "application/json" not in one.get("requestBody", {}).get("content", {}):
            continue
        schema = one["requestBody"]["content"]["application/json"]["schema"]
        known = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert one["requestBody"]["required"] == bool(known.get("required")), (verb, path)


@pytest.mark.spec("DEF-07")
def test_no_parameter_is_nullable(document) -> None:
    schemas = [
        resolve_reference(document, one["schema"])
        for _, _, item in operations(document)
        for one in item["parameters"]
    ]
    assert [one for one in schemas if one.get("nullable") or None in one.get("enum", ())] == []


@pytest.mark.spec("DEF-07")
def test_no_default_is_null(document) -> None:
    assert not [item for item in every(document) if item.get("default", ...) is None]


@pytest.mark.spec("DEF-07")
def test_versions_are_described_as_they_are_spelled(document) -> None:
    for path, _, one in operations(document):
        for parameter in one["parameters"]:
            if parameter["name"] == "version":
                schema = resolve_reference(document, parameter["schema"])
                assert re.fullmatch(schema["pattern"], VERSION), path
    entry = document["components"]["schemas"]["NewFileEntry"]["properties"]["version"]
    pattern = resolve_reference(document, entry)["pattern"]
    assert re.fullmatch(pattern, VERSION)
    assert not re.search(pattern, f"{VERSION}x")


@pytest.mark.spec("DEF-04")
def test_every_operation_has_a_summary_and_a_known_tag(document) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for _, _, one in operations(document):
        assert one["summary"].endswith((".", ":")) or one["summary"]
        assert set(one["tags"]) <= tags


@pytest.mark.spec("DEF-02")
def test_every_operation_of_the_table_is_routed(app: Flask) -> None:
    rules = {(method, rule.rule) for rule in app.url_map.iter_rules() for method in rule.methods}
    for operation in OPERATIONS:
        rule = operation.path.replace("{filename}", "<path:filename>")
        rule = "/v1" + rule.replace("{", "<").replace("}", ">")
        assert (operation.method, rule) in rules


@pytest.mark.spec("DEF-08")
def test_every_example_is_accepted_by_its_own_schema() -> None:
    for operation in OPERATIONS:
        for schema in filter(None, (operation.query, operation.body)):
            for name, field in schema.load_fields.items():
                if "example" in field.metadata:
                    # A query is text; what its parameters are is said by their types.
                    as_sent = str if schema is operation.query else lambda value: value
                    example = as_sent(field.metadata["example"])
                    assert field.deserialize(example) is not None, (operation.name, name)


@pytest.mark.spec("DEF-08")
def test_every_body_that_the_reference_shows_is_accepted(document) -> None:
    for operation in OPERATIONS:
        if operation.body is not None:
            shown = document["paths"][operation.path][operation.method.lower()]
            schema = shown["requestBody"]["content"]["application/json"]["schema"]
            load_body(operation.body, make_example(document, schema))


@pytest.mark.spec("CON-13", "DEF-03")
def test_the_external_url_wins_over_the_host(settings, stores, job_queue) -> None:
    told = replace(settings, external_url="https://store.example/base/")
    app = create_app(told, stores, job_queue=job_queue, verify=verify)
    document = app.test_client().get("/swagger.json", headers={"Host": "evil.example"}).json
    assert document["servers"] == [{"url": "https://store.example/base/v1"}]


@pytest.mark.spec("DEF-01")
def test_the_definition_is_plain_json(client) -> None:
    answer = client.get("/v1/swagger.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(answer.data)["info"]["title"]
    assert VERSION in answer.text


@pytest.mark.spec("DEF-09")
def test_ids_versions_and_replicas_are_of_one_type_each(document) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Uuid"]["format"] == "uuid"
    assert schemas["Replica"]["enum"] == ["aws", "gcp"]
    assert re.fullmatch(schemas["Version"]["pattern"], VERSION)
    named = {"uuid": "Uuid", "version": "Version", "replica": "Replica"}
    for _, _, one in operations(document):
        for parameter in one["parameters"]:
            if kind := named.get(parameter["name"]):
                assert parameter["schema"] == {"$ref": f"#/components/schemas/{kind}"}
                assert parameter["example"]
    described = {one["operationId"]: one for _, _, one in operations(document)}
    payload = schemas["Notification"]["properties"]
    assert payload["transaction_id"]["format"] == "uuid", "a description of its own stays"
    assert schemas["MatchedBundle"]["properties"] == {
        "bundle_uuid": {"$ref": "#/components/schemas/Uuid"},
        "bundle_version": {"$ref": "#/components/schemas/Version"},
    }
    assert described["get_bundle"]["parameters"][0]["example"] == schemas["Uuid"]["example"]


@pytest.mark.spec("DEF-09")
def test_members_with_uuids_versions_and_replicas_are_of_the_named_types(document) -> None:
    kinds = {"uuid": "Uuid", "version": "Version", "replica": "Replica"}
    of_drs = {"ServiceType.version", "ServiceInfo.version", "DrsObject.version"}
    others = {}
    for schema, described in document["components"]["schemas"].items():
        for name, member in described.get("properties", {}).items():
            kind = kinds.get(name.rpartition("_")[2])
            reference = {"$ref": f"#/components/schemas/{kind}"}
            if kind and member != reference and f"{schema}.{name}" not in of_drs:
                others[f"{schema}.{name}"] = member
    assert {name for name, member in others.items() if not member.get("nullable")} == set()
    assert list(others) == ["DryRunBody.bundle_uuid"]


@pytest.mark.spec("DEF-09")
def test_links_lead_to_operations_by_values_that_there_are(document) -> None:
    described = {one["operationId"]: one for _, _, one in operations(document)}
    found = 0
    for _, _, one in operations(document):
        own = {
            (parameter["in"], parameter["name"]): parameter["required"]
            for parameter in one["parameters"]
        }
        for status, response in one["responses"].items():
            for link in response.get("links", {}).values():
                assert status.startswith("2")
                content = response["content"]["application/json"]["schema"]
                members = resolve_reference(document, content)["properties"]
                parameters = described[link["operationId"]]["parameters"]
                taken = {parameter["name"] for parameter in parameters}
                required = {one["name"] for one in parameters if one["required"]}
                # The client chooses a part; deliveries have states of their own.
                known = (required - {"part"}) | (taken & {*members} - {"state"})
                assert known <= {*link["parameters"]}, link
                body = described[link["operationId"]].get("requestBody", {}).get("content", {})
                if "application/json" in body:
                    schema = resolve_reference(document, body["application/json"]["schema"])
                    needed = {*schema.get("required", ())} & {*members}
                    assert needed <= {*link.get("requestBody", ())}, link
                for name, source in link["parameters"].items():
                    assert name in taken, link
                    if source.startswith("$response.body#/"):
                        assert source.removeprefix("$response.body#/") in members, link
                    else:
                        assert tuple(source.split(".")[1:]) in own, link
                        is_given = own[tuple(source.split(".")[1:])]
                        assert is_given or "Only if the request" in link["description"], link
                found += 1
    assert found > len(STORE_LINKS)
    answered = described["put_file"]["responses"]
    assert {status for status in answered if "get_task" in answered[status].get("links", {})} == {
        "202"
    }


@pytest.mark.spec("DEF-09")
@pytest.mark.parametrize(
    "subscription",
    [
        a_subscription(query="event_type == 'CREATE'"),
        a_subscription(),
        a_subscription(type="elasticsearch", query='{"match_all": {}}'),
    ],
    ids=["jmespath", "no query", "elasticsearch"],
)
def test_callbacks_describe_deliveries_as_they_are_sent(document, subscription) -> None:
    described = {one["operationId"]: one for _, _, one in operations(document)}
    sent = described["put_subscription"]["callbacks"]["delivery"]
    (request,) = sent["{$request.body#/callback_url}"].values()
    schema = request["requestBody"]["content"]["application/json"]["schema"]
    validator = OAS30Validator({**document, **schema})
    payload = build_payload(
        subscription,
        an_event("CREATE"),
        delivery=UUID,
        base_url=BASE_URL,
        attachments={"ages": [3]},
    )
    known = document["components"]["schemas"]["Notification"]["properties"]
    test = build_test_payload(subscription, delivery=UUID, now_us=1) | build_test_members(UUID)
    for body in (payload, test):
        validator.validate(body)
        assert body.keys() <= known.keys()
    assert not validator.is_valid({**payload, "transaction_id": 3})
    assert not validator.is_valid({**payload, "match": {}})


HEADERS_IN_PROSE = {
    "Idempotency-Key": {"patch_bundle", "patch_collection", "replay_subscription"},
    "Prefer": {"put_bundle", "put_file", "get_file", "head_file", "get_events_feed"},
    "Last-Event-ID": {"get_events_feed"},
}


@pytest.mark.spec("DEF-06")
def test_headers_that_clients_may_send_are_described_in_prose(document) -> None:
    """Not as parameters: their names are no identifiers, which generated clients trip over."""
    general = document["info"]["description"]
    for header in (*HEADERS_IN_PROSE, "If-None-Match", "X-Request-Id", "Accept-Encoding", "Range"):
        assert f"`{header}" in general
    told = {
        header: {
            one["operationId"]
            for verbs in document["paths"].values()
            for one in verbs.values()
            if f"`{header}" in one.get("description", "")
        }
        for header in HEADERS_IN_PROSE
    }
    assert told == HEADERS_IN_PROSE
