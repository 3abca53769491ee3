"""A store whose authorization service runs elsewhere, over a real connection."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from werkzeug.test import TestResponse

from api.app import build_verifier, create_app
from api.authz import create_auth_app
from api.http.operation import SMALL_BODY_BYTES
from auth import service_accounts
from auth.accounts import AuditContext
from auth.service_accounts import ServiceAccounts, parse_credentials_key
from auth.tokens.issuance import TokenSpec, issue_token, sign_claims
from auth.tokens.signing_keys import SigningKeyFile
from auth.tokens.verification import GrantChecker
from config import Settings
from storage.catalog import Catalog, oauth
from storage.catalog.oauth import GrantRow
from storage.catalog.sql import parse
from storage.opentelemetry_traces import CollectorTracer
from storage.stores import Stores
from storage.tracing import Tracer
from tests.api.authz.builders import of_user, policy
from tests.api.builders import VERSION, uuid_of
from tests.auth.accounts.builders import People, a_policy
from tests.auth.builders import Clock
from tests.auth.misbehaving_services import STORE, Script, credentials_file, handler, saying
from tests.catalogs import Spares
from tests.conftest import Outbox, keyed
from tests.http_server import serving, serving_late
from tests.waiting import until

ADA = "ada@example.org"
OPEN = f"/v1/bundles/{uuid_of(1)}?replica=aws&version={VERSION}"
LAPTOP, PHONE = "login-of-the-laptop", "login-of-the-phone"
INSIDE, OUTSIDE = "192.0.2.7", "198.51.100.7"
ASKING = policy("auth:PostPoliciesEvaluate", "arn:auth:*:*:user/*")
EVALUATE, ASK_VERSION = "/v1/policies/evaluate", "/v1/policies/version"


@dataclass
class Service:
    """The authorization service: its records, its keys, and what it was asked."""

    url: str
    settings: Settings
    catalog: Catalog
    client: FlaskClient
    stop: Callable[[], None]
    asked: list[str] = field(default_factory=list)

    @property
    def questions(self) -> list[str]:
        """What it was asked about policies."""
        return [path for path in self.asked if path in (EVALUATE, ASK_VERSION)]

    def operator(self, email: str = "root@example.org", *groups: str) -> str:
        """A token that an operator of the service signed."""
        return issue_token(
            SigningKeyFile(self.settings.home, self.settings.secret_key).read(),
            TokenSpec(email, groups, 600),
            issuer=self.url,
            audience=["store"],
            now=time.time(),
            token_id="t",
        )

    def person(self, *groups: str, grant: str = LAPTOP) -> str:
        """A token as a login gives it to Ada."""
        now = int(time.time())
        own = {"iss": self.url, "sub": ADA, "email": ADA, "aud": ["store"], "grant": grant}
        claims = {**own, "iat": now, "exp": now + 600, "groups": list(groups)}
        return sign_claims(
            SigningKeyFile(self.settings.home, self.settings.secret_key).read(), claims
        )

    def call(self, method: str, path: str, body: Any = None, **query: str) -> None:
        """What an administrator does there."""
        headers = {"Authorization": f"Bearer {self.operator()}"}
        answer = self.client.open(
            path, method=method, json=body, query_string=query or None, headers=headers
        )
        assert answer.status_code in (200, 201), answer.text


@pytest.fixture
def service_catalog(spares: Spares, tmp_path: Path) -> Iterator[Catalog]:
    """The service's own records."""
    folder = tmp_path / "service"
    folder.mkdir()
    with spares.lend("sqlite", folder) as url:
        opened = Catalog(url)
        yield opened
        opened.close()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(request: pytest.FixtureRequest, spans: InMemorySpanExporter) -> Tracer:
    """Records all requests if the test says so, else none."""
    if getattr(request, "param", False):
        return CollectorTracer("", 1.0, exporter=spans)
    return Tracer()


