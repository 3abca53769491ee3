"""Policy conditions on the request, evaluated by both applications."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from flask import Request
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder

from api.app import create_app
from api.authz import create_auth_app
from api.http.auth import PolicyContextBuilder
from auth import accounts
from auth.accounts import MAX_EVALUATED_LENGTH
from auth.policies.grammar import parse_policy
from config import Settings
from storage.catalog.accounts import AccountKey
from storage.errors import Unauthorized
from storage.model import Principal
from storage.stores import Stores
from tests.api.builders import VERSION, uuid_of
from tests.auth.accounts.builders import BY, People
from tests.auth.builders import Clock
from tests.auth.policies.builders import document, statement
from tests.conftest import Outbox

pytestmark = pytest.mark.spec("POL-08")

ISSUER = "https://issuer.example"
NOW = 1_780_000_000.0  # 2026-05-28T20:26:40Z
ADA = Principal("ada@example.org", frozenset(), issuer=ISSUER, issued_at=NOW - 600)
ROOT = Principal("root@example.org", frozenset({"store_admin"}))
INSIDE, OUTSIDE = "192.0.2.7", "198.51.100.7"
NETWORK = ["192.0.2.0/24", "2001:db8:1::/48"]
ACTIONS = ["store:PostArea", "auth:GetUsers"]


def verify(token: str) -> Principal:
    """Who a test's token names."""
    found = {"ada": ADA, "root": ROOT}.get(token)
    if found is None:
        raise Unauthorized("The token is not known")
    return found


@dataclass
class Judge:
    """One application, and something there that wants a right."""

    client: FlaskClient
    people: People
    asked: Callable[[], tuple[str, str]]

    def rules(self, *statements: Mapping[str, Any]) -> None:
        """What holds for Ada from now on."""
        policy = parse_policy(document(*({"Action": ACTIONS, **each} for each in statements)))
        accounts.set_account_policy(self.people.catalog, AccountKey("user", ADA.email), policy, BY)

    def may(self, address: str = INSIDE, *, base: str = "http://localhost", **headers: str) -> bool:
        """Whether Ada may, from there; headers with `_` for `-`."""
        method, path = self.asked()
        answer = self.client.open(
            path,
            method=method,
            base_url=base,
            headers={"Authorization": "Bearer ada", **_spelled(headers)},
            environ_overrides={"REMOTE_ADDR": address},
        )
        assert answer.status_code in (200, 201, 403), answer.text
        return answer.status_code != 403


