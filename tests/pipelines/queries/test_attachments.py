"""Attachments: values, the three forms of `_errors`, and validation."""

import json
from typing import Any

import pytest

from pipelines.limits import ATTACHMENTS_MAX_BYTES
from pipelines.queries import bounded_jmespath, payloads
from storage.errors import Invalid
from tests.peak_memory import memory_below

DOCUMENT = {"bundle_info": {"uuid": "u"}, "text": "ä" * 10, "numbers": [1, 2], "nan": "nan"}


def asking(**expressions: str) -> dict[str, dict[str, str]]:
    return {name: {"type": "jmespath", "expression": text} for name, text in expressions.items()}


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


@pytest.mark.spec("NOT-05")
def test_values_have_requested_names() -> None:
    found = payloads.evaluate_attachments(
        asking(one="bundle_info.uuid", two="numbers[0]", none="missing"), DOCUMENT
    )
    assert found == {"one": "u", "two": 1, "none": None}


@pytest.mark.spec("NOT-05")
def test_no_attachments_give_no_values() -> None:
    assert payloads.evaluate_attachments({}, DOCUMENT) == {}


@pytest.mark.spec("NOT-06")
def test_failed_attachment_is_reported_beside_others() -> None:
    found = payloads.evaluate_attachments(
        asking(good="text", bad="abs(text)", worse="sum(text)"), DOCUMENT
    )
    assert found["good"] == DOCUMENT["text"]
    assert found.keys() == {"good", "_errors"}
    assert found["_errors"].keys() == {"bad", "worse"}
    assert "abs()" in found["_errors"]["bad"]


@pytest.mark.spec("NOT-06")
@pytest.mark.parametrize("expression", ["to_number(nan)", "&text", "[@,@]|[@,@]|[@,@]"])
def test_result_that_is_no_json_fails_alone(expression: str) -> None:
    found = payloads.evaluate_attachments(
        asking(good="bundle_info.uuid", bad=expression), DOCUMENT, steps=60
    )
    assert found["good"] == "u"
    assert found["_errors"].keys() == {"bad"}


@pytest.mark.spec("NOT-06")
def test_a_general_failure_is_one_text() -> None:
    broken: Any = {"one": {"type": "jmespath"}}
    found = payloads.evaluate_attachments(broken, DOCUMENT)
    assert found.keys() == {"_errors"}
    assert isinstance(found["_errors"], str)


@pytest.mark.spec("NOT-07", "LIM-07")
@pytest.mark.parametrize("over", [0, 1])
def test_values_beyond_128_kib_are_replaced_by_their_size(over: int) -> None:
    letters = ATTACHMENTS_MAX_BYTES - size({"a": "ä"}) + over
    document = {"text": "ä" + "x" * letters}
    found = payloads.evaluate_attachments(asking(a="text"), document)
    if over:
        assert found.keys() == {"_errors"}
        assert "too large" in found["_errors"]
        assert str(ATTACHMENTS_MAX_BYTES + 1) in found["_errors"]
    else:
        assert found == {"a": document["text"]}


@pytest.mark.spec("NOT-07")
def test_the_errors_count_too() -> None:
    document = {"text": "x" * (ATTACHMENTS_MAX_BYTES - size({"a": ""}))}
    assert payloads.evaluate_attachments(asking(a="text"), document) == {"a": document["text"]}
    assert payloads.evaluate_attachments(asking(a="text", b="abs(text)"), document).keys() == {
        "_errors"
    }


EXPENSIVE = "values[*].values(@)[][]"
MANY = {"values": [{f"k{n}": [n] * 20 for n in range(20)}] * 100, "cheap": 1, "middle": [1] * 900}


@pytest.mark.spec("NOT-06")
@pytest.mark.parametrize("before", [1, 3])
def test_expensive_attachment_leaves_steps_to_others(before: int) -> None:
    expensive = {f"a{n}": EXPENSIVE for n in range(before)}
    budget = bounded_jmespath.EvaluationBudget(80_000)
    found = payloads.evaluate_attachments(
        asking(**expensive, cheap="cheap", middle="sum(middle[*])", bad="abs(values)"),
        MANY,
        steps=20_000,
        budget=budget,
    )
    assert (found["cheap"], found["middle"]) == (1, 900)
    errors = found["_errors"]
    assert errors.keys() == {*expensive, "bad"}
    assert "abs()" in errors["bad"]
    assert all("more steps" in errors[name] for name in expensive)
    assert budget.remaining_steps >= 0


@pytest.mark.spec("NOT-06")
def test_each_has_the_steps_of_one_evaluation() -> None:
    found = payloads.evaluate_attachments(
        asking(**{f"a{n}": "sum(middle[*])" for n in range(50)}), MANY, steps=3_000
    )
    assert found == {f"a{n}": 900 for n in range(50)}


@pytest.mark.spec("NOT-06")
def test_attachments_of_a_subscription_are_bounded_together() -> None:
    many = asking(**{f"a{n}": "sum(middle[*])" for n in range(50)})
    budget = bounded_jmespath.EvaluationBudget(100_000)
    found = payloads.evaluate_attachments(many, MANY, steps=3_000, budget=budget)
    assert 0 < len(found["_errors"]) < 50
    assert set(found["_errors"].values()) == {payloads.TOTAL_STEPS_EXCEEDED}
    assert 0 <= budget.remaining_steps < 3_000


@pytest.mark.spec("NOT-06")
def test_large_values_are_not_gathered_in_memory() -> None:
    document = {"text": "x" * 1_000_000}
    many = asking(**{f"a{n}": "join('', [text, text])" for n in range(20)})
    size_of_names = size(dict.fromkeys(many, 0)) - 20
    with memory_below(12_000_000):
        found = payloads.evaluate_attachments(many, document)
    told = size_of_names + 20 * 2_000_002
    assert found == {"_errors": f"The attachments are too large ({told} > 131072 bytes)."}


@pytest.mark.spec("SUB-09")
@pytest.mark.parametrize("name", ["_errors", "_", "_x"])
def test_names_must_not_start_with_an_underscore(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        payloads.check_attachments({name: {"type": "jmespath", "expression": "a"}})
    assert refused.value.code == "invalid_attachment_name"


@pytest.mark.spec("SUB-09")
@pytest.mark.parametrize(
    "given",
    [
        {"type": "xpath", "expression": "a"},
        {"expression": "a"},
        {"type": "jmespath", "expression": "a["},
        {"type": "jmespath"},
    ],
)
def test_type_and_expression_must_be_usable(given: dict[str, str]) -> None:
    with pytest.raises(Invalid) as refused:
        payloads.check_attachments({"fine": {"type": "jmespath", "expression": "a"}, "bad": given})
    assert refused.value.code == "invalid_attachment_expression"
    assert list(refused.value.errors) == ["/attachments/bad"]
