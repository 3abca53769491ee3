"""Remote authorization decisions: caching, expiry and validation."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.app import open_decision_point
from auth.decisions import AccessDecision, LocalDecisionPoint, ResourceDecision, combine_decisions
from auth.policies.evaluator import Decision, Reason
from auth.policies.patterns import Value
from auth.remote import DecisionCache, RemoteDecisionPoint
from config import Settings
from storage.catalog import Catalog
from storage.errors import Invalid, Unauthorized, Unavailable
from storage.model import Principal
from tests.auth.builders import Clock
from tests.auth.misbehaving_services import credentials_file
from tests.auth.policies import strategies
from tests.auth.policies.builders import compiled, document, statement
from tests.property_depth import examples

pytestmark = pytest.mark.spec("APA-02")

T = TypeVar("T")
ADA = Principal("ada@example.org", frozenset())
DO = ["store:Do"]
ON = ["arn:x"]


def said(
    actions: Sequence[str], resources: Sequence[str], reason: Reason, keys: Iterable[str] = ()
) -> AccessDecision:
    decision = Decision(reason == "allow", reason)
    more = frozenset(keys), decision.allowed
    return combine_decisions(
        tuple(ResourceDecision(a, r, decision, *more) for a in actions for r in resources)
    )


@dataclass
class Fake:
    """A service that counts what it is asked, and lets a test in between."""

    at: str = "1"
    reason: Reason = "allow"
    away: bool = False
    depends_on: Sequence[str] = ()
    over: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    before: Callable[[], None] = field(default=lambda: None)
    after: Callable[[], None] = field(default=lambda: None)

    def version(self) -> str:
        return self._told("version", self.at)

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[AccessDecision, str]:
        if principal.grant in self.over:
            self._told("evaluate", None)
            raise Unauthorized("The token was revoked")
        found = said(actions, resources, self.reason, self.depends_on)
        return self._told("evaluate", (found, self.at))

    def _told(self, what: str, answer: T) -> T:
        self.asked.append(what)
        if self.away:
            raise Unavailable("The authorization service does not answer")
        self.after()
        return answer


@pytest.fixture
def service() -> Fake:
    return Fake()


@pytest.fixture
def elsewhere(service: Fake) -> RemoteDecisionPoint:
    return RemoteDecisionPoint(service, DecisionCache(100))


def may(elsewhere: RemoteDecisionPoint, who: Principal = ADA, on: str = "arn:x") -> bool:
    return elsewhere.decide(who, DO, [on]).allowed


def test_each_question_is_one_call_and_cached_ones_check_version(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    assert [may(elsewhere), may(elsewhere), may(elsewhere, on="arn:y")] == [True] * 3
    assert service.asked == ["evaluate", "version", "evaluate"]


def test_a_change_counts_from_the_next_question_on(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    assert may(elsewhere)
    service.at, service.reason = "2", "explicit_deny"
    assert not may(elsewhere)
    assert service.asked == ["evaluate", "version", "evaluate"]
    service.at, service.reason = "3", "disabled"
    assert not may(elsewhere)
    assert not elsewhere.is_enabled(ADA)
    service.at, service.reason = "4", "allow"
    assert elsewhere.is_enabled(ADA)
    assert may(elsewhere)


def test_a_version_that_went_back_is_another_one(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    service.at = "9"
    assert may(elsewhere)
    service.at, service.reason = "7", "implicit_deny"
    assert not may(elsewhere)
    service.at, service.reason = "9", "explicit_deny"
    # Nothing of the former nine is left.
    assert elsewhere.decide(ADA, DO, ON).reason == "explicit_deny"


def test_a_decision_of_an_older_version_is_never_stored_under_a_newer_one(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    others = RemoteDecisionPoint(service, elsewhere.cache)

    def somebody_is_faster() -> None:
        service.after = lambda: None
        service.at, service.reason = "2", "explicit_deny"
        others.decide(ADA, DO, ["arn:other"])

    service.after = somebody_is_faster
    # This answer was on its way while the records changed: it holds for this request alone.
    assert may(elsewhere)
    assert not may(elsewhere)
    assert service.asked[-1] == "evaluate"


def test_late_answer_does_not_replace_newer_version(
    service: Fake,
) -> None:
    kept = DecisionCache(10)
    kept.set_version("2", 5.0)
    kept.set_version("1", 4.0)
    assert (kept.recent_version(4.9), kept.recent_version(5.0)) == ("2", None)
    kept.set_version("3", 6.0)
    assert kept.recent_version(5.5) == "3"


def test_principal_is_part_of_cache_key(elsewhere: RemoteDecisionPoint, service: Fake) -> None:
    assert may(elsewhere)
    service.reason = "implicit_deny"
    assert not may(elsewhere, Principal("eve@example.org", frozenset()))
    assert not may(elsewhere, Principal(ADA.email, frozenset({"team"})))
    assert not elsewhere.decide(ADA, ["store:Other"], ON).allowed
    assert may(elsewhere)


def test_limits_cached_decisions(service: Fake) -> None:
    kept = DecisionCache(3)
    elsewhere = RemoteDecisionPoint(service, kept)
    for number in range(10):
        may(elsewhere, on=f"arn:{number}")
    assert len(kept._decisions) == 3
    service.asked.clear()
    may(elsewhere, on="arn:9")
    may(elsewhere, on="arn:0")
    assert service.asked == ["version", "evaluate"]


def test_an_operator_may_allow_versions_to_be_old_and_no_older(service: Fake) -> None:
    clock = Clock(100.0)
    elsewhere = RemoteDecisionPoint(service, DecisionCache(100), 2.0, clock)
    assert may(elsewhere)
    service.at, service.reason = "2", "disabled"
    clock.now += 1.9
    assert may(elsewhere)
    assert service.asked == ["evaluate"]
    clock.now += 0.2
    assert not may(elsewhere)
    assert service.asked == ["evaluate", "version", "evaluate"]


def test_version_age_counts_from_request(service: Fake) -> None:
    clock = Clock(100.0)
    elsewhere = RemoteDecisionPoint(service, DecisionCache(100), 2.0, clock)

    def slowly() -> None:
        clock.now += 1.5

    service.after = slowly
    assert may(elsewhere)
    clock.now += 1.0
    may(elsewhere)
    assert service.asked == ["evaluate", "version"]


def test_outage_denies_despite_cache(elsewhere: RemoteDecisionPoint, service: Fake) -> None:
    assert may(elsewhere)
    service.away = True
    for ask in (may, RemoteDecisionPoint.ping):
        with pytest.raises(Unavailable):
            ask(elsewhere)
    with pytest.raises(Unavailable):
        elsewhere.is_enabled(ADA)
    service.away = False
    assert may(elsewhere)


def test_all_must_be_allowed_and_empty_is_denied(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    assert elsewhere.decide(ADA, ["a:B", "a:C"], ["x:1", "x:2"]).allowed
    assert len(elsewhere.decide(ADA, ["a:B"], ["x:2"]).results) == 1
    assert service.asked == ["evaluate", "version"]
    assert not elsewhere.decide(ADA, [], ON).allowed


HERE: Mapping[str, Value] = {"store:SourceIp": "192.0.2.7", "store:EpochTime": 100}


def at(elsewhere: RemoteDecisionPoint, **changed: Value) -> bool:
    context = {**HERE, **{f"store:{name}": value for name, value in changed.items()}}
    return elsewhere.decide(ADA, DO, ON, context).allowed


def test_unconditional_decision_is_cached_for_all_requests(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    assert [at(elsewhere), at(elsewhere, SourceIp="::1"), at(elsewhere, EpochTime=7)] == [True] * 3
    assert service.asked == ["evaluate", "version", "version"]


@pytest.mark.parametrize("key", ["store:sourceip", "store:SOURCEIP"])
def test_address_dependent_decision_is_asked_per_address(
    elsewhere: RemoteDecisionPoint, service: Fake, key: str
) -> None:
    service.depends_on = [key.lower()]
    assert at(elsewhere)
    assert at(elsewhere, EpochTime=101)
    assert service.asked == ["evaluate", "version"]
    service.reason = "explicit_deny"
    # Nothing but the address is another one.
    assert not at(elsewhere, SourceIp="192.0.2.8")
    assert not elsewhere.decide(ADA, DO, ON).allowed
    assert service.asked[2:] == ["evaluate", "evaluate"]


def test_time_dependent_decision_is_not_reused(service: Fake) -> None:
    # Whatever ages of versions an operator allows.
    elsewhere = RemoteDecisionPoint(service, DecisionCache(10), 1_000.0)
    service.depends_on = ["store:epochtime"]
    assert at(elsewhere)
    service.reason = "implicit_deny"
    assert at(elsewhere)
    assert not at(elsewhere, EpochTime=101)
    assert not at(elsewhere)


def test_decision_on_unknown_keys_is_never_cached(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    service.depends_on = ["*"]
    assert [at(elsewhere), at(elsewhere)] == [True, True]
    assert service.asked == ["evaluate", "evaluate"]


def test_unconditional_decision_is_cached_once_per_principal(service: Fake) -> None:
    kept, service.depends_on = DecisionCache(100), ["store:sourceip"]
    elsewhere = RemoteDecisionPoint(service, kept)
    for number in range(50):
        at(elsewhere, SourceIp=f"192.0.2.{number}")
    assert len(kept._decisions) == 1


def test_disabled_status_is_cached_regardless_of_conditions(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    service.depends_on = ["store:sourceip", "store:currenttime"]
    assert [elsewhere.is_enabled(ADA) for _ in range(3)] == [True] * 3
    assert service.asked == ["evaluate", "version", "version"]


@dataclass
class Ruled:
    """A service that judges by documents which a test changes."""

    documents: list[Any]
    at: int = 1

    def version(self) -> str:
        return str(self.at)

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[AccessDecision, str]:
        made = compiled(*self.documents)
        results = (
            ResourceDecision(a, r, made.decide(a, r, context), made.context_keys(a, r))
            for a in actions
            for r in resources
        )
        return combine_decisions(tuple(results)), self.version()


@settings(max_examples=examples(120))
@given(
    st.lists(st.lists(strategies.documents, max_size=3), min_size=1, max_size=3),
    st.lists(strategies.requests, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=12),
)
def test_a_store_apart_decides_each_request_as_the_service_would_at_that_moment(
    versions: list[list[Any]], requests: list[Any], turns: list[tuple[int, int, int]]
) -> None:
    service = Ruled(versions[0])
    elsewhere = RemoteDecisionPoint(service, DecisionCache(4))
    for of_version, of_request, of_context in turns:
        service.at = of_version % len(versions)
        service.documents = versions[service.at]
        action, resource, _ = requests[of_request % len(requests)]
        context = requests[of_context % len(requests)][2]
        found = elsewhere.decide(ADA, [action], [resource], context)
        expected = compiled(*service.documents).decide(action, resource, context)
        assert found.results[0].decision == expected


def test_distinguishes_values_that_python_considers_equal() -> None:
    only = statement(Condition={"StringEquals": {"store:Size": "true"}})
    elsewhere = RemoteDecisionPoint(Ruled([document(only)]), DecisionCache(10))
    given: tuple[Value, ...] = (True, 1, 1.0, "true", "1", True)
    answers = [elsewhere.decide(ADA, DO, ON, {"store:Size": one}).allowed for one in given]
    assert answers == [True, False, False, True, False, True]


def test_possibility_is_asked_and_cached_per_version(
    elsewhere: RemoteDecisionPoint, service: Fake
) -> None:
    assert elsewhere.could_allow(ADA, "store:Do")
    assert elsewhere.could_allow(ADA, "store:Do")
    assert service.asked == ["evaluate", "version"]
    service.at, service.reason = "2", "implicit_deny"
    assert not elsewhere.could_allow(ADA, "store:Do")


def test_each_grant_is_asked_separately(elsewhere: RemoteDecisionPoint, service: Fake) -> None:
    logins = [replace(ADA, grant=grant) for grant in ("phone", "laptop", None)]
    for who in logins * 2:
        assert elsewhere.decide(who, DO, ON).allowed
    assert service.asked == ["evaluate"] * 3 + ["version"] * 3
    service.over.add("phone")
    service.at = "2"
    for _ in range(2):
        with pytest.raises(Unauthorized):
            elsewhere.decide(logins[0], DO, ON)
        with pytest.raises(Unauthorized):
            elsewhere.is_enabled(logins[0])
    assert elsewhere.decide(logins[1], DO, ON).allowed


@dataclass
class Changing:
    """A service whose every answer says by which version it was made."""

    reached: int = 1

    def version(self) -> str:
        return str(self.reached)

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[AccessDecision, str]:
        at = str(self.reached)
        found = Decision(True, "allow", source=at)
        return combine_decisions((ResourceDecision(actions[0], resources[0], found),)), at


def test_threads_never_see_decisions_of_outdated_versions() -> None:
    changing, wrong = Changing(), []
    elsewhere = RemoteDecisionPoint(changing, DecisionCache(5))

    def ask(number: int) -> None:
        for turn in range(300):
            before = changing.reached
            (one,) = elsewhere.decide(ADA, DO, [f"arn:{(number + turn) % 4}"]).results
            if int(one.decision.source or 0) < before:
                wrong.append(f"{one.decision.source} after {before}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        changing.reached += 1
        time.sleep(0.001)
    assert wrong == []


SERVICE = "https://auth.example"


@pytest.fixture
def apart(tmp_path: Path) -> Settings:
    """A store that is apart, as its operator has to say it."""
    return Settings(
        home=tmp_path,
        auth_external_url=SERVICE,
        issuers={SERVICE: f"{SERVICE}/.well-known/jwks.json"},
        policies_url="http://10.0.0.7:8001/",
        policies_credentials=str(credentials_file(tmp_path)),
    )


def test_settings_select_local_or_remote(apart: Settings, catalog: Catalog) -> None:
    assert isinstance(open_decision_point(Settings(), catalog), LocalDecisionPoint)
    assert isinstance(open_decision_point(apart, catalog), RemoteDecisionPoint)


@pytest.mark.parametrize(
    "changed",
    [
        {"policies_url": "auth.example"},
        {"policies_url": "ftp://auth.example"},
        {"policies_url": "https://"},
        {"policies_url": "https://auth.example?x=1"},
        {"policies_url": "https://user:pw@auth.example"},
        {"policies_url": "https://auth.example:99999"},
        {"policies_credentials": ""},
        {"policies_credentials": "/nowhere/store.json"},
        {"issuers": {}},
        {"issuers": {"https://other.example": "https://other.example/keys"}},
        {"auth_external_url": ""},
        {"auth_external_url": "https://AUTH.example"},
    ],
    ids=str,
)
def test_rejects_invalid_settings_at_start(
    apart: Settings, catalog: Catalog, changed: dict[str, object]
) -> None:
    with pytest.raises(Invalid):
        open_decision_point(replace(apart, **changed), catalog)  # type: ignore[arg-type]
