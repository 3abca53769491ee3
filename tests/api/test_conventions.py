"""Behaviour of every operation: HEAD, ETag, gzip, limits, CORS, methods, parameters."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import abort
from marshmallow import EXCLUDE, RAISE
from werkzeug.datastructures import MultiDict

from api.app import OPERATIONS, create_app
from api.authz.app import OPERATIONS as AUTH_OPERATIONS
from api.http.limits import ReadOnlyMode
from api.http.loading import load_query
from api.http.responses import EXPOSED_HEADERS, MIN_COMPRESSED_BYTES
from api.schemas.fields import QueryFlag
from api.schemas.files import FILE_HEADERS
from storage.catalog import store_state
from storage.errors import Invalid
from storage.rate_limits import Rate, RateDecision
from tests.api.builders import INGEST, VERSION, uuid_of
from tests.api.conftest import verify

ROOT = Path(__file__).resolve().parents[2]
SEVERAL = "/v1/bundles/all?replica=aws&per_page=500"


def queried() -> Iterator[tuple[str, Any]]:
    for one in OPERATIONS:
        yield one.name, one.query


# Parameters


def given(query: Any, **more: str) -> MultiDict[str, str]:
    """Every required parameter of an operation, and these."""
    named = {name: item for name, item in query.load_fields.items() if item.required}
    filled = {name: EXAMPLES.get(name, uuid_of(1)) for name in named}
    return MultiDict({name: str(value) for name, value in {**filled, **more}.items()})


EXAMPLES = {"replica": "aws", "version": VERSION, "part": 1}

FLAGS = [
    (name, query, parameter)
    for name, query in queried()
    for parameter, item in query.load_fields.items()
    if isinstance(item, QueryFlag)
]


@pytest.mark.spec("CON-11")
@pytest.mark.parametrize(("name", "query", "parameter"), FLAGS, ids=str)
def test_booleans_are_true_false_1_0_in_any_case(name, query, parameter) -> None:
    for spelled, meant in {
        "true": True, "TRUE": True, "True": True, "1": True,
        "false": False, "FALSE": False, "fAlse": False, "0": False,
    }.items():  # fmt: skip
        assert getattr(load_query(query, given(query, **{parameter: spelled})), parameter) is meant
    for wrong in ("yes", "no", "", "2", "t", " true", "on"):
        with pytest.raises(Invalid):
            load_query(query, given(query, **{parameter: wrong}))


PER_PAGE = [(name, query) for name, query in queried() if "per_page" in query.load_fields]
MOST = {"get_events": 10}


@pytest.mark.spec("BUN-03", "BUN-17", "COL-16", "SUB-29", "EVT-02", "CON-06", "LIM-01")
@pytest.mark.parametrize(("name", "query"), PER_PAGE, ids=str)
def test_pages_have_1_to_500_items_by_default(name, query) -> None:
    most = MOST.get(name, 500)
    for size in (1, most):
        assert load_query(query, given(query, per_page=str(size))).per_page == size
    for wrong in ("0", str(most + 1), "-1", "1.0", "1e1", "", " 5", "٣", "9" * 30):
        with pytest.raises(Invalid) as refused:
            load_query(query, given(query, per_page=wrong))
        assert "per_page" in refused.value.errors


@pytest.mark.spec("SEA-05", "LIM-03")
def test_raw_search_has_pages_of_at_most_10(client) -> None:
    path = "/v1/search?replica=aws&output_format=raw"
    for size, status in ((1, 200), (10, 200), (11, 400), (0, 400)):
        answer = client.post(f"{path}&per_page={size}", json={"es_query": {}})
        assert answer.status_code == status


@pytest.mark.spec("CON-09")
@pytest.mark.parametrize(("name", "query"), list(queried()), ids=str)
def test_unknown_parameters_are_ignored_everywhere(name, query) -> None:
    assert query.unknown == EXCLUDE
    load_query(query, given(query, no_such_parameter="x"))


@pytest.mark.spec("CON-09")
@pytest.mark.parametrize("one", [o for o in OPERATIONS if o.body is not None], ids=lambda o: o.name)
def test_unknown_body_members_are_refused_everywhere(one) -> None:
    assert one.body.unknown == RAISE


@pytest.mark.spec("CON-08")
@pytest.mark.parametrize(("name", "query"), list(queried()), ids=str)
def test_first_of_repeated_parameters_counts(name, query) -> None:
    if "replica" not in query.load_fields:
        return
    first = MultiDict([("replica", "gcp"), *given(query).items(multi=True), ("replica", "azure")])
    assert load_query(query, first).replica == "gcp"


@pytest.mark.spec("CON-03", "CON-08")
def test_a_repeated_parameter_is_so_in_the_next_pages_url_too(client, depositor) -> None:
    for number in (1, 2):
        depositor.bundle(number)
    answer = client.get("/v1/bundles/all?replica=aws&per_page=1&replica=azure&per_page=9")
    assert answer.status_code == 206
    assert "azure" not in answer.headers["Link"]
    assert "per_page=1&" in answer.headers["Link"]


# Methods


@pytest.mark.spec("CON-17")
def test_every_path_that_answers_get_answers_head(app) -> None:
    for rule in app.url_map.iter_rules():
        assert "GET" not in rule.methods or "HEAD" in rule.methods, rule.rule


@pytest.mark.spec("OPS-20")
@pytest.mark.parametrize("page", ["deployment", "operations", "runbook"])
def test_pages_for_operators_name_existing_paths(app, page) -> None:
    """Load balancers and monitors are set up from them."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    urls = app.url_map.bind("")
    elsewhere = {one.path for one in AUTH_OPERATIONS}
    named = set(re.findall(r"`GET (/[^`? ]*)", text))
    assert named
    for path in named - elsewhere:
        assert urls.test(path) or urls.test(f"/v1{path}"), path