@pytest.fixture
def service(
    service_catalog: Catalog, tmp_path: Path, signing_file: Path, tracer: Tracer
) -> Iterator[Service]:
    with ExitStack() as running:
        url, put = running.enter_context(serving_late())
        settings = Settings(
            home=keyed(tmp_path / "service", signing_file),
            auth_external_url=url,
            secret_key="the secret of the service for tests",
            administrators=("root@example.org",),
        )
        app = _service_app(settings, service_catalog, tracer)
        client = app.test_client()
        made = Service(url, settings, service_catalog, client, running.close)
        app.before_request(lambda: made.asked.append(request.path))
        put(app)
        _register(made, credentials_file(tmp_path))
        yield made


def _service_app(settings: Settings, catalog: Catalog, tracer: Tracer) -> Flask:
    accounts = ServiceAccounts(catalog, lifetime_s=600)
    logins = GrantChecker(catalog, time.time)
    verify = build_verifier(settings, time.time, accounts=accounts, grants=logins).verify
    return create_auth_app(settings, catalog, verify=verify, tracer=tracer)


def _register(service: Service, file: Path) -> None:
    """As an operator of the service does it."""
    with service.catalog.write() as tx:
        key = parse_credentials_key(file.read_text(), email=STORE)
        service_accounts.add_account_key(tx, STORE, key, by=AuditContext("operator", "test"))
    service.call("POST", "/v1/user", {"user_id": STORE, "policy": ASKING})
    service.call("POST", "/v1/user", {"user_id": ADA})
    log_in(service, LAPTOP)
    service.asked.clear()


def log_in(service: Service, grant: str) -> None:
    """Ada lets an application have tokens."""
    row = dict.fromkeys(GrantRow.__slots__)
    now = int(time.time() * 1e6)
    times = {"auth_us": now, "created_us": now, "redeemed_us": now, "ends_us": now + 10**9}
    row |= {"id": grant, "client": "store-cli", "email": ADA, "scope": "openid", **times}
    with service.catalog.write() as tx:
        oauth.insert_grant(tx, GrantRow(**row))


def log_out(service: Service, grant: str) -> None:
    with service.catalog.write() as tx:
        assert oauth.revoke_grant(tx, grant, int(time.time() * 1e6))


@dataclass
class Store:
    """The store, as somebody sees it who has a token."""

    client: FlaskClient

    def write(
        self, token: str | None, number: int = 1, *, address: str = INSIDE, **headers: str
    ) -> TestResponse:
        """Ask for something that is judged."""
        return self._sent("POST", f"/v1/area/{uuid_of(number)}", token, address, **headers)

    def read(self, token: str | None) -> TestResponse:
        """Ask for something that is open."""
        return self._sent("GET", OPEN, token)

    def _sent(
        self, method: str, path: str, token: str | None, address: str = INSIDE, **headers: str
    ) -> TestResponse:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        seen = {"REMOTE_ADDR": address}
        return self.client.open(path, method=method, headers=headers, environ_overrides=seen)


Started = Callable[..., Store]


@pytest.fixture
def start(
    settings: Settings, stores: Stores, job_queue: Outbox, tmp_path: Path, tracer: Tracer
) -> Started:
    """Starts a store whose authorization service is at that address."""

    def started(issuer: str, *, clock: Callable[[], float] = time.time, **changed: Any) -> Store:
        apart = replace(
            settings,
            auth_external_url=issuer,
            issuers={issuer: f"{issuer}/.well-known/jwks.json"},
            **{"policies_url": issuer, "policies_timeout_s": 5.0, **changed},
            policies_credentials=str(credentials_file(tmp_path)),
        )
        verify = build_verifier(apart, time.time).verify
        traced = replace(stores, tracer=tracer)
        app = create_app(apart, traced, job_queue=job_queue, verify=verify, clock=clock)
        return Store(app.test_client())

    return started


@pytest.fixture
def store(start: Started, service: Service) -> Store:
    return start(service.url)


def ingester(service: Service, action: str = "add") -> None:
    service.call("PUT", of_user(ADA, "/roles"), {"roles": ["store_ingest"]}, action=action)


@pytest.mark.spec("APA-01")
def test_the_services_records_decide_and_a_change_counts_from_the_next_request_on(
    store: Store, service: Service
) -> None:
    ada = service.person()
    refused = store.write(ada)
    assert (refused.status_code, (refused.json or {})["code"]) == (403, "forbidden")
    ingester(service)
    assert [store.write(ada).status_code for _ in range(2)] == [201, 200]
    ingester(service, "remove")
    assert store.write(ada).status_code == 403


