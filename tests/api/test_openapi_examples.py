"""Each example of the OpenAPI definition fits its schema and works."""

import hashlib
import io
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import google_crc32c
import pytest
from openapi_schema_validator import OAS30Validator

from api.http.examples import SAMPLE, UUID, VERSION
from tests.api.builders import ADMIN

pytestmark = pytest.mark.spec("DEF-08")

STORY = (
    "post_area",
    "head_area",
    "put_area_file",
    "put_area_files",
    "post_area_file",
    "get_area",
    "get_area_checksum",
    "get_area_checksums",
    "get_area_validate",
    "get_area_validations",
    "post_area_upload",
    "put_area_part",
    "post_area_part",
    "get_area_upload",
    "post_area_upload_complete",
    "delete_area_upload",
    "post_area_credentials",
    "put_file",
    "put_files",
    "get_task",
    "get_file",
    "head_file",
    "get_file_bundles",
    "get_drs_service_info",
    "get_drs_object",
    "get_drs_access",
    "put_subscription",
    "get_subscriptions",
    "get_subscription",
    "put_subscription_secret",
    "put_bundle",
    "get_bundles_all",
    "get_bundle",
    "get_bundle_archive",
    "post_search",
    "get_schemas",
    "post_search_facets",
    "get_search_fields",
    "dry_run_subscription",
    "put_collection",
    "get_collections",
    "get_collection",
    "post_bundles_checkout",
    "get_bundles_checkout",
    "test_subscription",
    "get_deliveries",
    "get_delivery",
    "retry_delivery",
    "resend_delivery",
    "retry_deliveries",
    "replay_subscription",
    "get_replay",
    "pause_subscription",
    "resume_subscription",
    "get_events",
    "get_events_feed",
    "get_event",
    "get_replication",
    "get_integrity",
    "patch_bundle",
    "patch_collection",
    "delete_collection",
    "delete_bundle",
    "delete_subscription",
    "patch_area",
    "delete_area",
)
"""Every operation, in the order in which one thing comes of another."""

GIVEN_BY_THE_STORE = {
    # A subscription's uuid, and whatever else the store names itself, is what an answer said.
    "put_subscription": ("uuid", "subscription"),
    "put_file": ("task_id", "task_id"),
    "post_bundles_checkout": ("checkout_job_id", "checkout_job_id"),
    "test_subscription": ("id", "delivery"),
    "replay_subscription": ("replay_id", "replay"),
    # Of the source's URL the example has that of a cloud, which no machine of a test reaches.
    "put_area_file": ("url", "source_url"),
    "post_area_upload": ("upload_id", "upload_id"),
}


@pytest.fixture
def document(client) -> dict[str, Any]:
    return client.get("/v1/swagger.json").json


