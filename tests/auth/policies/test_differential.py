"""The same answers as an evaluator that was written to be read, not to be fast."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from auth.policies.globs import Wild, glob
from auth.policies.model import Value, parse
from tests.auth.policies import generated, naive
from tests.auth.policies.builders import compiled
from tests.depth import examples

tokens = st.one_of(st.sampled_from([*Wild, Wild.ANY]), st.text("ab:", min_size=1, max_size=2))


def symbols(pattern: tuple[Any, ...]) -> list[Any]:
    """One a place, as the plain matcher wants them."""
    kinds = {
        Wild.ANY: [naive.STAR],
        Wild.ONE: [naive.ONE],
        Wild.ANY_IN_SEGMENT: [naive.STAR_IN_SEGMENT],
        Wild.ONE_IN_SEGMENT: [naive.ONE_IN_SEGMENT],
    }
    return [each for token in pattern for each in kinds.get(token) or token]


@settings(max_examples=examples(250))
@given(st.lists(tokens, max_size=7).map(tuple), st.text("ab:", max_size=9))
def test_a_pattern_matches_what_it_matches_when_every_place_is_tried(
    pattern: tuple[Any, ...], text: str
) -> None:
    assert glob(pattern).matches(text) == naive.matches(symbols(pattern), text)


@settings(max_examples=examples(250))
@given(
    st.lists(generated.documents, max_size=3),
    generated.variables,
    st.lists(generated.requests, min_size=1, max_size=8),
)
def test_policies_decide_as_the_plain_rules_do(
    documents: list[Any], variables: dict[str, Value], requests: list[Any]
) -> None:
    asked = compiled(*documents, variables=variables)
    for action, resource, context in requests:
        expected = naive.decide(documents, variables, action, resource, context)
        assert asked.decide(action, resource, context).reason == expected


@settings(max_examples=examples(30))
@given(st.lists(generated.documents, min_size=12, max_size=20), generated.requests)
def test_many_policies_are_found_by_their_pieces_all_the_same(
    documents: list[Any], request: Any
) -> None:
    variables: dict[str, Value] = {"store:groups": generated.GROUPS}
    expected = naive.decide(documents, variables, *request)
    assert compiled(*documents, variables=variables).decide(*request).reason == expected


@given(generated.documents)
def test_what_was_read_gives_its_document_back(document: Any) -> None:
    assert parse(document).document == document
    assert parse(parse(document).document) == parse(document)