@pytest.mark.spec("CON-17")
@pytest.mark.parametrize(
    "path",
    [
        SEVERAL,
        "/v1/bundles/all?replica=azure",
        f"/v1/bundles/{uuid_of(1)}?replica=aws",
        f"/v1/bundles/{uuid_of(9)}?replica=aws",
        "/v1/replication",
        "/v1/subscriptions?replica=aws",
        "/v1/swagger.json",
        "/health",
        "/",
        "/v1/nothing",
    ],
)
def test_head_has_the_headers_of_get_and_no_body(client, depositor, path) -> None:
    depositor.bundle(1)
    changing = {"Date", "X-Request-Id", "ETag", "Content-Length"}
    for sent in ({}, {"Accept-Encoding": "gzip"}):
        got, headed = client.get(path, headers=sent), client.head(path, headers=sent)
        assert (headed.status_code, headed.data) == (got.status_code, b"")
        assert set(headed.headers.keys()) == set(got.headers.keys())
        for name in set(headed.headers.keys()) - changing:
            assert headed.headers[name] == got.headers[name]


@pytest.mark.spec("CON-18", "ERR-20")
def test_unsupported_method_is_405_with_allow_header(client) -> None:
    answer = client.post(f"/v1/bundles/{uuid_of(1)}?replica=aws")
    assert (answer.status_code, answer.json["code"]) == (405, "method_not_allowed")
    allowed = {method.strip() for method in answer.headers["Allow"].split(",")}
    assert {"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"} <= allowed
    asked = client.options(f"/v1/bundles/{uuid_of(1)}")
    assert (asked.status_code, asked.data) == (200, b"")
    assert {method.strip() for method in asked.headers["Allow"].split(",")} == allowed


