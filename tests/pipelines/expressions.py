"""Hypothesis strategies of documents and JMESPath expressions, and their plain evaluation.

Names and values are few, so that equalities hold often; they include all that Python would mistake
for one another, and every way to write a literal.
"""

import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import jmespath

from pipelines.matching import evaluate_event
from pipelines.queries import bounded_jmespath
from pipelines.queries.stored_queries import StoredQuerySet
from storage.catalog.subscriptions import Subscription
from storage.errors import Invalid
from tests.subscription_builders import BASE_URL, a_subscription, an_event

NAMES = ["a", "b", "files", "x_json", "naïve", "with space", 'quo"te', "event_type"]
SCALARS: list[Any] = [
    None, True, False, 0, 1, -1, 5, 1.0, 0.0, 5.5, 2**53 + 1, float(2**53), "", "0", "1", "5", "true",
    "x", "X", "CREATE", "it's", "back\\slash", "tick`", "ünï", "e\u0301", "null", 'say "so"',
]  # fmt: skip
ODD = ["`NaN`", "`Infinity`", "`bare`", "`1e0`", "`5.0`", "`-0.0`", "`[]`", "`{}`", "`[1]`", "``"]
Verdict = tuple[bool, bool]
"""Whether the expression matches, and whether it fails."""


def document(rng: Random, depth: int = 0) -> Any:
    """An object of few names; `event_type` is matching's to say."""
    made = {name: _value(rng, depth) for name in NAMES[:-1] if rng.random() < 0.7}
    return made if depth else made | {"event_type": "CREATE"}


def _value(rng: Random, depth: int) -> Any:
    kind = rng.random()
    if depth > 2 or kind < 0.45:
        return rng.choice(SCALARS)
    if kind < 0.75:
        return document(rng, depth + 1)
    if kind < 0.9:
        return [document(rng, depth + 1) for _ in range(rng.randrange(4))]
    return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]


def expression(rng: Random, depth: int = 0) -> str:
    """An expression, most often of equalities and what joins them."""
    if depth > 2 or rng.random() < 0.4:
        return rng.choice([_equality, _equality, _equality, _threshold, _threshold, _other])(rng)
    form = rng.choice(
        ["{0} && {1}", "{0} && {1}", "{0} || {1}", "({0}) && ({1})", "({0} || {1})", "!({0})",
         "{2} | {0}", "({2} | {0}) && {1}", "!{2} && {0}", "({0}) == ({1})", "{0} && {1} || {0}",
         "[{0}, {1}]", "{{k: {0}}}.k", "[{0}] | [0]", "{0} | {1}"]
    )  # fmt: skip
    return form.format(expression(rng, depth + 1), expression(rng, depth + 1), path(rng))


def _equality(rng: Random) -> str:
    in_list = rng.random() < 0.3
    sides = [_member(rng) if in_list else path(rng), literal(rng)]
    if rng.random() < 0.2:
        sides.reverse()
    equality = rng.choice(["{} == {}", "{}=={}", "({}) == {}"]).format(*sides)
    if not in_list:
        return equality
    form = rng.choice(["{0}[?{2}]", "{0}[?{2}].{1}", "{0}[].{1}[?{2}][]", "{0}[*].{1}[?{2}] | []"])
    return form.format(path(rng), _member(rng), equality)


def _threshold(rng: Random) -> str:
    """What else an index finds: comparisons and searches, of values, of elements, of results."""
    top, one, two = rng.choice([path, _member])(rng), _member(rng), _member(rng)
    if rng.random() < 0.3:
        return _asking(rng, top)
    if rng.random() < 0.2:
        name = rng.choice(["length", "abs", "keys"])
        return f"{_asking(rng, f'{name}({top})')} && {_equality(rng)}"
    inner = _asking(rng, rng.choice([one, f"{one}.{two}", "@", "@", "length(@)", f"abs({one})"]))
    listed = rng.choice(
        ["{0}[?{3}]", "{0}[?{3}]", "{0}[?{3} && {4}]", "{0}[?{3}].{2}", "{0}[?{1}[?{3}]]",
         "{0}[].{1}[?{3}]", "{0}[].{1}[?{3}][]", "{0}[*].{1}[?{3}][]", "{0}.*[?{3}][]", "{0}.*.{1}[?{3}]",
         "{0}[?{1}][?{3}]", "({0}[?{3}] | [0]).{2}", "{0}[?{3}] | [::0]", "{0}[][][?{3}]", "{0}[*].{2}",
         "{0}[].{3}[]", "{0}[?{3}] | [@]", "{0}[?{3}] | [::0]", "{0}[?{3} && {4}]"]
    )  # fmt: skip
    found: str = listed.format(top, one, two, inner, _asking(rng, two))
    if rng.random() < 0.6:
        return found
    whole = rng.choice(
        ["length({0})", "abs({0})", "keys({0})", "type({0})", "sum({0})", "({0}[].{1})", "({0}.*[].{1})",
         "({0}[*].{1} | [0])", "length({2})", "({2})", "not_null({0}[0], {0}.{1})", "({0} || {1})",
         "(@ | {0})", "({0} | {1})", "({0}.length(@))"]
    )  # fmt: skip
    return _asking(rng, whole.format(top, one, found))


