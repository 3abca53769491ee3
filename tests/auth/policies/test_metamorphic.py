"""What must hold between answers, whatever the policies are."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from auth.policies.evaluator import Compiled
from auth.policies.model import Decision, Holding, Value, parse
from tests.auth.policies import generated
from tests.auth.policies.builders import compiled, document
from tests.depth import examples

some_documents = st.lists(generated.documents, max_size=3)
some_requests = st.lists(generated.requests, min_size=1, max_size=6)
common = settings(max_examples=examples(80))


def answers(documents: list[Any], variables: dict[str, Value], requests: list[Any]) -> list[str]:
    asked = compiled(*documents, variables=variables)
    return [asked.decide(*request).reason for request in requests]


def split(given: Any) -> list[Any]:
    """A document for each statement."""
    return [document(each) for each in given["Statement"]]


@common
@given(some_documents, generated.statements, generated.variables, some_requests)
def test_adding_a_deny_never_grants(
    documents: list[Any], added: Any, variables: dict[str, Value], requests: list[Any]
) -> None:
    before = answers(documents, variables, requests)
    after = answers([*documents, document({**added, "Effect": "Deny"})], variables, requests)
    for was, now in zip(before, after, strict=True):
        assert now in (was, "explicit_deny")


@common
@given(some_documents, generated.statements, generated.variables, some_requests)
def test_adding_an_allow_never_revokes(
    documents: list[Any], added: Any, variables: dict[str, Value], requests: list[Any]
) -> None:
    before = answers(documents, variables, requests)
    after = answers([*documents, document({**added, "Effect": "Allow"})], variables, requests)
    for was, now in zip(before, after, strict=True):
        assert now == was or (was, now) == ("implicit_deny", "allow")


@common
@given(some_documents, generated.variables, some_requests, st.randoms(use_true_random=False))
def test_order_does_not_matter(
    documents: list[Any], variables: dict[str, Value], requests: list[Any], rng: Any
) -> None:
    shuffled = [
        document(*rng.sample(each["Statement"], len(each["Statement"])))
        for each in rng.sample(documents, len(documents))
    ]
    assert answers(shuffled, variables, requests) == answers(documents, variables, requests)


@common
@given(some_documents, generated.variables, some_requests)
def test_a_policy_in_parts_is_the_policy(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    parts = [part for each in documents for part in split(each)]
    whole = [document(*(each for one in documents for each in one["Statement"]))] if parts else []
    expected = answers(documents, variables, requests)
    assert answers(parts, variables, requests) == expected
    assert answers(whole, variables, requests) == expected


@common
@given(generated.statements, generated.variables, some_requests)
def test_a_list_of_actions_is_a_statement_for_each(
    given_one: Any, variables: dict[str, Value], requests: list[Any]
) -> None:
    listed = {**given_one, "Action": ["store:Get*", "auth:*"]}
    listed.pop("NotAction", None)
    parts = [document({**listed, "Action": each}) for each in listed["Action"]]
    assert answers(parts, variables, requests) == answers([document(listed)], variables, requests)


@common
@given(some_documents, generated.variables, some_requests)
def test_by_whom_a_policy_comes_does_not_matter(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    def asked(source: str) -> list[Decision]:
        made = Compiled([Holding(source, parse(each)) for each in documents], variables)
        return [made.decide(*request) for request in requests]

    own, by_group = asked("user ada@example.org"), asked("group g")
    for mine, groups in zip(own, by_group, strict=True):
        assert (mine.allowed, mine.reason, mine.statement) == (
            groups.allowed,
            groups.reason,
            groups.statement,
        )


@common
@given(some_documents, generated.variables, some_requests, generated.contexts)
def test_a_decision_depends_on_no_other_key_than_it_says(
    documents: list[Any],
    variables: dict[str, Value],
    requests: list[Any],
    other: dict[str, Value],
) -> None:
    asked = compiled(*documents, variables=variables)
    for action, resource, context in requests:
        depends_on = asked.asks(action, resource)
        others = {key: value for key, value in other.items() if key.lower() not in depends_on}
        kept = {key: value for key, value in context.items() if key.lower() in depends_on}
        expected = asked.decide(action, resource, context)
        assert asked.decide(action, resource, {**others, **kept}) == expected


@common
@given(some_documents, generated.variables, some_requests)
def test_asking_changes_no_answer(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    asked = compiled(*documents, variables=variables)
    first = [asked.decide(*request) for request in requests]
    assert [asked.decide(*request) for request in reversed(requests)] == first[::-1]
    assert [compiled(*documents, variables=variables).decide(*each) for each in requests] == first
