"""Clauses of the query grammar as frozen dataclasses.

Values are text, which each kind of field reads leniently (`"5"` is the number 5 to a number, the
word `5` to a text); a value that a field cannot read matches nothing. Boosts are checked and then
dropped: hits are ordered by version, never by score.
"""

import re
from dataclasses import dataclass

SIMPLE_MINIMUM = re.compile(r"-?\d{1,9}%?")
CONDITIONAL_MINIMUM = re.compile(r"\d{1,9}<-?\d{1,9}%?(?: \d{1,9}<-?\d{1,9}%?)*")


def normalize_minimum(spec: str) -> str | None:
    """Remove blanks from a `minimum_should_match`; None if it is malformed."""
    text = re.sub(r"\s*<\s*", "<", spec.strip())
    return text if SIMPLE_MINIMUM.fullmatch(text) or CONDITIONAL_MINIMUM.fullmatch(text) else None


def count_required(optional: int, spec: str) -> int:
    """Return how many of `optional` clauses must hold; may exceed their number."""
    if "<" not in spec:
        return max(0, _apply_simple_minimum(optional, spec))
    result = optional
    for part in spec.split(" "):
        above, _, simple = part.partition("<")
        if optional <= int(above):
            return result
        result = max(0, _apply_simple_minimum(optional, simple))
    return result


def _apply_simple_minimum(optional: int, spec: str) -> int:
    if spec.endswith("%"):
        # Towards zero for either sign, as the engines do.
        part = int(abs(optional * int(spec[:-1])) // 100)
        return part if not spec.startswith("-") else optional - part
    number = int(spec)
    return number if number >= 0 else optional + number


@dataclass(frozen=True, slots=True)
class QueryField:
    """A dotted path; with `pattern` its `*` match any characters, dots included."""

    name: str
    pattern: bool = False


QueryFields = tuple[QueryField, ...]
"""Fields of a leaf clause, which holds if it holds for any of them."""


@dataclass(frozen=True, slots=True)
class Fuzziness:
    """Edits that a word may have: `fixed`, or 0 below `low` characters, 1 below `high`, else 2."""

    fixed: int | None = None
    low: int = 3
    high: int = 6

    def allowed_edits(self, word: str) -> int:
        """Return the edits allowed for this word."""
        if self.fixed is not None:
            return self.fixed
        return (len(word) >= self.low) + (len(word) >= self.high)


@dataclass(frozen=True, slots=True)
class RangeBound:
    """One end of a range."""

    value: str
    inclusive: bool


@dataclass(frozen=True, slots=True)
class MatchAllClause:
    """Every document."""


@dataclass(frozen=True, slots=True)
class MatchNoneClause:
    """No document."""


@dataclass(frozen=True, slots=True)
class IdsClause:
    """Documents named by `<uuid>.<version>`."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TermClause:
    """A word, or a whole value, equals this; `case_insensitive` for ASCII only."""

    fields: QueryFields
    value: str
    case_insensitive: bool = False


@dataclass(frozen=True, slots=True)
class TermsClause:
    """A word, or a whole value, is one of these."""

    fields: QueryFields
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RangeClause:
    """A word (by code point), whole value or number is in a range.

    `folded` lower-cases the bounds for words, as in query strings.
    """

    fields: QueryFields
    low: RangeBound | None = None
    high: RangeBound | None = None
    folded: bool = False


@dataclass(frozen=True, slots=True)
class ExistsClause:
    """The field, or one below it, has a value."""

    fields: QueryFields


@dataclass(frozen=True, slots=True)
class PrefixClause:
    """A word, or a whole value, begins with this; not analysed."""

    fields: QueryFields
    value: str
    case_insensitive: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class WildcardClause:
    """A word, or a whole value, matches `*` and `?`; a backslash escapes them."""

    fields: QueryFields
    value: str
    case_insensitive: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class RegexpClause:
    """A word, or a whole value, matches a Lucene expression from end to end.

    `operators` are the optional operators that are enabled.
    """

    fields: QueryFields
    value: str
    operators: frozenset[str]
    case_insensitive: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class FuzzyClause:
    """A word, or a whole value, is within some edits of this and shares its prefix."""

    fields: QueryFields
    value: str
    fuzziness: Fuzziness = Fuzziness()
    prefix_length: int = 0
    transpositions: bool = True
    folded: bool = False


@dataclass(frozen=True, slots=True)
class MatchClause:
    """Enough of the analysed words are in one text, or the whole value equals the text."""

    fields: QueryFields
    text: str
    match_every: bool = False
    minimum_should_match: str | None = None
    fuzziness: Fuzziness | None = None
    prefix_length: int = 0
    transpositions: bool = True


@dataclass(frozen=True, slots=True)
class MatchPhraseClause:
    """The words are adjacent in a text, within `slop`; or the whole value equals the text."""

    fields: QueryFields
    text: str
    slop: int = 0


@dataclass(frozen=True, slots=True)
class BoolClause:
    """All of must and filter, enough of should, none of must_not."""

    must: tuple["Clause", ...] = ()
    filter: tuple["Clause", ...] = ()
    should: tuple["Clause", ...] = ()
    must_not: tuple["Clause", ...] = ()
    minimum_should_match: str | None = None

    def required_should(self) -> int:
        """Return how many `should` clauses must hold; if there are fewer, nothing matches."""
        least = 0 if self.must or self.filter or not self.should else 1
        if self.minimum_should_match is None or not self.should:
            return least
        return max(least, count_required(len(self.should), self.minimum_should_match))


LeafClause = (
    TermClause
    | TermsClause
    | RangeClause
    | PrefixClause
    | WildcardClause
    | RegexpClause
    | FuzzyClause
    | MatchClause
    | MatchPhraseClause
)
"""Clauses about the words and values of fields."""

Clause = LeafClause | MatchAllClause | MatchNoneClause | IdsClause | ExistsClause | BoolClause