@pytest.mark.spec("CON-07")
@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/v1/bundles/all", {"GET", "HEAD"}),
        ("/v1/events/feed", {"GET", "HEAD"}),
        ("/v1/subscriptions/dry-run", {"POST"}),
        (f"/v1/subscriptions/{uuid_of(1)}/deliveries/retry", {"POST"}),
        ("/v1/collections", {"GET", "HEAD", "PUT", "PATCH"}),
        ("/v1/subscriptions", {"GET", "HEAD", "PUT"}),
    ],
)
def test_fixed_path_words_are_never_uuids(client, path, known) -> None:
    asked = client.options(path)
    assert (asked.status_code, set(asked.headers["Allow"].split(", "))) == (
        200,
        known | {"OPTIONS"},
    )
    for method in {"GET", "PUT", "POST", "PATCH", "DELETE"} - known:
        answer = client.open(path, method=method)
        assert (answer.status_code, answer.json["code"]) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == asked.headers["Allow"]


@pytest.mark.spec("ERR-19")
@pytest.mark.parametrize("path", ["/v1/nothing", "/v2/bundles/all", "/v1/bundles/all/", "/x"])
def test_an_unknown_path_is_a_problem(client, path) -> None:
    for method in ("GET", "PUT", "POST", "DELETE", "PATCH"):
        answer = client.open(path, method=method)
        assert answer.status_code == 404
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json["code"] == "not_found"


@pytest.mark.spec("ERR-32")
def test_non_json_body_is_415(client) -> None:
    answer = client.post("/v1/search?replica=aws", data="<a/>", content_type="application/xml")
    assert (answer.status_code, answer.json["code"]) == (415, "unsupported_media_type")


@pytest.mark.spec("CON-24")
def test_ignores_accept_header(client) -> None:
    answer = client.get(SEVERAL, headers={"Accept": "application/xml"})
    assert (answer.status_code, answer.mimetype) == (200, "application/json")


# Tags


@pytest.mark.spec("CON-19")
def test_matching_etag_is_304(client, depositor) -> None:
    uuid = depositor.bundle(1, files=2)
    for path in (
        f"/v1/bundles/{uuid}?replica=aws&version={VERSION}",
        f"/v1/bundles/{uuid}?replica=aws&per_page=1",
        SEVERAL,
    ):
        first = client.get(path)
        assert first.headers["ETag"].startswith('W/"')
        assert first.headers["Cache-Control"] == "no-cache"
        again = client.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b"")
        for name in dict(first.headers).keys() - {"Content-Type", "Content-Length", "X-Request-Id"}:
            assert again.headers[name] == first.headers[name]
        other = client.get(path, headers={"If-None-Match": '"another", W/"tag"'})
        assert other.status_code == first.status_code


@pytest.mark.spec("CON-19")
def test_events_and_collections_have_etags(client, depositor) -> None:
    uuid = depositor.bundle(1)
    link = {"type": "bundle", "uuid": uuid, "version": VERSION}
    body = {
        "name": "n",
        "description": "d",
        "details": {"a": "b" * MIN_COMPRESSED_BYTES},
        "contents": [link],
    }
    put = client.put(
        f"/v1/collections?replica=aws&uuid={uuid_of(2)}&version={VERSION}",
        json=body,
        headers=INGEST,
    )
    assert put.status_code == 201, put.text
    depositor.drain()
    for path, kept in (
        (f"/v1/events/{uuid}?replica=aws&version={VERSION}", "no-cache"),
        (f"/v1/collections/{uuid_of(2)}?replica=aws", "private, no-cache"),
        (f"/v1/collections/{uuid_of(2)}?replica=aws&version={VERSION}", "private, no-cache"),
        ("/v1/collections?replica=aws", "private, no-cache"),
    ):
        first = client.get(path, headers=INGEST)
        assert (first.status_code, first.headers["Cache-Control"]) == (200, kept)
        tag = first.headers["ETag"]
        for method in ("GET", "HEAD"):
            for sent in ({}, {"Accept-Encoding": "gzip"}):
                again = client.open(
                    path, method=method, headers=INGEST | sent | {"If-None-Match": tag}
                )
                assert (again.status_code, again.data) == (304, b"")
                assert again.headers["ETag"] == tag
                whole = client.open(path, method=method, headers=INGEST | sent)
                assert (whole.status_code, whole.headers["ETag"]) == (200, tag)
                long = len(first.data) >= MIN_COMPRESSED_BYTES
                assert (whole.headers.get("Content-Encoding") == "gzip") == (long and bool(sent))
                if method == "GET":
                    data = gzip.decompress(whole.data) if long and sent else whole.data
                    assert data == first.data
                else:
                    assert whole.data == b""
        other = client.get(path, headers=INGEST | {"If-None-Match": '"x"'})
        assert other.data == first.data
    patched = client.patch(
        f"/v1/collections/{uuid_of(2)}?replica=aws&version={VERSION}",
        json={"name": "another"},
        headers=INGEST,
    )
    assert patched.status_code == 200, patched.text
    latest = f"/v1/collections/{uuid_of(2)}?replica=aws"
    was = client.get(f"{latest}&version={VERSION}", headers=INGEST).headers["ETag"]
    assert client.get(latest, headers=INGEST | {"If-None-Match": was}).status_code == 200


