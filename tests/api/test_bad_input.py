"""Every operation rejects invalid input with a clear problem and changes nothing."""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from api.app import create_app
from tests.api.builders import INGEST, READER, VERSION, uuid_of
from tests.api.conftest import verify

pytestmark = pytest.mark.spec("CON-26")

UUID = uuid_of(1)
ENTRY = {"uuid": UUID, "version": VERSION, "name": "a", "indexed": False}
BUNDLE = f"/v1/bundles/{UUID}?version={VERSION}&replica=aws"
FILE = f"/v1/files/{UUID}?version={VERSION}"
SEARCH = "/v1/search?replica=aws"


def check(answer, status: int, code: str) -> dict:
    """A problem of this kind, whole."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json
    assert body["code"] == code, body
    assert body["status"] == status
    assert body["type"]
    assert body["title"]
    assert body["detail"]
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert ("errors" in body) == (status == 400) or status == 422, body
    assert "Traceback" not in answer.text
    return body


QUERIES = [
    ("GET", "/v1/bundles/all", "Missing query parameter 'replica'", "illegal_arguments"),
    ("GET", f"/v1/bundles/{UUID}", "Missing query parameter 'replica'", "illegal_arguments"),
    ("GET", f"/v1/files/{UUID}", "Missing query parameter 'replica'", "illegal_arguments"),
    ("PUT", f"/v1/bundles/{UUID}", "Missing query parameter 'version'", "illegal_arguments"),
    ("PUT", f"/v1/files/{UUID}", "Missing query parameter 'version'", "illegal_arguments"),
    ("POST", "/v1/search", "Missing query parameter 'replica'", "illegal_arguments"),
    (
        "POST",
        f"/v1/bundles/{UUID}/checkout",
        "Missing query parameter 'replica'",
        "illegal_arguments",
    ),
    (
        "GET",
        f"/v1/bundles/checkout/{UUID}",
        "Missing query parameter 'replica'",
        "illegal_arguments",
    ),
    ("DELETE", f"/v1/bundles/{UUID}", "Missing query parameter 'replica'", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=azure", "replica", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=", "replica", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&prefix=g!", "prefix", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&prefix=a%0A", "prefix", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&per_page=0", "per_page", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&per_page=501", "per_page", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&per_page=ten", "per_page", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&per_page=-1", "per_page", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&per_page=%D9%A3", "per_page", "illegal_arguments"),
    ("GET", "/v1/bundles/all?replica=aws&search_after=nonsense", "page token", "illegal_token"),
    ("GET", "/v1/bundles/not-a-uuid?replica=aws", "UUID", "illegal_arguments"),
    ("GET", f"/v1/bundles/{UUID}?replica=aws&version=yesterday", "version", "illegal_version"),
    (
        "GET",
        f"/v1/bundles/{UUID}?replica=aws&version=2026-02-30T000000.000000Z",
        "",
        "illegal_version",
    ),
    ("GET", f"/v1/bundles/{UUID}?replica=aws&presignedurls=yes", "true", "illegal_arguments"),
    ("GET", f"/v1/bundles/{UUID}?replica=aws&start_at=-1", "start_at", "illegal_arguments"),
    (
        "GET",
        f"/v1/files/{UUID}?replica=aws&content_disposition=a%0Ab",
        "content",
        "illegal_arguments",
    ),
    ("HEAD", f"/v1/files/{UUID}?replica=azure", "", ""),
    ("GET", "/v1/tasks/1", "UUID", "illegal_arguments"),
    ("GET", "/v1/bundles/checkout/1?replica=aws", "UUID", "illegal_arguments"),
    ("POST", "/v1/area/1", "UUID", "illegal_arguments"),
    ("PUT", "/v1/area/1/files/a", "UUID", "illegal_arguments"),
]


@pytest.mark.spec("FMT-01", "FMT-06", "BUN-07", "BUN-23", "FIL-01", "CON-10", "ERR-01", "ERR-05")
@pytest.mark.parametrize(("method", "path", "said", "code"), QUERIES)
def test_a_bad_path_or_query_is_400_and_named(client, method, path, said, code) -> None:
    answer = client.open(path, method=method, headers=INGEST)
    if method == "HEAD":
        assert answer.status_code == 400
        return
    assert said in check(answer, 400, code)["detail"]


BODIES = [
    ("PUT", BUNDLE, b"{", "illegal_arguments", ""),
    ("PUT", BUNDLE, b'{"a":1}x', "illegal_arguments", ""),
    ("PUT", BUNDLE, b'{"creator_uid": NaN}', "illegal_arguments", ""),
    ("PUT", BUNDLE, b'"\xff"', "illegal_arguments", ""),
    ("PUT", BUNDLE, b"[]", "illegal_arguments", ""),
    ("PUT", BUNDLE, b"null", "illegal_arguments", ""),
    ("PUT", BUNDLE, b"", "illegal_arguments", "/creator_uid"),
    ("PUT", BUNDLE, b"[" * 5000 + b"]" * 5000, "illegal_arguments", ""),
    ("PUT", BUNDLE, b'{"x":' * 200 + b"1" + b"}" * 200, "illegal_arguments", ""),
    ("PUT", BUNDLE, {"creator_uid": "7", "files": [ENTRY]}, "illegal_arguments", "/creator_uid"),
    ("PUT", BUNDLE, {"creator_uid": 7.5, "files": [ENTRY]}, "illegal_arguments", "/creator_uid"),
    ("PUT", BUNDLE, {"creator_uid": True, "files": [ENTRY]}, "illegal_arguments", "/creator_uid"),
    ("PUT", BUNDLE, {"creator_uid": 2**63, "files": [ENTRY]}, "illegal_arguments", "/creator_uid"),
    ("PUT", BUNDLE, {"creator_uid": 7}, "illegal_arguments", "/files"),
    ("PUT", BUNDLE, {"creator_uid": 7, "files": {}}, "illegal_arguments", "/files"),
    ("PUT", BUNDLE, {"creator_uid": 7, "files": []}, "illegal_arguments", "/files"),
    ("PUT", BUNDLE, {"creator_uid": 7, "files": [ENTRY], "more": 1}, "illegal_arguments", "/more"),
    ("PUT", BUNDLE, {"creator_uid": 7, "files": [1]}, "illegal_arguments", "/files/0"),
    ("PUT", BUNDLE, {"creator_uid": 7, "files": [ENTRY, {}]}, "illegal_arguments", "/files/1/uuid"),
    (
        "PUT",
        BUNDLE,
        {"creator_uid": 7, "files": [ENTRY | {"x": 1}]},
        "illegal_arguments",
        "/files/0/x",
    ),
    (
        "PUT",
        BUNDLE,
        {"creator_uid": 7, "files": [ENTRY | {"uuid": 1}]},
        "illegal_arguments",
        "/files/0/uuid",
    ),
    (
        "PUT",
        BUNDLE,
        {"creator_uid": 7, "files": [ENTRY | {"name": 1}]},
        "illegal_arguments",
        "/files/0/name",
    ),
    (
        "PUT",
        BUNDLE,
        {"creator_uid": 7, "files": [ENTRY | {"indexed": 1}]},
        "illegal_arguments",
        "/files/0/indexed",
    ),
    (
        "PUT",
        BUNDLE,
        {"creator_uid": 7, "files": [ENTRY | {"indexed": "no"}]},
        "illegal_arguments",
        "/files/0/indexed",
    ),
    (
        "PUT",
        BUNDLE,
        {"creator_uid": 7, "files": [ENTRY | {"version": "1"}]},
        "illegal_version",
        "/files/0/version",
    ),
    (
        "PUT",
        BUNDLE,
        {"creator_uid": 7, "files": [ENTRY, ENTRY]},
        "duplicate_filename",
        "/files/1/name",
    ),
    ("PUT", FILE, {"creator_uid": 7}, "illegal_arguments", "/source_url"),
    ("PUT", FILE, {"source_url": "s3://a/b"}, "illegal_arguments", "/creator_uid"),
    ("PUT", FILE, {"source_url": 1, "creator_uid": 7}, "illegal_arguments", "/source_url"),
    ("PUT", FILE, {"source_url": "", "creator_uid": 7}, "illegal_arguments", "/source_url"),
    (
        "PUT",
        FILE,
        {"source_url": "s3://a/\0", "creator_uid": 7},
        "illegal_arguments",
        "/source_url",
    ),
    ("PUT", FILE, {"source_url": "s3://a/b", "creator_uid": 7, "x": 1}, "illegal_arguments", "/x"),
    ("DELETE", f"/v1/bundles/{UUID}?replica=aws", {}, "illegal_arguments", "/reason"),
    ("DELETE", f"/v1/bundles/{UUID}?replica=aws", {"reason": ""}, "illegal_arguments", "/reason"),
    ("DELETE", f"/v1/bundles/{UUID}?replica=aws", {"reason": 1}, "illegal_arguments", "/reason"),
    ("POST", SEARCH, {}, "illegal_arguments", "/es_query"),
    ("POST", SEARCH, {"es_query": []}, "illegal_arguments", "/es_query"),
    ("POST", SEARCH, {"es_query": {}, "x": 1}, "illegal_arguments", "/x"),
    (
        "POST",
        SEARCH,
        {"es_query": {"query": {"no_such_clause": {}}}},
        "elasticsearch_bad_request",
        None,
    ),
    (
        "POST",
        SEARCH + "&per_page=11&output_format=raw",
        {"es_query": {}},
        "illegal_arguments",
        "per_page",
    ),
    ("POST", SEARCH + "&output_format=xml", {"es_query": {}}, "illegal_arguments", "output_format"),
    ("POST", SEARCH + "&search_after=x", {"es_query": {}}, "illegal_token", None),
    (
        "POST",
        f"/v1/bundles/{UUID}/checkout?replica=aws",
        {"destination": "A_B"},
        "illegal_arguments",
        "/destination",
    ),
    (
        "POST",
        f"/v1/bundles/{UUID}/checkout?replica=aws",
        {"destination": "../etc"},
        "illegal_arguments",
        "/destination",
    ),
    (
        "POST",
        f"/v1/bundles/{UUID}/checkout?replica=aws",
        {"email": "a@b\r\nBcc: c@d"},
        "illegal_arguments",
        "/email",
    ),
    ("POST", f"/v1/bundles/{UUID}/checkout?replica=aws", {"x": 1}, "illegal_arguments", "/x"),
]


@pytest.mark.spec(
    "FMT-05",
    "BUN-23",
    "BUN-30",
    "BUN-34",
    "BUN-49",
    "FIL-01",
    "SEA-01",
    "CHK-02",
    "CON-09",
    "ERR-01",
    "ERR-05",
    "ERR-09",
)
@pytest.mark.parametrize(("method", "path", "body", "code", "where"), BODIES)
def test_a_bad_body_is_400_with_a_pointer(client, method, path, body, code, where) -> None:
    given = (
        {"data": body, "content_type": "application/json"}
        if isinstance(body, bytes)
        else {"json": body}
    )
    found = check(client.open(path, method=method, headers=INGEST, **given), 400, code)
    if where is not None and "errors" in found:
        assert where in found["errors"]
    assert where in (None, "") or "errors" in found


@pytest.mark.spec("BUN-33")
@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../up", "a/../../b", "a/./b", "a//b", "~/x", "a\\b", "a\nb", "a\0b"],
)
def test_rejects_names_that_leave_the_folder(client, name) -> None:
    body = {"creator_uid": 7, "files": [ENTRY | {"name": name}]}
    found = check(client.put(BUNDLE, json=body, headers=INGEST), 400, "illegal_arguments")
    assert "/files/0/name" in found["errors"]


@pytest.mark.spec("ERR-01")
def test_reports_position_of_malformed_json(client) -> None:
    answer = client.put(
        BUNDLE, data=b'{"a": 1,\n  oops}', content_type="application/json", headers=INGEST
    )
    assert "line 2, column 3" in check(answer, 400, "illegal_arguments")["detail"]


@pytest.mark.spec("ERR-01")
@pytest.mark.parametrize("body", [b" ", b"\n\t\r ", b"\x0b", b"\x0c", b"\x00", b"\xef\xbb\xbf"])
def test_rejects_blank_body_as_json(client, depositor, body) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=aws"
    answer = client.post(path, data=body)
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    assert answer.json["errors"][""][0].startswith("Malformed JSON")
    assert client.post(path).status_code == 200


@pytest.mark.spec("CON-10")
def test_the_query_is_checked_before_the_body(client) -> None:
    answer = client.put(
        f"/v1/bundles/{UUID}", data=b"{", content_type="application/json", headers=INGEST
    )
    assert check(answer, 400, "illegal_arguments")["detail"] == "Missing query parameter 'version'"


@pytest.mark.spec("CON-08")
def test_first_of_repeated_query_parameters_counts(client) -> None:
    assert client.get("/v1/bundles/all?replica=aws&replica=moon").status_code == 200
    assert client.get("/v1/bundles/all?replica=moon&replica=aws").status_code == 400


@pytest.mark.spec("ERR-32")
def test_a_body_of_another_type_is_415(client) -> None:
    form = client.put(BUNDLE, data={"a": "b"}, headers=INGEST)
    check(form, 415, "unsupported_media_type")
    latin = client.put(
        BUNDLE, data=b"{}", content_type="application/json; charset=latin-1", headers=INGEST
    )
    check(latin, 415, "unsupported_media_type")


@pytest.mark.spec("CON-16", "ERR-31")
def test_an_oversized_body_is_413(client, settings) -> None:
    announced = {"CONTENT_LENGTH": str(settings.max_body_bytes + 1)}
    answer = client.put(
        BUNDLE,
        data=b"{}",
        content_type="application/json",
        headers=INGEST,
        environ_overrides=announced,
    )
    check(answer, 413, "too_large")


@pytest.mark.spec("CON-16")
def test_only_manifests_may_be_large(client) -> None:
    body = {"es_query": {}, "padding": "x" * 1024 * 1024}
    check(client.post(SEARCH, json=body), 413, "too_large")
    check(client.put(BUNDLE, json=body, headers=INGEST), 400, "illegal_arguments")


@pytest.mark.spec("CON-16", "ERR-31")
def test_a_body_of_unannounced_length_is_413_at_the_limit_too(settings, stores, job_queue) -> None:
    small = replace(settings, max_body_bytes=1000)
    app = create_app(small, stores, job_queue=job_queue, verify=verify)
    for size, status in ((999, 400), (1000, 413), (5000, 413)):
        answer = app.test_client().put(
            BUNDLE,
            input_stream=io.BytesIO(b"x" * size),
            content_type="application/json",
            headers={**INGEST, "Transfer-Encoding": "chunked"},
            environ_overrides={"wsgi.input_terminated": True},
        )
        assert answer.status_code == status


@pytest.mark.spec("ERR-19", "ERR-20", "VER-01")
def test_unknown_paths_are_404_and_other_verbs_405_with_allow(client) -> None:
    check(client.get("/v1/nothing"), 404, "not_found")
    check(client.get("/v2/bundles/all"), 404, "not_found")
    answer = client.patch("/v1/search")
    check(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["Allow"]


GUARDED = [
    ("PUT", BUNDLE),
    ("DELETE", f"/v1/bundles/{UUID}?replica=aws"),
    ("PUT", FILE),
    ("POST", f"/v1/area/{UUID}"),
    ("PUT", f"/v1/area/{UUID}/files/a"),
    ("GET", "/metrics"),
]


@pytest.mark.spec("WHO-03", "ERR-17", "ERR-18")
@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_writes_require_token_and_permission(client, method, path) -> None:
    without = client.open(path, method=method)
    check(without, 401, "unauthorized")
    assert without.headers["WWW-Authenticate"] == "Bearer"
    valid = {"reason": "x"} if method == "DELETE" else {"creator_uid": 7, "files": [ENTRY]}
    valid = {"source_url": "s3://a/b", "creator_uid": 7} if "/files/" in path else valid
    given = {} if "area" in path or method == "GET" else {"json": valid}
    check(client.open(path, method=method, headers=READER, **given), 403, "forbidden")


@pytest.mark.spec("WHO-01", "WHO-02", "ERR-17")
@pytest.mark.parametrize("header", ["Bearer nobody", "Basic YTpi", "Bearer", "Bearer a, Bearer b"])
def test_rejects_bad_token_on_open_operations(client, header) -> None:
    answer = client.get("/v1/bundles/all?replica=aws", headers={"Authorization": header})
    check(answer, 401, "unauthorized")


@pytest.mark.spec("CON-13")
def test_a_host_that_is_not_believed_is_400(client) -> None:
    for host in (
        "evil.example",
        "localhost.evil.example",
        "localhost@evil",
        "127.0.0.1.evil.example",
    ):
        answer = client.get("/v1/bundles/all?replica=aws", headers={"Host": host})
        assert answer.status_code == 400
        assert "evil" not in answer.text
    for host in ("127.0.0.1:8000", "[::1]:8000", "localhost:1"):
        assert client.get("/v1/bundles/all?replica=aws", headers={"Host": host}).status_code == 200


class Broken(io.BytesIO):
    """A body whose framing the server cannot make sense of."""

    def readinto(self, _into):
        raise RuntimeError("Invalid chunk size")

    read = readall = readinto


@pytest.mark.spec("ERR-01")
def test_a_body_that_breaks_its_framing_is_400(client) -> None:
    client.post(f"/v1/area/{UUID}", headers=INGEST)
    for method, path in (("PUT", BUNDLE), ("PUT", f"/v1/area/{UUID}/files/a")):
        answer = client.open(
            path,
            method=method,
            input_stream=Broken(),
            headers={**INGEST, "Transfer-Encoding": "chunked"},
            environ_overrides={"wsgi.input_terminated": True},
        )
        check(answer, 400, "illegal_arguments")


UNBOUNDED = re._parser.MAXREPEAT  # type: ignore[attr-defined]
HUGE = "x" * 5000
PATH = "/v1/subscriptions?replica=aws"
QUERY = {"callback_url": "https://pipeline.example/notify"}


def texts(document: dict[str, Any], schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every string below a schema, names of free members too, with its JSON pointer."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = document["components"]["schemas"][name]
    if schema.get("type") == "string":
        yield path, schema
    if "items" in schema:
        yield from texts(document, schema["items"], f"{path}/0")
    for name, inner in schema.get("properties", {}).items():
        yield from texts(document, inner, f"{path}/{name}")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from texts(document, schema["additionalProperties"], f"{path}/*")


def is_bounded(schema: dict[str, Any]) -> bool:
    """Whether a string's schema says how long it may be."""
    if "maxLength" in schema or "enum" in schema or schema.get("format") == "uuid":
        return True
    pattern = schema.get("pattern")
    if pattern is None or not (pattern.startswith("^") and pattern.endswith("$")):
        return False
    return bool(re._parser.parse(pattern).getwidth()[1] < UNBOUNDED)  # type: ignore[attr-defined]


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                yield f"{verb} {path} {kind}", content["schema"]