@pytest.mark.spec("APA-01")
def test_disabled_user_is_rejected_despite_cache(store: Store, service: Service) -> None:
    by_login, by_operator = service.person(), service.operator(ADA)
    ingester(service)
    assert [store.write(by_login).status_code for _ in range(3)] == [201, 200, 200]
    assert store.write(by_operator).status_code == 200
    assert store.read(by_login).status_code == 404
    service.call("PUT", of_user(ADA), status="disabled")
    assert [store.write(by_operator).status_code, store.read(by_operator).status_code] == [403] * 2
    assert taken_back(store.write(by_login))
    assert taken_back(store.read(by_login))
    assert store.read(None).status_code == 404
    service.call("PUT", of_user(ADA), status="enabled")
    assert store.write(by_operator).status_code == 200
    # Who is enabled again logs in again.
    assert taken_back(store.write(by_login))


def taken_back(answer: TestResponse) -> bool:
    told = answer.json or {}
    assert (answer.status_code, answer.headers["WWW-Authenticate"][:6]) == (401, "Bearer")
    return (told["code"], told["detail"]) == ("unauthorized", "The token was revoked")


@pytest.mark.spec("APA-08")
def test_revoked_login_is_rejected_from_next_request_on(store: Store, service: Service) -> None:
    log_in(service, PHONE)
    laptop, phone = service.person(), service.person(grant=PHONE)
    ingester(service)
    assert [store.write(one).status_code for one in (laptop, phone, laptop)] == [201, 200, 200]
    log_out(service, LAPTOP)
    for answer in (store.write(laptop), store.write(laptop, 2), store.read(laptop)):
        assert taken_back(answer)
    assert [store.write(phone).status_code, store.read(phone).status_code] == [200, 404]
    # What no login gave ends with no login.
    assert store.write(service.operator(ADA)).status_code == 200


@pytest.mark.spec("APA-08")
def test_unknown_login_is_rejected(store: Store, service: Service) -> None:
    ingester(service)
    assert taken_back(store.write(service.person(grant="another")))
    assert taken_back(store.read(service.person(grant="another")))


@pytest.mark.spec("APA-08")
def test_revoked_login_is_rejected_at_next_version_check(start: Started, service: Service) -> None:
    store = start(service.url, policies_check_ms=300)
    ada = service.person()
    ingester(service)
    assert store.write(ada).status_code == 201
    log_out(service, LAPTOP)
    deadline = time.monotonic() + 10
    while store.write(ada).status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert taken_back(store.write(ada))


@pytest.mark.spec("APA-09")
def test_reads_large_body_only_if_action_is_possible(store: Store, service: Service) -> None:
    large = b'{"creator_uid": 1, "files": [], "x": "' + b"x" * SMALL_BODY_BYTES + b'"}'
    headers = {"Authorization": f"Bearer {service.person()}", "Content-Type": "application/json"}

    def put(body: bytes) -> int:
        path = f"/v1/bundles/{uuid_of(1)}?replica=aws&version={VERSION}"
        return store.client.put(path, data=body, headers=headers).status_code

    assert [put(large), put(b"{}")] == [403, 400]
    service.call("PUT", of_user(ADA, "/policy"), {"policy": policy("store:PutBundle", "arn:x")})
    assert [put(large), put(b"{}")] == [400, 400]


@pytest.mark.spec("APA-02")
def test_cached_decision_costs_one_version_check(store: Store, service: Service) -> None:
    ada = service.person()
    ingester(service)
    store.write(ada)
    service.asked.clear()
    assert [store.write(ada).status_code for _ in range(3)] == [200] * 3
    assert service.asked == [ASK_VERSION] * 3
    service.asked.clear()
    assert store.write(ada, 2).status_code == 201
    assert service.asked == [EVALUATE]
    service.asked.clear()
    assert store.read(None).status_code == 404
    assert service.asked == []