@pytest.mark.spec("CON-19")
def test_the_latest_version_has_another_tag_once_there_is_a_later_one(client, depositor) -> None:
    uuid = depositor.bundle(1)
    path = f"/v1/bundles/{uuid}?replica=aws"
    tag = client.get(path).headers["ETag"]
    entries = client.get(path).json["bundle"]["files"]
    entry = {key: entries[0][key] for key in ("uuid", "version", "name", "indexed")}
    later = "2027-01-31T235959.000000Z"
    assert depositor.put_bundle(uuid, [entry], version=later).status_code == 201
    again = client.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.json["bundle"]["version"]) == (200, later)


@pytest.mark.spec("CON-19")
def test_tombstone_is_never_304(client, depositor) -> None:
    uuid = depositor.bundle(1)
    path = f"/v1/bundles/{uuid}?replica=aws"
    tag = client.get(path).headers["ETag"]
    client.delete(path, json={"reason": "withdrawn"}, headers=INGEST)
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 404


@pytest.mark.spec("CON-19")
def test_a_file_version_is_its_own_tag(client, depositor) -> None:
    depositor.file(1)
    path = f"/v1/files/{uuid_of(1)}?replica=aws"
    for method, status in (("GET", 302), ("HEAD", 200)):
        first = client.open(path, method=method)
        assert first.status_code == status
        assert first.headers["ETag"] == f'"{uuid_of(1)}.{VERSION}"'
        again = client.open(path, method=method, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b"")
        assert {name: again.headers[name] for name in FILE_HEADERS} == {
            name: first.headers[name] for name in FILE_HEADERS
        }
        assert "Location" not in again.headers


@pytest.mark.spec("CON-19")
def test_owner_only_responses_are_not_shared_in_caches(client) -> None:
    put = client.put(
        "/v1/subscriptions?replica=aws",
        json={"callback_url": "http://127.0.0.1:1/x"},
        headers=INGEST,
    )
    path = f"/v1/subscriptions/{put.json['uuid']}?replica=aws"
    assert client.get(path, headers=INGEST).headers["Cache-Control"] == "private, no-cache"


# gzip