def _spelled(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


Make = Callable[..., Judge]


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture(params=["store", "auth"])
def make(
    request: pytest.FixtureRequest,
    settings: Settings,
    stores: Stores,
    job_queue: Outbox,
    clock: Clock,
) -> Make:
    """Makes one of the applications, with some settings changed."""
    people = People(stores.catalog)
    people.user(ADA.email)
    numbers: Iterator[int] = count(1)

    def made(**changed: Any) -> Judge:
        own = replace(settings, **changed)
        if request.param == "auth":
            app = create_auth_app(own, stores.catalog, verify=verify, clock=clock)
            return Judge(app.test_client(), people, lambda: ("GET", "/v1/users"))
        app = create_app(own, stores, job_queue=job_queue, verify=verify, clock=clock)
        return Judge(
            app.test_client(), people, lambda: ("POST", f"/v1/area/{uuid_of(next(numbers))}")
        )

    return made


@pytest.fixture
def judge(make: Make) -> Judge:
    return make()


def where(operator: str, key: str, wanted: Any, effect: str = "Allow") -> dict[str, Any]:
    return statement(effect, Condition={operator: {key: wanted}})


def test_denies_addresses_outside_network(judge: Judge) -> None:
    judge.rules(statement(), where("NotIpAddress", "store:SourceIp", NETWORK, "Deny"))
    assert [judge.may(each) for each in (INSIDE, "2001:db8:1::9", f"::ffff:{INSIDE}")] == [True] * 3
    assert not judge.may(OUTSIDE)
    # Its neighbour, which limits of requests take for the same client.
    assert not judge.may("2001:db8:2::9")


def test_an_address_is_compared_whole(judge: Judge) -> None:
    judge.rules(where("IpAddress", "store:SourceIp", "2001:db8::1/128"))
    assert [judge.may(f"2001:db8::{end}") for end in (1, 2)] == [True, False]


@pytest.mark.parametrize("key", ["store:sourceip", "STORE:SOURCEIP", "aws:SourceIp"])
def test_a_key_is_the_same_however_it_is_spelled(judge: Judge, key: str) -> None:
    judge.rules(where("IpAddress", key, NETWORK))
    assert [judge.may(INSIDE), judge.may(OUTSIDE)] == [True, False]


def test_the_time_of_the_request_decides(judge: Judge, clock: Clock) -> None:
    judge.rules(where("DateLessThan", "store:CurrentTime", "2020-01-01T00:00:00Z"))
    assert not judge.may()
    judge.rules(where("DateLessThan", "aws:CurrentTime", "2026-05-28T20:26:41Z"))
    assert judge.may()
    clock.now += 1
    assert not judge.may()
    judge.rules(where("NumericGreaterThan", "store:EpochTime", NOW))
    assert judge.may()
    clock.now -= 1
    assert not judge.may()
    judge.rules(statement(), where("DateGreaterThanEquals", "store:EpochTime", NOW, "Deny"))
    assert not judge.may()
    clock.now -= 1
    assert judge.may()


@pytest.mark.parametrize("header", ["X_Forwarded_For", "Forwarded", "X_Real_IP", "True_Client_IP"])
def test_ignores_forged_address_header(judge: Judge, header: str) -> None:
    judge.rules(where("IpAddress", "store:SourceIp", NETWORK))
    assert not judge.may(OUTSIDE, **{header: INSIDE})
    assert judge.may(INSIDE, **{header: OUTSIDE})


@pytest.mark.parametrize(
    ("proxies", "told", "expected"),
    [
        (1, INSIDE, True),
        (1, f"{OUTSIDE}, {INSIDE}", True),
        (1, f"{INSIDE}, {OUTSIDE}", False),
        (1, f"{INSIDE}:40001", True),
        (2, f"{INSIDE}, {OUTSIDE}", True),
        (2, f"{OUTSIDE}, {INSIDE}, {OUTSIDE}", True),
        (2, f"{INSIDE}, {OUTSIDE}, 10.0.0.1", False),
        # Not by way of all our proxies, or of one that does not tell: nothing is known.
        (2, INSIDE, False),
        (1, "unknown", False),
        (1, "", False),
    ],
)
def test_uses_address_seen_by_first_proxy(
    make: Make, proxies: int, told: str, expected: bool
) -> None:
    judge = make(proxies=proxies)
    judge.rules(where("IpAddress", "store:SourceIp", NETWORK))
    assert judge.may(INSIDE, X_Forwarded_For=told) is expected
    assert judge.may(OUTSIDE, X_Forwarded_For=told) is expected


def test_unknown_address_is_an_absent_key(make: Make) -> None:
    judge = make(proxies=1)
    judge.rules(where("Null", "store:SourceIp", True))
    assert judge.may(INSIDE)
    assert not judge.may(INSIDE, X_Forwarded_For=INSIDE)
    judge.rules(statement(), where("NotIpAddress", "store:SourceIp", "0.0.0.0/0", "Deny"))
    assert not judge.may(INSIDE)


def test_transport_is_what_the_server_knows_and_no_header(judge: Judge) -> None:
    judge.rules(where("Bool", "store:SecureTransport", True))
    assert judge.may(base="https://localhost")
    assert not judge.may()
    assert not judge.may(X_Forwarded_Proto="https")
    assert not judge.may(X_Forwarded_Proto="https", X_Forwarded_Ssl="on")
    judge.rules(statement(), where("Bool", "aws:SecureTransport", "false", "Deny"))
    assert [judge.may(), judge.may(base="https://localhost")] == [False, True]


@pytest.mark.parametrize(
    ("proxies", "told", "expected"),
    [
        (1, "https", True),
        (1, "HTTPS", True),
        (1, "http", False),
        (1, "", False),
        (1, "https, http", False),
        (1, "http, https", True),
        (2, "https, http", True),
        (2, "https, http, http", False),
        (2, "https", True),
        (3, "https, https", False),
    ],
)
def test_uses_transport_reported_by_proxy(
    make: Make, proxies: int, told: str, expected: bool
) -> None:
    judge = make(proxies=proxies)
    judge.rules(where("Bool", "store:SecureTransport", True))
    for base in ("http://localhost", "https://localhost"):
        assert judge.may(base=base, X_Forwarded_Proto=told) is expected


def test_user_agent_condition_uses_header(judge: Judge) -> None:
    judge.rules(statement(), where("StringLike", "store:UserAgent", "curl/*", "Deny"))
    assert [judge.may(User_Agent="curl/8.0"), judge.may(User_Agent="store/1")] == [False, True]
    judge.rules(where("Null", "store:UserAgent", True))
    assert judge.may(User_Agent="")
    assert not judge.may(User_Agent="x")


def test_denies_old_tokens_and_other_issuers(judge: Judge) -> None:
    old = where("DateLessThan", "store:TokenIssueTime", "2026-05-28T20:16:41Z", "Deny")
    judge.rules(statement(), old)
    assert not judge.may()
    new = where("DateLessThan", "store:TokenIssueTime", "2026-05-28T20:16:40Z", "Deny")
    judge.rules(statement(), new)
    assert judge.may()
    for issuer, expected in ((ISSUER, True), (f"{ISSUER}/", False)):
        judge.rules(where("StringEquals", "store:Issuer", issuer))
        assert judge.may() is expected


def test_disabled_user_is_always_denied(judge: Judge) -> None:
    judge.rules(where("IpAddress", "store:SourceIp", NETWORK))
    assert judge.may()
    accounts.set_account_status(judge.people.catalog, ADA.email, "disabled", BY)
    assert not judge.may()
    accounts.set_account_status(judge.people.catalog, ADA.email, "enabled", BY)
    assert judge.may()


def test_request_cannot_choose_its_principal(judge: Judge) -> None:
    judge.rules(where("StringEquals", "store:user_email", "eve@example.org"))
    assert not judge.may(**{"store:user_email": "eve@example.org"})


# What only one of them has


@pytest.fixture
def opened(settings: Settings, stores: Stores, job_queue: Outbox) -> Callable[..., Judge]:
    """Makes stores."""
    people = People(stores.catalog)
    people.user(ADA.email)

    def made(**changed: Any) -> Judge:
        app = create_app(replace(settings, **changed), stores, job_queue=job_queue, verify=verify)
        return Judge(app.test_client(), people, lambda: ("GET", ""))

    return made


def status(judge: Judge, method: str, path: str, address: str, **given: Any) -> int:
    return judge.client.open(
        path,
        method=method,
        headers={"Authorization": "Bearer ada"},
        environ_overrides={"REMOTE_ADDR": address},
        **given,
    ).status_code


def test_conditions_apply_to_closed_operations_only(opened: Make) -> None:
    path = f"/v1/bundles/{uuid_of(1)}?replica=aws"
    for changed, expected in (({}, 404), ({"closed_operations": ("get_bundle",)}, 403)):
        judge = opened(**changed)
        judge.rules(
            statement(),
            where("NotIpAddress", "store:SourceIp", NETWORK, "Deny") | {"Action": "store:*"},
        )
        assert status(judge, "GET", path, OUTSIDE) == expected
        assert status(judge, "GET", path, INSIDE) == 404


def test_denied_caller_is_rejected_before_large_body_is_read(opened: Make) -> None:
    judge = opened(max_body_bytes=1000)
    only = where("IpAddress", "store:SourceIp", NETWORK) | {"Action": "store:PutBundle"}
    judge.rules(only)
    path = f"/v1/bundles/{uuid_of(1)}?replica=aws&version={VERSION}"
    body = {"json": {"x": "y" * 2000}}
    assert status(judge, "PUT", path, INSIDE, **body) == 413
    assert status(judge, "PUT", path, OUTSIDE, **body) == 403


def test_metrics_require_permission(opened: Make) -> None:
    judge = opened()
    judge.rules(where("IpAddress", "store:SourceIp", NETWORK) | {"Action": "store:GetMetrics"})
    assert [status(judge, "GET", "/metrics", each) for each in (INSIDE, OUTSIDE)] == [200, 403]


def test_evaluation_uses_given_context_only(settings: Settings, stores: Stores) -> None:
    people = People(stores.catalog)
    condition = {
        "IpAddress": {"aws:SourceIp": NETWORK},
        "DateGreaterThan": {"store:CurrentTime": "2000-01-01"},
    }
    policy = parse_policy(document(statement(Condition=condition)))
    people.user(ADA.email, policy=policy)
    client = create_auth_app(settings, stores.catalog, verify=verify).test_client()

    def evaluated(context: Mapping[str, Any]) -> tuple[bool, list[str]]:
        asked = {"principal": ADA.email, "action": ["a:b"], "resource": ["c:d"], "context": context}
        answer = client.post(
            "/v1/policies/evaluate",
            json=asked,
            headers={"Authorization": "Bearer root"},
            environ_overrides={"REMOTE_ADDR": INSIDE},
        )
        assert answer.status_code == 200, answer.text
        (one,) = answer.json["evaluation_results"]
        return answer.json["result"], one["depends_on"]

    depends_on = ["store:currenttime", "store:sourceip"]
    assert evaluated({}) == (False, depends_on)
    told = {"store:SourceIp": INSIDE, "aws:currentTIME": "2026-01-01"}
    assert evaluated(told) == (True, depends_on)
    assert evaluated({**told, "store:SourceIp": OUTSIDE}) == (False, depends_on)
    accounts.set_account_status(stores.catalog, ADA.email, "disabled", BY)
    assert evaluated(told) == (False, [])


def test_an_answer_names_no_more_keys_than_a_question_may_have(
    settings: Settings, stores: Stores
) -> None:
    for number, expected in ((50, 50), (51, 1)):
        email = f"many{number}@example.org"
        condition = {"StringLike": {f"store:k{key}": "*" for key in range(number)}}
        policy = parse_policy(document(statement(Condition=condition)))
        People(stores.catalog).user(email, policy=policy)
        client = create_auth_app(settings, stores.catalog, verify=verify).test_client()
        asked = {"principal": email, "action": ["a:b"], "resource": ["c:d"]}
        answer = client.post(
            "/v1/policies/evaluate", json=asked, headers={"Authorization": "Bearer root"}
        )
        (one,) = (answer.json or {})["evaluation_results"]
        assert len(one["depends_on"]) == expected
    assert one["depends_on"] == ["*"]


# What is told of a request


def told(principal: Principal | None = None, **environ: Any) -> Mapping[str, Any]:
    headers = _spelled(environ.pop("headers", {}))
    builder = EnvironBuilder("/", headers=headers, environ_overrides=environ)
    return PolicyContextBuilder(0, lambda: NOW + 0.9).build(
        Request(builder.get_environ()), principal
    )


def test_context_has_every_key() -> None:
    found = told(ADA, REMOTE_ADDR="192.0.2.7", headers={"User_Agent": "curl/8"})
    assert found == {
        "store:SourceIp": "192.0.2.7",
        "store:SecureTransport": False,
        "store:CurrentTime": "2026-05-28T20:26:40Z",
        "store:EpochTime": 1_780_000_000,
        "store:UserAgent": "curl/8",
        "store:TokenIssueTime": "2026-05-28T20:16:40Z",
        "store:Issuer": ISSUER,
    }


def test_unknown_values_are_absent_keys() -> None:
    always = {"store:SecureTransport", "store:CurrentTime", "store:EpochTime"}
    assert set(told(Principal("ada@example.org", frozenset()))) == always
    assert set(told(None, REMOTE_ADDR="/run/socket")) == always


def test_context_fits_limits_of_evaluation() -> None:
    found = told(headers={"User_Agent": "x" * 8_000})
    assert len(found["store:UserAgent"]) == MAX_EVALUATED_LENGTH