def _asking(rng: Random, subject: str) -> str:
    """What is true of some values of the subject."""
    order, part = rng.choice(["<", "<=", ">", ">=", "==", "!="]), literal(rng)
    return rng.choice(
        [f"{subject} {order} {part}", f"{part} {order} {subject}", f"contains({subject}, {part})",
         f"starts_with({subject}, {part})", f"ends_with({subject}, {part})", subject, f"!{subject}"]
    )  # fmt: skip


def _other(rng: Random) -> str:
    form = rng.choice(
        ["{0}", "{0} != {1}", "{0} < {1}", "{1} >= {0}", "{0} == {2}", "{1} == {1}", "{1}", "@", "*",
         "{0}[]", "{0}[*].{3}", "{0}[*].{3} | [0]", "{0}[?{3} == {1}]", "{0}[?{3}].{3}", "{0}.*.{3}",
         "{0}[::-1]", "{0}[::0]", "{0}[1:].{3}", "{0}[].{3} == {1}", "{0}[*] == {1}", "length({0})",
         "abs({0})", "contains({0}, {1})", "type({0}) == 'string'", "not_null({0}, {2})", "nothing({0})",
         "{0}[?{3} > {1}].{3} | [0] == {1}", "sort({0})", "{0}.[{3}]", "{0}.{{k: {3}}}.k == {1}",
         "starts_with({0}, {1})", "keys({0})", "({0} | {3}) == {1}", "{0} | length(@)"]
    )  # fmt: skip
    return form.format(path(rng), literal(rng), path(rng), _member(rng))


def path(rng: Random) -> str:
    """A plain path, or one that only looks like it."""
    start = rng.choice([_member(rng)] * 8 + ["@", "[0]", f"({_member(rng)})"])
    return start + "".join(_step(rng) for _ in range(rng.randrange(3)))


def _step(rng: Random) -> str:
    if rng.random() < 0.7:
        return f".{_member(rng)}"
    return f"[{rng.choice([0, 0, 1, 2, -1, -2, 10**20])}]"


def _member(rng: Random) -> str:
    name = rng.choice(NAMES)
    return name if name.isascii() and name.isidentifier() else json.dumps(name)


def literal(rng: Random) -> str:
    """A literal, in one of its spellings."""
    if rng.random() < 0.1:
        return rng.choice(ODD)
    value = rng.choice(SCALARS)
    if isinstance(value, str) and rng.random() < 0.6:
        return "'" + value.replace("'", "\\'") + "'"
    return "`" + json.dumps(value, ensure_ascii=rng.random() < 0.5).replace("`", "\\`") + "`"


def by_the_library(source: str, document: Any) -> Verdict:
    """What a plain `jmespath.search` says."""
    try:
        result = jmespath.search(source, document)
    except Exception:
        return False, True
    return not (result is None or result is False or result in ("", [], {})), False


def by_us(source: str, document: Any, steps: int) -> Verdict:
    """What the expression alone says, in so many steps."""
    try:
        return bounded_jmespath.parse_expression(source).matches(
            document, bounded_jmespath.EvaluationBudget(steps)
        ), False
    except bounded_jmespath.EvaluationFailed:
        return False, True


def by_matching(questions: StoredQuerySet, document: Any, steps: int) -> dict[int, Verdict]:
    """What matching says of every subscription that it tells of an event or of a failure."""
    found = evaluate_event(questions, an_event(), document, base_url=BASE_URL, steps=steps)
    return {one.subscription_id: (one.failure is None, one.failure is not None) for one in found}


def subscriptions(sources: Iterable[str]) -> list[Subscription]:
    """One on each of them, of several owners."""
    return [
        a_subscription(query=source, id=number, owner=f"owner{number % 7}@example.org")
        for number, source in enumerate(sources, 1)
    ]


def differences(
    seed: int, *, documents: int, expressions: int, steps: int = bounded_jmespath.MAX_STEPS
) -> Iterator[str]:
    """Where matching says other than plain evaluation, over all pairs."""
    rng = Random(seed)
    asked = subscriptions(sources(rng, expressions))
    questions = StoredQuerySet(asked)
    for _ in range(documents):
        seen = document(rng)
        found = by_matching(questions, seen, steps)
        for each in asked:
            source = each.query or ""
            plain = by_us(source, seen, steps)
            if steps == bounded_jmespath.MAX_STEPS:
                plain = by_the_library(source, seen)
            if found.get(each.id, (False, False)) != plain:
                yield f"{source} on {json.dumps(seen)}: {found.get(each.id)}, not {plain}"


def sources(rng: Random, count: int) -> list[str]:
    """Expressions that can be stored."""
    made: list[str] = []
    while len(made) < count:
        source = expression(rng)
        if _is_storable(source):
            made.append(source)
    return made


def _is_storable(source: str) -> bool:
    try:
        bounded_jmespath.parse_expression(source)
    except Invalid:
        return False
    return True


def hostile(number: int) -> str:
    """An expression that takes as many steps as it is given, unlike any other number's."""
    return f"x{number} || (" + "|".join(["[@,@][]"] * 40) + ")"
