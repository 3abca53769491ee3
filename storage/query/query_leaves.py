"""The leaves of a query string: words, phrases, patterns and ranges as clauses."""

from dataclasses import dataclass

from storage.errors import Invalid
from storage.query.clauses import (
    Bound,
    Clause,
    Exists,
    Field,
    Fields,
    Fuzziness,
    Fuzzy,
    Match,
    MatchAll,
    MatchPhrase,
    Range,
    Wildcard,
)
from storage.query.full_text import no_words
from storage.query.node import fuzziness_of, refuse
from storage.query.query_tokens import Token, unescaped


@dataclass(frozen=True, slots=True)
class Manner:
    """The parameters that shape every clause of one query string."""

    pointer: str
    fields: Fields
    every: bool
    slop: int
    fuzziness: Fuzziness
    prefix_length: int
    transpositions: bool
    leading_wildcard: bool

    def wrong(self, problem: str) -> Invalid:
        """The error of a string that cannot be read."""
        return refuse(f"'query_string' cannot be read: {problem}", self.pointer)


def words(manner: Manner, fields: Fields, text: str) -> list[Clause]:
    """What one word or several side by side ask; nothing if analysis leaves none."""
    plain = unescaped(text)
    if no_words(fields, plain) and not any(field.pattern for field in fields):
        return []
    return [Match(fields, plain, every=manner.every)]


def word(manner: Manner, fields: Fields, text: str, tilde: str | None) -> Clause | None:
    """One word: to be matched, nearly matched, or a bound of a range."""
    if tilde is not None:
        return _fuzzy(manner, fields, unescaped(text), tilde)
    sign = text[:2] if text[:2] in (">=", "<=") else text[:1]
    if fields != manner.fields and sign in (">", "<", ">=", "<=") and text != sign:
        bound = Bound(unescaped(text[len(sign) :]), inclusive=sign.endswith("="))
        low, high = (bound, None) if sign[0] == ">" else (None, bound)
        return Range(fields, low, high, folded=True)
    return next(iter(words(manner, fields, text)), None)


def _fuzzy(manner: Manner, fields: Fields, text: str, tilde: str) -> Clause:
    fuzziness = fuzziness_of(tilde) if tilde else manner.fuzziness
    if fuzziness is None:
        raise manner.wrong(f"'~{tilde}' is no number of edits")
    return Fuzzy(fields, text, fuzziness, manner.prefix_length, manner.transpositions, folded=True)


def phrase(manner: Manner, fields: Fields, text: str, tilde: str | None) -> Clause | None:
    """Words in quotation marks, `~` giving the moves allowed."""
    if tilde and not tilde.isdecimal():
        raise manner.wrong(f"'~{tilde}' is no number of moves")
    plain = unescaped(text)
    if no_words(fields, plain) and not any(field.pattern for field in fields):
        return None
    return MatchPhrase(fields, plain, int(tilde[:9]) if tilde else manner.slop)


def wildcard(manner: Manner, fields: Fields, pattern: str) -> Clause:
    """A word with `*` or `?`; `*` alone asks for any value."""
    if pattern == "*":
        return MatchAll() if fields == (Field("*", True),) else Exists(fields)
    if pattern[0] in "*?" and not manner.leading_wildcard:
        raise manner.wrong("'*' or '?' is not allowed as first character")
    return Wildcard(fields, pattern, folded=True)


def between(fields: Fields, token: Token) -> Clause:
    """A range in brackets or braces."""
    low, high = (unescaped(end) for end in token.ends)
    lower = None if low == "*" else Bound(low, token.text[0] == "[")
    upper = None if high == "*" else Bound(high, token.text[-1] == "]")
    return Range(fields, lower, upper, folded=True) if lower or upper else Exists(fields)