@pytest.mark.spec("APA-01")
def test_an_operator_may_let_versions_be_old(start: Started, service: Service) -> None:
    store = start(service.url, policies_check_ms=600_000)
    ada = service.person()
    ingester(service)
    store.write(ada)
    ingester(service, "remove")
    service.asked.clear()
    assert [store.write(ada).status_code for _ in range(3)] == [200] * 3
    assert service.asked == []
    # What has to be asked anyway tells of the change.
    assert store.write(ada, 2).status_code == 403
    assert store.write(ada).status_code == 403


@pytest.mark.spec("APA-01")
def test_groups_in_a_logins_token_are_information_and_an_operators_count(
    store: Store, service: Service
) -> None:
    assert store.write(service.person("store_admin", "store_ingest")).status_code == 403
    assert store.write(service.operator(ADA)).status_code == 403
    assert store.write(service.operator(ADA, "store_ingest")).status_code == 201


def conditional(service: Service, *conditions: Mapping[str, Any], effect: str = "Deny") -> None:
    """Ada may write, but for what these say."""
    only = [
        {"Effect": effect, "Action": "store:*", "Resource": "*", "Condition": each}
        for each in conditions
    ]
    ours = policy("store:PostArea")["Statement"] if effect == "Deny" else []
    service.call("PUT", of_user(ADA, "/policy"), {"policy": {"Statement": [*ours, *only]}})
    service.asked.clear()


@pytest.mark.spec("APA-02")
def test_address_condition_uses_address_of_each_request(store: Store, service: Service) -> None:
    ada = service.person()
    conditional(service, {"NotIpAddress": {"store:SourceIp": "192.0.2.0/24"}})
    assert store.write(ada).status_code == 201
    assert store.write(ada, address=OUTSIDE).status_code == 403
    assert store.write(ada).status_code == 200
    assert store.write(ada, address=OUTSIDE, **{"X-Forwarded-For": INSIDE}).status_code == 403
    assert service.questions == [EVALUATE] * 4
    # Who comes from where they came from last costs a look at the version, as everybody does.
    assert [store.write(ada).status_code for _ in range(3)] == [200] * 3
    assert service.questions[4:] == [EVALUATE] + [ASK_VERSION] * 2


@pytest.mark.spec("APA-02")
def test_a_remembered_decision_does_not_outlive_a_condition_on_time(
    start: Started, service: Service
) -> None:
    clock = Clock(1_780_000_000.0)
    store = start(service.url, clock=clock, policies_check_ms=600_000)
    ada = service.person()
    conditional(service, {"DateLessThan": {"store:CurrentTime": 1_780_000_010}}, effect="Allow")
    assert [store.write(ada).status_code for _ in range(3)] == [201, 200, 200]
    assert service.questions == [EVALUATE]
    clock.now += 9.9
    assert store.write(ada).status_code == 200
    clock.now += 0.1
    assert store.write(ada).status_code == 403
    clock.now -= 1
    assert store.write(ada).status_code == 200


@pytest.mark.spec("APA-02")
def test_without_conditions_an_address_costs_nothing(start: Started, service: Service) -> None:
    store = start(service.url, policies_check_ms=600_000)
    ada = service.person()
    ingester(service)
    # Nothing that is asked for here depends on it.
    there = {"Resource": "arn:x:*", "Condition": {"Null": {"store:SourceIp": False}}}
    only = {"Effect": "Deny", "Action": "*", **there}
    service.call("PUT", of_user(ADA, "/policy"), {"policy": {"Statement": [only]}})
    service.asked.clear()
    for number in range(4):
        assert store.write(ada, address=f"192.0.2.{number}").status_code in (200, 201)
    assert service.questions == [EVALUATE]


@pytest.mark.spec("APA-02")
def test_disabled_user_is_rejected_from_any_address(store: Store, service: Service) -> None:
    ada = service.operator(ADA)
    conditional(service, {"NotIpAddress": {"store:SourceIp": "192.0.2.0/24"}})
    assert store.write(ada).status_code == 201
    assert store.read(ada).status_code == 404
    service.call("PUT", of_user(ADA), status="disabled")
    assert [store.write(ada).status_code, store.read(ada).status_code] == [403, 403]
    service.call("PUT", of_user(ADA), status="enabled")
    assert store.write(ada).status_code == 200


