"""The choice of a shape, from literals, and for the real metadata that once did not fit together."""

from itertools import permutations
from typing import Any

from pipelines.finding.shapes import FIELDS_PER_SHAPE, MAX_SHAPES, Choice, Kinds, choose, conflicts
from tests.storage.contracts import real_data


def settle(documents: list[dict[str, Any]], descriptor: str = "d") -> list[Choice]:
    """Choose for one document after the other, keeping the shapes as the catalog does."""
    known: list[Kinds] = []
    choices = []
    for document in documents:
        choice = choose(descriptor, document, known)
        known[choice.number : choice.number + 1] = [choice.kinds]
        choices.append(choice)
    return choices


def test_documents_that_agree_share_the_first_shape() -> None:
    first, second = settle([{"a": 1, "b": {"c": "x"}}, {"a": 2.5, "d": True}])
    assert (first.name, first.number, second.name, second.number) == ("d#1", 0, "d#1", 0)
    assert second.kinds.items() >= {("a", "number"), ("b", "object"), ("b.c", "string")}
    assert second.kinds["d"] == "boolean"


def test_a_document_that_contradicts_goes_to_the_next_shape() -> None:
    one, two, three = settle([{"a": 1}, {"a": "x"}, {"a": "y", "b": 1}])
    assert [each.number for each in (one, two, three)] == [0, 1, 1]
    assert not one.dropped | two.dropped | three.dropped


def test_nothing_is_said_of_empty_values() -> None:
    one, two = settle([{"a": 1}, {"a": None, "b": []}])
    assert (one.number, two.number) == (0, 0)


def test_objects_and_leaves_contradict_each_other() -> None:
    assert [each.number for each in settle([{"a": {"b": 1}}, {"a": 1}, {"a.b": 2}])] == [0, 1, 0]


def test_when_no_shape_is_left_what_contradicts_is_withheld() -> None:
    kinds: list[Any] = [1, "x", True, {"b": 1}]
    assert len(kinds) == MAX_SHAPES
    full = [{"a": value, "k": value} for value in kinds]
    last = settle([*full, {"a": 1, "k": {"deep": {"x": 1}}, "m": 3}])[-1]
    assert last.number == 0
    assert last.dropped == {"k"}
    assert last.kinds["m"] == "number"
    assert last.kinds["k"] == "number"
    assert not [path for path in last.kinds if path.startswith("k.")]


def test_choosing_again_changes_nothing() -> None:
    document = {"a": 1, "b": "x"}
    first = choose("d", document, [])
    assert choose("d", document, [first.kinds]) == first


def test_the_shape_of_the_fewest_contradictions_is_taken() -> None:
    known = [{"a": "string", "b": "string"}] * (MAX_SHAPES - 1) + [{"a": "number", "b": "string"}]
    assert choose("d", {"a": 1, "b": 2}, known).number == MAX_SHAPES - 1


def test_a_shape_that_would_have_too_many_fields_is_left_as_it_is() -> None:
    full = {f"f{number}": "number" for number in range(FIELDS_PER_SHAPE)}
    assert choose("d", {"new": 1}, [full]).number == 1
    assert choose("d", {"f1": 1}, [{**full, **choose("d", {}, []).kinds}]).number == 1


def test_the_shape_of_a_document_that_reports_errors_is_the_same() -> None:
    known = [choose("d", {"a": 1}, []).kinds]
    reporting = {"a": 1, "errors": [{"file": "x", "reason": "y"}, {"path": "p", "reason": "z"}]}
    assert choose("d", reporting, known).kinds == known[0]


def test_conflicts_are_paths_of_another_kind() -> None:
    assert conflicts({"a": "number", "b": "string"}, {"a": "string", "c": "number"}) == {"a"}


def test_real_experiments_find_a_shape_in_every_order() -> None:
    everything = real_data.documents()
    experiments = [each for each in everything if "run_json" not in each["files"]]
    for order in permutations(experiments):
        choices = settle(list(order))
        assert not any(choice.dropped for choice in choices)
    assert all(choice.number < 2 for choice in settle(everything[-2553:]))
