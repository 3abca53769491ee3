"""Documents and queries made at random from a seed, small words and paths so that much matches."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

WORDS = [
    "Homo",
    "sapiens",
    "cell",
    "CELL",
    "brain",
    "Brain-stem",
    "don't",
    "3.14",
    "x_y",
    "naïve",
    "Ünïcode",
    "東京",
    "ab",
    "abc",
    "abcd",
    "abdc",
    "acbd",
    "the",
    "The",
    "10",
    "5",
    "-1",
    "true",
    "false",
    "1e3",
    "Été",
    "a",
]
KEYS = ("a", "b", "c", "keyword", "a.b")
FIELDS = (
    *("a", "b", "c", "a.b", "a.c", "b.a", "a.keyword", "b.keyword", "c.keyword"),
    *("c.a.keyword", "a.b.keyword", "nope", "bundle_info.version"),
)
PATTERNS = (*FIELDS, "*", "a.*", "*.keyword", "b*", "c.*")
REGEXPS = (
    *(".*", "a.*", "[a-d]+", "ab?c", "[^a-m].*", ".{2,3}", "(ab|the).*", '"ab"@', "h.m."),
    *("\\d+", "B.*", "[東-龥].", "#", "()"),
)
MINIMA = (0, 1, 2, 3, -1, "50%", "-50%", "2<75%", "100%")
PARTS = (
    *("ab*", "*ell", "/a.*/", "cel~", "_exists_:a", "(ab OR cell)", "!ab", "a:ab", "c.a:>5"),
    *("a.keyword:Homo", "*:10", "b*:cell", "a:[1 TO 10]", "b:{a TO c}", "c:(ab cell)", "a:*"),
    *('b:"the cell"', "a:ab~1", "ab^2"),
)


class Generator:
    """A stream of documents and queries; `value` is one that queries may look for."""

    def __init__(
        self,
        seed: int,
        *,
        words: Sequence[str] = WORDS,
        fields: Sequence[str] = FIELDS,
        patterns: Sequence[str] = PATTERNS,
    ) -> None:
        self.random = Random(seed)
        self.words, self.fields, self.patterns = words, fields, patterns

    def one(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def some(self, most: int) -> range:
        return range(self.random.randint(0, most))

    def word(self) -> str:
        return str(self.one(self.words))

    def text(self) -> str:
        return " ".join(self.word() for _ in self.some(5))

    def scalar(self) -> Any:
        choices: list[Callable[[], Any]] = [self.text] * 3
        numbers = (-3, -1, 0, 5, 10, 12, 1.5, 2.0, -0.5, 1000.0, 10**400)
        choices += [self.word, lambda: self.one(numbers), lambda: self.often(0.5), lambda: None]
        return self.one(choices)()

    def leaf(self, depth: int = 0) -> Any:
        share = self.random.random()
        if share < 0.6 or depth > 2:
            return self.scalar()
        if share < 0.8:
            return [self.leaf(depth + 1) for _ in self.some(3)]
        return {self.one(KEYS): self.leaf(depth + 1) for _ in self.some(3)}

    def document(self, number: int) -> dict[str, Any]:
        members = {key: self.leaf() for key in KEYS if self.often(0.7)}
        return {**members, "bundle_info": self.name(number)}

    def name(self, number: int) -> dict[str, str]:
        """A name whose order is not that of numbers, with versions in common."""
        uuid = f"{self.random.getrandbits(32):08x}-0000-4000-8000-{number:012x}"
        return {"uuid": uuid, "version": f"2026-01-{self.random.randint(1, 9):02d}T000000.000000Z"}

    def value(self) -> Any:
        choices = (self.text, self.word, lambda: self.word().lower(), self.scalar)
        value = self.one(choices)()
        return "" if value is None else value

    def field(self) -> str:
        return str(self.one(self.fields))

    def pattern(self) -> str:
        return str(self.one(self.patterns))

    def options(self, given: dict[str, Any], **more: Any) -> dict[str, Any]:
        """With some of the options; those that are functions are called."""
        chosen = {name: value for name, value in more.items() if self.often(0.3)}
        return given | {n: value() if callable(value) else value for n, value in chosen.items()}

    def query(self, depth: int = 0) -> dict[str, Any]:
        kinds = COMPOUNDS if depth < 3 and self.often(0.35) else LEAVES
        made: dict[str, Any] = self.one(kinds)(self, depth)
        return made

    def wild(self) -> str:
        characters = list(self.word())
        for _ in self.some(2):
            characters[self.random.randrange(len(characters))] = self.one("*?")
        return "".join(characters)

    def string(self) -> str:
        parts: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            plain = self.word().replace("-", "")
            part = self.one((plain, f'"{self.text()}"', self.one(PARTS)))
            sign = self.one(("", "", "+", "-", "NOT ", "AND ", "OR ")) if parts else ""
            parts.append(sign + part)
        return " ".join(parts)

    def minimum(self) -> Any:
        return self.one(MINIMA)

    def fuzziness(self) -> Any:
        return self.one(("AUTO", 0, 1, 2, "AUTO:2,4"))


Made = Callable[[Generator, int], dict[str, Any]]


def _bool(g: Generator, depth: int) -> dict[str, Any]:
    names = [name for name in ("must", "filter", "should", "must_not") if g.often(0.5)]
    parts = {name: [g.query(depth + 1) for _ in g.some(3)] for name in names}
    return {"bool": g.options(parts, minimum_should_match=g.minimum, adjust_pure_negative=False)}


def _boosting(g: Generator, depth: int) -> dict[str, Any]:
    positive, negative = g.query(depth + 1), g.query(depth + 1)
    return {"boosting": {"positive": positive, "negative": negative, "negative_boost": 0.5}}


def _dis_max(g: Generator, depth: int) -> dict[str, Any]:
    return {"dis_max": {"queries": [g.query(depth + 1), g.query(depth + 1)]}}


def _constant_score(g: Generator, depth: int) -> dict[str, Any]:
    return {"constant_score": {"filter": g.query(depth + 1)}}


COMPOUNDS: Sequence[Made] = (_bool, _bool, _bool, _boosting, _dis_max, _constant_score)


def _of_field(clause: str, make: Callable[[Generator], Any]) -> Made:
    return lambda g, depth: {clause: {g.field(): make(g)}}


def _value(g: Generator, value: Any) -> dict[str, Any]:
    return g.options({"value": value}, case_insensitive=True)


def _fuzzy(g: Generator) -> dict[str, Any]:
    options = {"fuzziness": g.fuzziness, "prefix_length": 1, "transpositions": False}
    return g.options({"value": g.word()}, **options)


def _match(g: Generator) -> dict[str, Any]:
    options = {"operator": "and", "minimum_should_match": g.minimum, "fuzziness": g.fuzziness}
    return g.options({"query": g.value()}, **options, zero_terms_query="all")


def _multi_match(g: Generator, depth: int) -> dict[str, Any]:
    fields = [g.pattern() for _ in range(g.random.randint(1, 3))]
    options = {"operator": "and", "minimum_should_match": g.minimum, "type": "most_fields"}
    return {"multi_match": g.options({"query": g.text(), "fields": fields}, **options)}


def _query_string(g: Generator, depth: int) -> dict[str, Any]:
    options = {"default_field": g.pattern, "default_operator": "AND"}
    more = {"minimum_should_match": g.minimum, "phrase_slop": 1}
    return {"query_string": g.options({"query": g.string()}, **options, **more)}


def _simple(g: Generator, depth: int) -> dict[str, Any]:
    options = {"fields": lambda: [g.pattern()], "default_operator": "and"}
    more = {"minimum_should_match": g.minimum}
    return {"simple_query_string": g.options({"query": g.string()}, **options, **more)}


LEAVES: Sequence[Made] = (
    lambda g, depth: {g.one(("match_all", "match_none")): {}},
    lambda g, depth: {"exists": {"field": g.pattern()}},
    _of_field("term", lambda g: _value(g, g.value())),
    _of_field("terms", lambda g: [g.value() for _ in g.some(4)]),
    _of_field("range", lambda g: g.options({}, gte=g.value, lt=g.value)),
    _of_field("range", lambda g: g.options({}, gt=g.value, lte=g.value)),
    _of_field("prefix", lambda g: _value(g, g.word()[:2])),
    _of_field("wildcard", lambda g: _value(g, g.wild())),
    _of_field("regexp", lambda g: _value(g, g.one(REGEXPS))),
    _of_field("fuzzy", _fuzzy),
    _of_field("match", _match),
    _of_field(
        "match_phrase", lambda g: g.options({"query": g.text()}, slop=lambda: g.one((1, 3, 101)))
    ),
    _multi_match,
    lambda g, depth: {
        "multi_match": {"query": g.text(), "fields": [g.pattern()], "type": "phrase"}
    },
    _query_string,
    _simple,
)