@pytest.mark.spec("APA-02")
def test_user_agent_conditions_work_remotely(store: Store, service: Service) -> None:
    ada = service.person()
    conditional(service, {"StringLike": {"store:UserAgent": "bad*"}})
    for number, name in enumerate(("x" * 8_000, "h\xe9", "\x7f")):
        assert store.write(ada, number, **{"User-Agent": name}).status_code == 201
    assert store.write(ada, 1, **{"User-Agent": "bad" * 2_000}).status_code == 403


@pytest.mark.spec("APA-01")
def test_policies_name_resources_of_the_store(store: Store, service: Service) -> None:
    only = policy("store:PostArea", f"arn:store:local:*:areas/{uuid_of(1)}")
    service.call("PUT", of_user(ADA, "/policy"), {"policy": only})
    ada = service.person()
    assert [store.write(ada, number).status_code for number in (1, 2)] == [201, 403]


@pytest.mark.spec("APA-01")
def test_the_stores_own_catalog_decides_nothing(
    store: Store, service: Service, stores: Stores
) -> None:
    People(stores.catalog).user(ADA, policy=a_policy("store:*"))
    assert store.write(service.person()).status_code == 403


@pytest.mark.spec("APA-03")
def test_unreachable_service_is_503_for_authorized_operations_only(
    store: Store, service: Service
) -> None:
    ada = service.person()
    ingester(service)
    assert store.write(ada).status_code == 201
    assert "policies" in (store.client.get("/health").json or {})["parts"]
    service.stop()
    # The keys are cached still; what was decided is remembered, and counts for nothing.
    for answer in (store.write(ada), store.write(ada, 2), store.read(ada)):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert (answer.json or {})["code"] == "service_unavailable"
        assert ada not in answer.text
    assert store.read(None).status_code == 404
    assert store.write(None).status_code == 401
    health = store.client.get("/health")
    assert health.status_code == 503
    assert (health.json or {})["parts"]["policies"]["status"] == "failed"


@pytest.mark.spec("APA-02")
def test_a_service_that_was_restored_decides_by_what_it_has_now(
    store: Store, service: Service
) -> None:
    ada = service.person()
    assert store.write(ada).status_code == 403
    with service.catalog.read() as tx:
        counted = tx.execute(parse("SELECT changes FROM heads WHERE kind = 'accounts'")).scalar()
    ingester(service)
    assert store.write(ada).status_code == 201
    with service.catalog.write() as tx:
        tx.execute(parse("DELETE FROM memberships WHERE name = 'store_ingest'"))
        tx.execute(parse("UPDATE heads SET changes = :it WHERE kind = 'accounts'"), {"it": counted})
    assert store.write(ada).status_code == 403
    service.call("POST", "/v1/role", {"role_id": "another", "policy": policy()})
    assert store.write(ada).status_code == 403
    assert store.write(ada, 2).status_code == 403


@pytest.mark.spec("APA-03")
def test_rejects_all_if_store_account_lacks_permission(store: Store, service: Service) -> None:
    ada = service.person()
    ingester(service)
    assert store.write(ada).status_code == 201
    service.call("PUT", of_user(STORE, "/policy"), {"policy": None})
    answer = store.write(ada, 2)
    assert (answer.status_code, "403" in answer.text) == (503, True)
    with service.catalog.write() as tx:
        service_accounts.remove_account_keys(tx, STORE, None, by=AuditContext("operator", "test"))
    answer = store.write(ada)
    assert (answer.status_code, "401" in answer.text) == (503, True)
    assert store.read(None).status_code == 404


