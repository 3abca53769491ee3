"""What the demonstration asks of the store, and what it knows the answer to be.

A question is a fact that holds for some of the bundles. Its answer is found by plain comparison
here, so that search and matching are measured against something that is not theirs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ops.demo.bundles import SampleBundle

LONGEST = 80


@dataclass(frozen=True, order=True)
class Fact:
    """A member of a metadata file has this value."""

    key: str
    member: str
    value: str

    def jmespath(self) -> str:
        """As a JMESPath query on the metadata document."""
        member, value = json.dumps(self.member), json.dumps(self.value)
        return f"files.{json.dumps(self.key)}[?{member}==`{value}`]"

    def es_query(self) -> dict[str, Any]:
        """As a search query."""
        return {"query": {"term": {f"files.{self.key}.{self.member}.keyword": self.value}}}

    def __str__(self) -> str:
        return f"{self.member} = {self.value}"


@dataclass(frozen=True)
class Question:
    """A fact and the bundles for which it holds."""

    fact: Fact
    labels: frozenset[str]


def questions(bundles: Iterable[SampleBundle]) -> tuple[Question, Question]:
    """Two questions of different members, each of which splits the bundles as evenly as may be."""
    facts = {bundle.label: _facts(bundle.metadata()) for bundle in bundles}
    counts = Counter(fact for held in facts.values() for fact in held)
    half = len(facts) / 2
    ranked = sorted(counts, key=lambda fact: (abs(counts[fact] - half), fact))
    if not ranked:
        raise ValueError("no metadata file has a member with a text in it")
    first = ranked[0]
    second = next((fact for fact in ranked if fact.member != first.member), first)
    return _answered(first, facts), _answered(second, facts)


def _answered(fact: Fact, facts: Mapping[str, frozenset[Fact]]) -> Question:
    return Question(fact, frozenset(label for label, held in facts.items() if fact in held))


def _facts(metadata: Mapping[str, list[Any]]) -> frozenset[Fact]:
    return frozenset(
        Fact(key, member, value)
        for key, documents in metadata.items()
        for document in documents
        if isinstance(document, dict)
        for member, value in document.items()
        if isinstance(value, str) and _telling(member, value)
    )


def _telling(member: str, value: str) -> bool:
    """A short text of a member that a path can name; an address tells a reader nothing."""
    return 0 < len(value) <= LONGEST and "." not in member and "://" not in value
