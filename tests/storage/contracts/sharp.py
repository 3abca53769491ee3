"""Small documents and queries made to be told apart by one place, one letter or one sign only."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

LETTERS = ("a", "b", "c", "d")
TEXTS = (
    *("ab", "abc", "abcd", "acbd", "bacd", "aab", "bba", "ba", "b", "a", "abcabc", "cab", "dab"),
    *("éab", "éa", "𝒳ab", "a𝒳b", "ﬀab", "-", "a.b", "a\nb", "東京", "a?b", "a*b", "a\\b", ""),
)
NUMBERS = (-0.0, 0, 1, -1, 1.5, 1e300, -1e-300, 2**60, 10**400)
MIXED = (True, False, 1, "true", 0.0)
EDITS = ((), ("a",), ("x",), ("é",))
EXPRESSIONS = (
    *("a", "b", "c", "d", ".", "[ab]", "[^a]", "(a|b)", "a?", "b*", "c+", "a{1,2}", ".*", "\\."),
    *("\\w", "\\d", "\\W", "\\s", "[b-d]", "é", "[^\\x]", '"a.b"', "@", "#", "()", "東", "𝒳"),
    *("[é-𝒳]", "~", "&", "<1-2>"),
)
WILD = ("?", "*", "a", "b", "c", "\\", "\\*", "é", "𝒳", "A", "\\A")
FIELDS = ("w", "w.keyword", "k", "k.keyword", "k.keyword.keyword")
LOW = (-1, 0, -0.0, "-0.0", 1, "a", "ab", True, "é", 1e300, 2**60)
HIGH = (0, "0", "b", 1.5, "𝒳", True, 1e300, "ﬀ")
SLOPS = (0, 0, 1, 2, 3, 4, 6, 99, 100, 101, 103)
MINIMA = (1, 2, 3, 4, "75%", "-1", "2<50%")


def document(random: Random, number: int) -> dict[str, Any]:
    """A few words again and again, texts with signs, numbers at the ends of their kinds."""

    def text() -> str:
        return " ".join(random.choice(LETTERS) for _ in range(random.randint(0, 9)))

    uuid = f"{number:08x}-0000-4000-8000-{number:012x}"
    return {
        "bundle_info": {"uuid": uuid, "version": f"2026-01-{1 + number % 9:02d}T000000.000000Z"},
        "t": [text() for _ in range(random.randint(1, 3))],
        "w": random.choices(TEXTS, k=3),
        "n": random.choices(NUMBERS, k=2),
        "m": random.choice(MIXED),
        "k.keyword": random.choice(TEXTS),
        "k": random.choice(TEXTS),
    }


def query(random: Random) -> dict[str, Any]:
    """One clause."""
    return random.choice(CLAUSES)(random)


def _joined(random: Random, choices: Sequence[str], least: int, most: int) -> str:
    return "".join(random.choices(choices, k=random.randint(least, most)))


def _phrase(random: Random) -> dict[str, Any]:
    text = " ".join(random.choices(LETTERS, k=random.randint(2, 5)))
    return {"match_phrase": {"t": {"query": text, "slop": random.choice(SLOPS)}}}


def _fuzzy(random: Random) -> dict[str, Any]:
    letters = list(random.choice(TEXTS))
    for _ in range(random.randint(0, 2)):
        at = random.randrange(len(letters) + 1)
        letters[at : at + random.randint(0, 1)] = random.choice(EDITS)
    options = {
        "value": "".join(letters) or "a",
        "fuzziness": random.choice((0, 1, 2, "AUTO")),
        "prefix_length": random.randint(0, 3),
        "transpositions": random.random() < 0.5,
    }
    return {"fuzzy": {random.choice(FIELDS): options}}


def _cased(random: Random, value: Any) -> dict[str, Any]:
    return {"value": value, "case_insensitive": random.random() < 0.4}


def _wildcard(random: Random) -> dict[str, Any]:
    return {"wildcard": {random.choice(FIELDS): _cased(random, _joined(random, WILD, 0, 4))}}


def _regexp(random: Random) -> dict[str, Any]:
    options = _cased(random, _joined(random, EXPRESSIONS, 1, 5))
    flags = random.choice(("ALL", "NONE", "ANYSTRING|EMPTY"))
    return {"regexp": {random.choice(FIELDS): options | {"flags": flags}}}


def _match(random: Random) -> dict[str, Any]:
    text = " ".join(random.choices((*LETTERS, *TEXTS), k=random.randint(1, 6)))
    options = {"query": text, "minimum_should_match": random.choice(MINIMA)}
    return {"match": {random.choice("tw"): options}}


def _range(random: Random) -> dict[str, Any]:
    low, high = random.choice(("gt", "gte")), random.choice(("lt", "lte"))
    bounds = {low: random.choice(LOW), high: random.choice(HIGH)}
    return {"range": {random.choice(("n", "m", *FIELDS)): bounds}}


def _term(random: Random) -> dict[str, Any]:
    value = random.choice((*LOW, *TEXTS, "AB"))
    return {"term": {random.choice(("n", "m", *FIELDS)): _cased(random, value)}}


CLAUSES: Sequence[Callable[[Random], dict[str, Any]]] = (
    *(_phrase, _phrase, _phrase, _fuzzy, _wildcard, _regexp, _match, _range, _term),
)
