"""The closed grammar as frozen dataclasses: every query that either engine understands.

Values are text, as each kind of field reads them leniently (`"5"` is the number 5 to a number, the
word `5` to a text); one that a field's kind cannot read matches nothing there, it is no error.
Boosts are checked when parsed and then forgotten: hits are ordered by version, never by score.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """A dotted path; with `pattern` its `*` stand for any characters, dots too."""

    name: str
    pattern: bool = False


Fields = tuple[Field, ...]
"""A leaf clause holds when it holds for any one of its fields."""


@dataclass(frozen=True, slots=True)
class Fuzziness:
    """How many edits a word may have: `fixed`, or 0 below `low` characters, 1 below `high`, 2."""

    fixed: int | None = None
    low: int = 3
    high: int = 6

    def edits(self, word: str) -> int:
        """The number allowed for this word."""
        if self.fixed is not None:
            return self.fixed
        return (len(word) >= self.low) + (len(word) >= self.high)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range."""

    value: str
    inclusive: bool


@dataclass(frozen=True, slots=True)
class MatchAll:
    """Every document."""


@dataclass(frozen=True, slots=True)
class MatchNone:
    """No document."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Documents named by `<uuid>.<version>`."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a text, or a whole value, is exactly this; `case_insensitive` in ASCII only."""

    fields: Fields
    value: str
    case_insensitive: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """A word, or a whole value, is one of these."""

    fields: Fields
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A word (by code point), whole value or number lies within; `folded` lower-cases the bounds
    for text alone, as queries written as one string do."""

    fields: Fields
    low: Bound | None = None
    high: Bound | None = None
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """The field, or one below it, has a value."""

    fields: Fields


@dataclass(frozen=True, slots=True)
class Prefix:
    """A word, or a whole value, begins with this; not analysed."""

    fields: Fields
    value: str
    case_insensitive: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A word, or a whole value, fits `*` and `?`, of which a backslash takes the meaning."""

    fields: Fields
    pattern: str
    case_insensitive: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Regexp:
    """A word, or a whole value, fits an expression of Lucene's syntax from end to end, of which
    some optional `operators` are in force."""

    fields: Fields
    pattern: str
    operators: frozenset[str]
    case_insensitive: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """A word, or a whole value, is within some edits of this, its first characters being equal."""

    fields: Fields
    value: str
    fuzziness: Fuzziness = Fuzziness()
    prefix_length: int = 0
    transpositions: bool = True
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """Enough of the analysed words are in one text, or the whole value is this."""

    fields: Fields
    text: str
    every: bool = False
    minimum_should_match: str | None = None
    fuzziness: Fuzziness | None = None
    prefix_length: int = 0
    transpositions: bool = True


@dataclass(frozen=True, slots=True)
class MatchPhrase:
    """The analysed words stand in a row in a text, give or take `slop`; or a whole value is it."""

    fields: Fields
    text: str
    slop: int = 0


@dataclass(frozen=True, slots=True)
class Bool:
    """All of must and filter, enough of should, none of must_not."""

    must: tuple["Clause", ...] = ()
    filter: tuple["Clause", ...] = ()
    should: tuple["Clause", ...] = ()
    must_not: tuple["Clause", ...] = ()
    minimum_should_match: str | None = None
    adjust_pure_negative: bool = True


@dataclass(frozen=True, slots=True)
class ConstantScore:
    """What its filter matches."""

    filter: "Clause"


@dataclass(frozen=True, slots=True)
class DisMax:
    """What any of its queries matches."""

    queries: tuple["Clause", ...]


@dataclass(frozen=True, slots=True)
class Boosting:
    """What `positive` matches; `negative` would only lower a score."""

    positive: "Clause"
    negative: "Clause"


Leaf = Term | Terms | Range | Prefix | Wildcard | Regexp | Fuzzy | Match | MatchPhrase
"""Clauses about the words and values of fields."""

Clause = Leaf | MatchAll | MatchNone | Ids | Exists | Bool | ConstantScore | DisMax | Boosting


def children(clause: Clause) -> tuple[Clause, ...]:
    """The clauses directly inside of this one."""
    match clause:
        case Bool():
            return clause.must + clause.filter + clause.should + clause.must_not
        case ConstantScore():
            return (clause.filter,)
        case DisMax():
            return clause.queries
        case Boosting():
            return (clause.positive, clause.negative)
    return ()