def unbounded(document: dict[str, Any]) -> list[str]:
    return [
        f"{where} {pointer}"
        for where, schema in bodies(document)
        for pointer, text in texts(document, schema)
        if not is_bounded(text) and text.get("format") != "binary"
    ]


def test_every_text_of_a_body_has_a_maximum(client) -> None:
    document = client.get("/v1/swagger.json").json
    assert len(list(bodies(document))) > 15
    assert unbounded(document) == []


def test_a_text_without_a_maximum_is_noticed() -> None:
    def body(schema: dict[str, Any]) -> dict[str, Any]:
        content = {"application/json": {"schema": {"properties": {"a": schema}}}}
        return {"paths": {"/x": {"put": {"requestBody": {"content": content}}}}}

    assert unbounded(body({"type": "string"})) == ["put /x application/json /a"]
    assert unbounded(body({"type": "string", "pattern": "^a+$"})) != []
    assert unbounded(body({"type": "array", "items": {"type": "string"}})) != []
    assert unbounded(body({"additionalProperties": {"type": "string"}})) != []
    assert unbounded(body({"type": "string", "maxLength": 9})) == []
    assert unbounded(body({"type": "string", "pattern": "^[a-z]{3}$"})) == []


def put(client, **body: Any):
    return client.put(PATH, json={**QUERY, **body}, headers=READER)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"callback_url": f"https://pipeline.example/{HUGE}"}, "invalid_callback_url"),
        ({"jmespath_query": f"'{HUGE}'"}, "invalid_jmespath"),
        ({"hmac_key_id": HUGE}, "illegal_arguments"),
        ({"hmac_key_id": "x" * 257}, "illegal_arguments"),
        ({"hmac_secret_key": HUGE}, "illegal_arguments"),
        ({"payload_form_field": HUGE}, "illegal_arguments"),
        ({"form_fields": {"a": HUGE}}, "illegal_arguments"),
        ({"form_fields": {HUGE: "a"}}, "illegal_arguments"),
        ({"form_fields": {f"a{n}": "a" for n in range(101)}}, "illegal_arguments"),
        (
            {"attachments": {HUGE: {"type": "jmespath", "expression": "a"}}},
            "illegal_arguments",
        ),
        (
            {"attachments": {"a": {"type": "jmespath", "expression": f"'{HUGE}'"}}},
            "invalid_attachment_expression",
        ),
        (
            {"attachments": {f"a{n}": {"type": "jmespath", "expression": "a"} for n in range(101)}},
            "illegal_arguments",
        ),
        ({"es_query": {"query": {"match": {"a": HUGE * 4}}}}, "elasticsearch_bad_request"),
    ],
)
def test_texts_of_subscriptions_are_bounded(client, body, code) -> None:
    refused = put(client, **body)
    assert (refused.status_code, refused.json["code"]) == (400, code), refused.text
    assert client.get(PATH, headers=READER).json == {"subscriptions": []}


def test_accepts_longest_texts(client) -> None:
    made = put(
        client,
        hmac_key_id="k" * 256,
        hmac_secret_key="s" * 1024,
        payload_form_field="p" * 256,
        form_fields={"f" * 256: "v" * 4096},
    )
    assert made.status_code == 201, made.text
    rotated = client.put(
        f"/v1/subscriptions/{made.json['uuid']}/secret?replica=aws",
        json={"hmac_secret_key": "new", "hmac_key_id": "k" * 257},
        headers=READER,
    )
    assert rotated.status_code == 400