@pytest.mark.spec("CON-20")
def test_compresses_long_json_on_request(client, depositor) -> None:
    for number in range(1, 13):
        depositor.bundle(number)
    plain = client.get(SEVERAL)
    assert len(plain.data) >= MIN_COMPRESSED_BYTES
    assert "Content-Encoding" not in plain.headers
    assert "Accept-Encoding" in plain.headers["Vary"]
    packed = client.get(SEVERAL, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert int(packed.headers["Content-Length"]) == len(packed.data) < len(plain.data)
    assert packed.headers["ETag"] == plain.headers["ETag"]
    refused = client.get(SEVERAL, headers={"Accept-Encoding": "gzip;q=0"})
    assert refused.data == plain.data


@pytest.mark.spec("CON-20")
def test_short_answers_and_objects_are_left_as_they_are(client, depositor) -> None:
    takes = {"Accept-Encoding": "gzip"}
    assert "Content-Encoding" not in client.get("/v1/replication/x", headers=takes).headers
    depositor.put_file(uuid_of(1), b"a" * 5000)
    depositor.drain()
    where = client.get(f"/v1/files/{uuid_of(1)}?replica=aws").headers["Location"]
    served = client.get(where, headers=takes)
    assert (served.status_code, served.data) == (200, b"a" * 5000)
    assert "Content-Encoding" not in served.headers


# Origins


@pytest.fixture
def from_pages(settings, stores, job_queue):
    own = replace(settings, cors_origins=("https://portal.example",))
    return create_app(own, stores, job_queue=job_queue, verify=verify).test_client()


@pytest.mark.spec("CON-23")
def test_rejects_other_origins_by_default(client) -> None:
    answer = client.get(SEVERAL, headers={"Origin": "https://portal.example"})
    assert not [name for name in dict(answer.headers) if name.startswith("Access-Control")]


@pytest.mark.spec("CON-23")
def test_pages_of_the_origins_that_are_named_see_our_headers(from_pages) -> None:
    for path in (SEVERAL, "/v1/bundles/all", "/v1/nothing"):
        answer = from_pages.get(path, headers={"Origin": "https://portal.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "https://portal.example"
        exposed = set(answer.headers["Access-Control-Expose-Headers"].split(", "))
        assert (
            {*FILE_HEADERS, "Link", "Retry-After", "X-STORE-SERVED-BY"}
            <= exposed
            <= set(EXPOSED_HEADERS)
        )
        assert "Origin" in answer.headers["Vary"]
        other = from_pages.get(path, headers={"Origin": "https://evil.example"})
        assert "Access-Control-Allow-Origin" not in other.headers
        assert "Origin" in other.headers["Vary"]


@pytest.mark.spec("CON-23")
def test_answers_preflight_before_authorization(from_pages) -> None:
    asked = {
        "Origin": "https://portal.example",
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    answer = from_pages.options(f"/v1/bundles/{uuid_of(1)}", headers=asked)
    assert (answer.status_code, answer.data) == (204, b"")
    assert "PUT" in answer.headers["Access-Control-Allow-Methods"]
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    other = from_pages.options("/v1/x", headers=asked | {"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Methods" not in other.headers


@pytest.mark.spec("CON-23")
def test_a_star_lets_every_origin_in(settings, stores, job_queue) -> None:
    own = replace(settings, cors_origins=("*",))
    client = create_app(own, stores, job_queue=job_queue, verify=verify).test_client()
    answer = client.get(SEVERAL, headers={"Origin": "https://anywhere.example"})
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


# Limits


class Counting:
    """So many requests of each sender, ever."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def take(self, who: str, rate: Rate) -> RateDecision:
        self.taken[who] = self.taken.get(who, 0) + 1
        left = rate.burst - self.taken[who]
        return RateDecision(left >= 0, max(0, left), 7, 60)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def limited(settings, stores, job_queue, counting):
    own = replace(
        settings,
        rate_per_minute=10,
        rate_burst=3,
        rate_anonymous_per_minute=10,
        rate_anonymous_burst=2,
        proxies=1,
    )
    counted = replace(stores, rate_limiter=counting)
    return create_app(own, counted, job_queue=job_queue, verify=verify).test_client()


@pytest.mark.spec("CON-21")
def test_rate_limits_are_off_by_default(client, stores) -> None:
    assert stores.rate_limiter is None
    assert "RateLimit-Limit" not in client.get(SEVERAL).headers


@pytest.mark.spec("CON-21", "ERR-39")
def test_rate_limited_caller_gets_429_with_retry_after(limited) -> None:
    seen = [limited.get(SEVERAL, headers=INGEST) for _ in range(4)]
    assert [answer.status_code for answer in seen] == [200, 200, 200, 429]
    assert [answer.headers["RateLimit-Remaining"] for answer in seen] == ["2", "1", "0", "0"]
    assert {answer.headers["RateLimit-Limit"] for answer in seen} == {"3"}
    assert seen[-1].headers["RateLimit-Reset"] == "60"
    assert seen[-1].headers["Retry-After"] == "7"
    assert seen[-1].json["code"] == "too_many_requests"
    assert limited.get(SEVERAL).status_code == 200
    assert limited.get("/health").status_code == 200


@pytest.mark.spec("CON-21")
def test_reads_by_presigned_url_are_limited_by_address(limited, stores) -> None:
    stores.replicas["aws"].put("blobs/aa/x", b"bytes", content_type="text/plain")
    url = stores.replicas["aws"].sign("blobs/aa/x", expires_s=60)
    seen = [limited.get(url, buffered=True) for _ in range(3)]
    assert [answer.status_code for answer in seen] == [200, 200, 429]
    assert seen[1].headers["RateLimit-Remaining"] == "0"
    assert int(seen[2].headers["Retry-After"]) > 0


@pytest.mark.spec("CON-21")
def test_each_principal_has_its_own_rate_limit(limited, counting) -> None:
    for person, address in (
        ("ingest", "192.0.2.1"),
        ("ingest", "192.0.2.2"),
        ("other", "192.0.2.1"),
    ):
        given = {"Authorization": f"Bearer {person}", "X-Forwarded-For": address}
        assert limited.get(SEVERAL, headers=given).status_code == 200
    assert counting.taken == {"p:ingest@example.org": 2, "p:other@example.org": 1}


@pytest.mark.spec("CON-21")
def test_anonymous_callers_are_limited_by_address(limited, counting) -> None:
    given = ("192.0.2.1", "spoofed, 192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2")
    # Some proxies tell the port, too.
    ported = ("192.0.2.1:40001", "192.0.2.1:40002", "[2001:db8::3]:40003")
    for address in (*given, *ported, "2001:db8::1", "2001:db8::2"):
        limited.get(SEVERAL, headers={"X-Forwarded-For": address})
    expected = {"a:192.0.2.1": 5, "a:192.0.2.2": 1, "a:2001:db8::/64": 3}
    assert counting.taken == expected


@pytest.mark.spec("CON-21")
def test_invalid_tokens_are_limited_by_address(limited) -> None:
    tries = [limited.get(SEVERAL, headers={"Authorization": f"Bearer {n}"}) for n in range(3)]
    assert [answer.status_code for answer in tries] == [401, 401, 429]


# Read-only


@pytest.mark.spec("CON-22", "ERR-42", "OPS-11")
def test_an_operators_switch_is_seen_while_the_store_runs(settings, stores, job_queue) -> None:
    first = create_app(settings, stores, job_queue=job_queue, verify=verify).test_client()
    path = f"/v1/bundles/{uuid_of(1)}?replica=aws&version={VERSION}"
    with stores.catalog.write() as tx:
        store_state.set_read_only(tx, "Moving to another cloud.")
    refused = first.put(path, json={}, headers=INGEST)
    assert (refused.status_code, refused.json["code"]) == (503, "read_only")
    assert refused.json["detail"] == "Moving to another cloud."
    assert int(refused.headers["Retry-After"]) > 0
    assert first.get(SEVERAL).status_code == 200
    told = first.get("/health").json["parts"]["writes"]
    assert (told["status"], told["reason"]) == ("warning", "Moving to another cloud.")
    with stores.catalog.write() as tx:
        store_state.set_read_only(tx, None)
    again = create_app(settings, stores, job_queue=job_queue, verify=verify).test_client()
    assert again.put(path, json={}, headers=INGEST).status_code == 400


READS_BY_POST = {"post_search", "post_search_facets", "dry_run_subscription"}
READING = {"GET", "HEAD"}


def asked(client: Any, one: Any, **more: Any) -> Any:
    """A request to an operation with every parameter it wants, by somebody who may all."""
    path = re.sub(r"{\w+}", uuid_of(1), one.path)
    sent: dict[str, Any] = {"query_string": dict(given(one.query).items()), "headers": INGEST}
    if one.upload:
        sent["data"] = b"x"
    elif one.body is not None:
        sent["json"] = {}
    return client.open(f"/v1{path}", method=one.method, **sent, **more)


@pytest.fixture
def closed(settings, stores, job_queue):
    own = replace(settings, read_only=True)
    return create_app(own, stores, job_queue=job_queue, verify=verify).test_client()


@pytest.mark.spec("CON-22")
@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_every_operation_that_writes_is_refused_while_read_only(closed, stores, one) -> None:
    answer = asked(closed, one)
    if one.method in READING or one.name in READS_BY_POST:
        assert answer.status_code < 500
        return
    assert (answer.status_code, answer.json["code"]) == (503, "read_only")
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.spec("OPS-61", "ERR-60")
def test_a_mirror_refuses_every_write_and_names_its_source(settings, stores, job_queue) -> None:
    own = replace(settings, mirror_of="https://source.example.org")
    mirror = create_app(own, stores, job_queue=job_queue, verify=verify).test_client()
    for one in OPERATIONS:
        if one.method in READING or one.name in READS_BY_POST:
            continue
        answer = asked(mirror, one)
        assert (answer.status_code, answer.json["code"]) == (403, "read_only_mirror"), one.name
        assert "https://source.example.org" in answer.json["detail"]
    assert mirror.get("/v1/bundles/all?replica=aws").status_code == 200


@pytest.mark.spec("CON-22")
def test_routes_accept_only_operations(app) -> None:
    """So that none is forgotten where writes are refused."""
    routed = {
        (rule.rule, method)
        for rule in app.url_map.iter_rules()
        for method in rule.methods - READING - {"OPTIONS"}
        if not rule.endpoint.startswith("other methods ")
    }
    known = {
        (f"/v1{re.sub(r'{filename}', '{path:filename}', path)}".translate(ANGLES), one.method)
        for one in OPERATIONS
        for path in (one.path, *one.aliases)
    }
    assert routed <= known | {SIGNED_UPLOAD}


SIGNED_UPLOAD = ("/v1/objects/<bucket>/<path:key>", "PUT")
"""Its URL is all the leave it takes; `tests/api/test_area_credentials.py` has it refused, too."""

ANGLES = str.maketrans("{}", "<>")


class NeverWritten:
    """A catalog that may be read only."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, **_more: Any) -> Any:
        raise AssertionError("a read wrote to the catalog")


@pytest.mark.spec("CON-22")
@pytest.mark.parametrize(
    "one", [one for one in OPERATIONS if not one.writes], ids=lambda one: one.name
)
def test_no_read_writes_to_the_catalog(settings, stores, job_queue, depositor, one) -> None:
    depositor.bundle(1)
    catalog: Any = NeverWritten(stores.catalog)
    app = create_app(settings, replace(stores, catalog=catalog), job_queue=job_queue, verify=verify)
    assert asked(app.test_client(), one).status_code < 500


@pytest.mark.spec("CON-22")
def test_reads_read_only_switch_at_most_once_a_second(stores) -> None:
    now = [0.0]
    looking = ReadOnlyMode(stores.catalog, clock=lambda: now[0])
    assert looking.reason() is None
    with stores.catalog.write() as tx:
        store_state.set_read_only(tx, "why")
    assert looking.reason() is None
    now[0] = 1.0
    assert looking.reason() == "why"


# Retry-After


@pytest.mark.spec("ERR-04", "ERR-43")
@pytest.mark.parametrize("status", [429, 503, 504])
def test_temporary_errors_have_retry_after(app, client, status) -> None:
    def fail() -> None:
        abort(status)

    app.add_url_rule("/fail", "fail", fail)
    answer = client.get("/fail")
    assert answer.status_code == status
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.spec("BUN-29", "ERR-04")
def test_bundle_waiting_for_files_has_retry_after(depositor) -> None:
    depositor.put_file(uuid_of(5))
    entry = {"uuid": uuid_of(5), "version": VERSION, "name": "a", "indexed": False}
    answer = depositor.put_bundle(uuid_of(1), [entry], headers={"Prefer": "wait=0"})
    assert (answer.status_code, answer.json["code"]) == (409, "file_pending")
    assert int(answer.headers["Retry-After"]) > 0
