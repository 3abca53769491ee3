"""The evaluator agrees with the reference implementation and its invariants hold."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.policies.evaluator import AttachedPolicy, CompiledPolicies, Decision
from auth.policies.grammar import parse_policy
from auth.policies.patterns import Value, Wildcard, compile_glob
from tests.auth.policies import reference_evaluator, strategies
from tests.auth.policies.builders import compiled, document
from tests.property_depth import examples

pytestmark = pytest.mark.spec("POL-06")

tokens = st.one_of(
    st.sampled_from([*Wildcard, Wildcard.ANY]), st.text("ab:", min_size=1, max_size=2)
)


def symbols(pattern: tuple[Any, ...]) -> list[Any]:
    """One a place, as the plain matcher wants them."""
    kinds = {
        Wildcard.ANY: [reference_evaluator.STAR],
        Wildcard.ONE: [reference_evaluator.ONE],
        Wildcard.ANY_IN_SEGMENT: [reference_evaluator.STAR_IN_SEGMENT],
        Wildcard.ONE_IN_SEGMENT: [reference_evaluator.ONE_IN_SEGMENT],
    }
    return [each for token in pattern for each in kinds.get(token) or token]


@settings(max_examples=examples(250))
@given(st.lists(tokens, max_size=7).map(tuple), st.text("ab:", max_size=9))
def test_a_pattern_matches_what_it_matches_when_every_place_is_tried(
    pattern: tuple[Any, ...], text: str
) -> None:
    assert compile_glob(pattern).matches(text) == reference_evaluator.matches(
        symbols(pattern), text
    )


@settings(max_examples=examples(250))
@given(
    st.lists(strategies.documents, max_size=3),
    strategies.variables,
    st.lists(strategies.requests, min_size=1, max_size=8),
)
def test_policies_decide_as_the_plain_rules_do(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    asked = compiled(*documents, variables=variables)
    for action, resource, context in requests:
        expected = reference_evaluator.decide(documents, variables, action, resource, context)
        assert asked.decide(action, resource, context).reason == expected


@settings(max_examples=examples(30))
@given(st.lists(strategies.documents, min_size=12, max_size=20), strategies.requests)
def test_pattern_index_finds_all_policies(documents: list[Any], request: Any) -> None:
    variables: dict[str, Value] = {"store:groups": strategies.GROUPS}
    expected = reference_evaluator.decide(documents, variables, *request)
    assert compiled(*documents, variables=variables).decide(*request).reason == expected


@given(strategies.documents)
def test_parsed_policy_returns_its_document(document: Any) -> None:
    assert parse_policy(document).document == document
    assert parse_policy(parse_policy(document).document) == parse_policy(document)


some_documents = st.lists(strategies.documents, max_size=3)
some_requests = st.lists(strategies.requests, min_size=1, max_size=6)
common = settings(max_examples=examples(80))


def answers(documents: list[Any], variables: dict[str, Value], requests: list[Any]) -> list[str]:
    asked = compiled(*documents, variables=variables)
    return [asked.decide(*request).reason for request in requests]


def split(given: Any) -> list[Any]:
    """A document for each statement."""
    return [document(each) for each in given["Statement"]]


@common
@given(some_documents, strategies.statements, strategies.variables, some_requests)
def test_adding_a_deny_never_grants(
    documents: list[Any], added: Any, variables: dict[str, Value], requests: list[Any]
) -> None:
    before = answers(documents, variables, requests)
    after = answers([*documents, document({**added, "Effect": "Deny"})], variables, requests)
    for was, now in zip(before, after, strict=True):
        assert now in (was, "explicit_deny")


@common
@given(some_documents, strategies.statements, strategies.variables, some_requests)
def test_adding_an_allow_never_revokes(
    documents: list[Any], added: Any, variables: dict[str, Value], requests: list[Any]
) -> None:
    before = answers(documents, variables, requests)
    after = answers([*documents, document({**added, "Effect": "Allow"})], variables, requests)
    for was, now in zip(before, after, strict=True):
        assert now == was or (was, now) == ("implicit_deny", "allow")


@common
@given(some_documents, strategies.variables, some_requests, st.randoms(use_true_random=False))
def test_order_does_not_matter(
    documents: list[Any], variables: dict[str, Value], requests: list[Any], rng: Any
) -> None:
    shuffled = [
        document(*rng.sample(each["Statement"], len(each["Statement"])))
        for each in rng.sample(documents, len(documents))
    ]
    assert answers(shuffled, variables, requests) == answers(documents, variables, requests)


@common
@given(some_documents, strategies.variables, some_requests)
def test_a_policy_in_parts_is_the_policy(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    parts = [part for each in documents for part in split(each)]
    whole = [document(*(each for one in documents for each in one["Statement"]))] if parts else []
    expected = answers(documents, variables, requests)
    assert answers(parts, variables, requests) == expected
    assert answers(whole, variables, requests) == expected


@common
@given(strategies.statements, strategies.variables, some_requests)
def test_a_list_of_actions_is_a_statement_for_each(
    given_one: Any, variables: dict[str, Value], requests: list[Any]
) -> None:
    listed = {**given_one, "Action": ["store:Get*", "auth:*"]}
    listed.pop("NotAction", None)
    parts = [document({**listed, "Action": each}) for each in listed["Action"]]
    assert answers(parts, variables, requests) == answers([document(listed)], variables, requests)


@common
@given(some_documents, strategies.variables, some_requests)
def test_source_of_policy_does_not_matter(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    def asked(source: str) -> list[Decision]:
        made = CompiledPolicies(
            [AttachedPolicy(source, parse_policy(each)) for each in documents], variables
        )
        return [made.decide(*request) for request in requests]

    own, by_group = asked("user ada@example.org"), asked("group g")
    for mine, groups in zip(own, by_group, strict=True):
        assert (mine.allowed, mine.reason, mine.statement) == (
            groups.allowed,
            groups.reason,
            groups.statement,
        )


@common
@given(some_documents, strategies.variables, some_requests, strategies.contexts)
def test_decision_depends_only_on_reported_keys(
    documents: list[Any],
    variables: dict[str, Value],
    requests: list[Any],
    other: dict[str, Value],
) -> None:
    asked = compiled(*documents, variables=variables)
    for action, resource, context in requests:
        depends_on = asked.context_keys(action, resource)
        others = {key: value for key, value in other.items() if key.lower() not in depends_on}
        kept = {key: value for key, value in context.items() if key.lower() in depends_on}
        expected = asked.decide(action, resource, context)
        assert asked.decide(action, resource, {**others, **kept}) == expected


@common
@given(some_documents, strategies.variables, some_requests)
def test_asking_changes_no_answer(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    asked = compiled(*documents, variables=variables)
    first = [asked.decide(*request) for request in requests]
    assert [asked.decide(*request) for request in reversed(requests)] == first[::-1]
    assert [compiled(*documents, variables=variables).decide(*each) for each in requests] == first