@pytest.mark.spec("APA-03")
@pytest.mark.parametrize(
    "script",
    [
        Script(status=500),
        Script(status=302, headers={"Location": "https://elsewhere.example/"}),
        Script(body=lambda _: b'{"result": true}'),
        Script(body=lambda _: b'{"result": true, "reason": "allow", "policy_version": "1"}'),
        Script(body=lambda _: b" " * 1_000_000),
        Script(act=saying(b"yes\r\n\r\n")),
    ],
    ids=["broken", "redirecting", "short", "without results", "huge", "no HTTP"],
)
def test_rejects_all_on_invalid_service_responses(
    start: Started, service: Service, script: Script
) -> None:
    with serving(handler(script)) as url:
        store = start(service.url, policies_url=url)
        answer = store.write(service.operator())
        assert (answer.status_code, int(answer.headers["Retry-After"])) == (503, 2)
        assert store.read(None).status_code == 404


@pytest.mark.spec("APA-03")
def test_keys_of_other_issuers_never_replace_service_keys(
    start: Started, service: Service, settings: Settings
) -> None:
    # The store's own home has signing keys, too: nothing that they sign is taken.
    store = start(service.url)
    forged = issue_token(
        SigningKeyFile(settings.home, settings.secret_key).read(),
        TokenSpec("root@example.org", ("store_admin",), 600),
        issuer=service.url,
        audience=["store"],
        now=time.time(),
        token_id="t",
    )
    assert store.write(forged).status_code == 401


TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
QUESTION = f"POST {EVALUATE}"


def parent_of(span: ReadableSpan) -> str:
    return f"{span.parent.span_id:016x}" if span.parent else ""


def id_of(span: ReadableSpan) -> str:
    return f"{span.get_span_context().span_id:016x}"


def of_trace(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """The spans of the caller's trace by name."""
    found = spans.get_finished_spans()
    return {
        span.name: span for span in found if f"{span.get_span_context().trace_id:032x}" == TRACE
    }


@pytest.mark.spec("OPS-03")
@pytest.mark.parametrize("tracer", [True], indirect=True)
def test_trace_goes_on_in_the_service(
    store: Store, service: Service, spans: InMemorySpanExporter
) -> None:
    ingester(service)
    caller = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    assert httpx.post(service.url + EVALUATE, headers=caller, trust_env=False).status_code == 401
    written = store.write(service.person(), **caller)
    assert written.status_code == 201
    operations = {"post_area", QUESTION, "auth_post_v1_policies_evaluate"}
    until(lambda: operations <= of_trace(spans).keys())
    found = of_trace(spans)
    request_span, question = found["post_area"], found[QUESTION]
    assert parent_of(request_span) == CALLER
    assert parent_of(question) == id_of(request_span)
    assert parent_of(found["auth_post_v1_policies_evaluate"]) == id_of(question)
    # Who asks as the store, but is refused, is not recorded.
    names = [span.name for span in spans.get_finished_spans() if parent_of(span) == CALLER]
    assert names == ["post_area"]
    text = " ".join(str(dict(span.attributes or {})) for span in spans.get_finished_spans())
    for hidden in ("@", "Bearer", "://", uuid_of(1)):
        assert hidden not in text, hidden


@pytest.mark.spec("OPS-03")
@pytest.mark.parametrize("tracer", [True], indirect=True)
def test_question_without_an_answer_is_a_failed_span(
    store: Store, service: Service, spans: InMemorySpanExporter
) -> None:
    ada = service.person()
    assert store.write(ada).status_code == 403
    service.stop()
    refused = store.write(ada, 2, traceparent=f"00-{TRACE}-{CALLER}-01")
    assert refused.status_code == 503
    until(lambda: of_trace(spans).keys() >= {"post_area", QUESTION})
    failed = of_trace(spans)[QUESTION]
    assert not failed.status.is_ok
    assert "http.response.status_code" not in (failed.attributes or {})


@pytest.mark.spec("OPS-03")
@pytest.mark.parametrize("tracer", [True], indirect=True)
def test_request_that_is_not_recorded_is_asked_without_trace(
    store: Store, service: Service, spans: InMemorySpanExporter
) -> None:
    ingester(service)
    assert store.write(service.person(), traceparent=f"00-{TRACE}-{CALLER}-00").status_code == 201
    # The service begins a trace of its own.
    until(lambda: "auth_post_v1_policies_evaluate" in {s.name for s in spans.get_finished_spans()})
    assert of_trace(spans) == {}
    assert QUESTION not in {span.name for span in spans.get_finished_spans()}