def described(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield path, verb, operation


def example_of(parameter: dict[str, Any]) -> Any:
    """The example of a parameter, beside its schema where that has a name."""
    return parameter.get("example", parameter["schema"].get("example"))


def fits(document: dict[str, Any], schema: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with a value."""
    whole = {**schema, "components": document["components"]}
    found = OAS30Validator(whole, format_checker=OAS30Validator.FORMAT_CHECKER).iter_errors(value)
    return [f"{list(error.path)}: {error.message}" for error in found]


def test_every_member_and_parameter_that_is_required_has_an_example_that_fits(document) -> None:
    for name, schema in document["components"]["schemas"].items():
        for member, part in schema.get("properties", {}).items():
            made = "$ref" in part or "items" in part
            assert made or "example" in part or member not in schema.get("required", ()), (
                name,
                member,
            )
            if "example" in part:
                assert fits(document, part, part["example"]) == [], (name, member)
    for path, _, operation in described(document):
        for parameter in operation["parameters"]:
            schema, example = parameter["schema"], example_of(parameter)
            assert example is not None or not parameter.get("required"), (path, parameter["name"])
            if example is not None:
                assert fits(document, schema, example) == [], (path, parameter["name"])


def test_every_json_body_and_answer_has_an_example_that_fits(document) -> None:
    for path, verb, operation in described(document):
        answers = [part for status, part in operation["responses"].items() if status < "3"]
        for part in (operation.get("requestBody", {}), *answers):
            content = part.get("content", {}).get("application/json")
            if content is not None:
                assert fits(document, content["schema"], content["example"]) == [], (verb, path)


def test_the_example_of_several_files_is_an_item_with_its_task(document) -> None:
    answer = document["paths"]["/files"]["put"]["responses"]["200"]
    (item,) = answer["content"]["application/json"]["example"]["files"]
    assert sorted(item) == ["task_id", "uuid", "version"]


def test_example_checksums_match_example_bytes(document) -> None:
    shown = document["components"]["schemas"]["AreaChecksums"]["properties"]
    assert {name: part["example"] for name, part in shown.items()} == {
        "sha1": hashlib.sha1(SAMPLE).hexdigest(),
        "sha256": hashlib.sha256(SAMPLE).hexdigest(),
        "crc32c": f"{google_crc32c.value(SAMPLE):08x}",
        "s3_etag": hashlib.md5(SAMPLE).hexdigest(),
    }


def test_example_requests_work_in_order(client, drain, document) -> None:
    operations = {one["operationId"]: (path, verb, one) for path, verb, one in described(document)}
    assert sorted(STORY) == sorted(operations)
    known: dict[str, str] = {}
    for name in STORY:
        path, verb, operation = operations[name]
        answer = client.open(
            asked(path, operation, known),
            method=verb.upper(),
            headers=ADMIN,
            **body(operation, known),
        )
        assert answer.status_code < 400, (name, answer.text)
        check(document, operation, answer)
        if name in GIVEN_BY_THE_STORE:
            member, called = GIVEN_BY_THE_STORE[name]
            known[called] = answer.json[member]
        drain()


def asked(path: str, operation: dict[str, Any], known: dict[str, str]) -> str:
    """The URL with the example of each parameter that has one."""
    query = {}
    for parameter in operation["parameters"]:
        name, value = parameter["name"], example_of(parameter)
        if parameter["in"] == "query" and value is not None:
            query[name] = known.get(name, value) if name == "upload_id" else value
        elif parameter["in"] == "path":
            path = path.replace("{" + name + "}", named(path, name, value, known))
    return f"/v1{path}?{urlencode(query)}"


def named(path: str, name: str, value: str, known: dict[str, str]) -> str:
    """The example, or what the store called it."""
    if name == "id":
        return known["replay" if "replays" in path else "delivery"]
    if name == "uuid" and path.startswith("/subscriptions/"):
        return known["subscription"]
    return known.get(name, value)


def body(operation: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/octet-stream" in content:
        return {"data": SAMPLE, "content_type": "application/json"}
    if "multipart/form-data" in content:
        return {"data": {"file": (io.BytesIO(SAMPLE), "reads/sample_1.fastq")}}
    if "application/json" not in content:
        return {}
    shown = dict(content["application/json"]["example"])
    for member in ("source_url", "upload_id"):
        if member in shown:
            shown[member] = known[member]
    for one in shown.get("files", ()):
        if "source_url" in one:
            one["source_url"] = known["source_url"]
    return {"json": shown}


def check(document: dict[str, Any], operation: dict[str, Any], answer: Any) -> None:
    """The answer is one that the definition describes."""
    promised = operation["responses"][str(answer.status_code)]
    content = promised.get("content", {}).get("application/json")
    if content is not None:
        wrong = fits(document, content["schema"], answer.json)
        assert wrong == [], (operation["operationId"], wrong)
    for header in promised.get("headers", {}):
        if header in ("Location", "X-STORE-SHA256"):
            assert header in answer.headers


def test_the_example_of_a_search_finds_the_example_of_a_bundle(client, drain, document) -> None:
    shortened = ("post_area", "put_area_file", "put_file", "put_bundle", "post_search")
    operations = {one["operationId"]: (path, verb, one) for path, verb, one in described(document)}
    known: dict[str, str] = {}
    for name in shortened:
        path, verb, operation = operations[name]
        url = asked(path, operation, known)
        answer = client.open(url, method=verb.upper(), headers=ADMIN, **body(operation, known))
        known |= {"source_url": answer.json["url"]} if name == "put_area_file" else {}
        drain()
    assert [hit["bundle_fqid"] for hit in answer.json["results"]] == [f"{UUID}.{VERSION}"]
