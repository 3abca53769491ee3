"""`query_string`: Lucene's classic syntax, read into the other clauses, or refused.

Words that stand side by side are analysed together; AND, OR, NOT, + and - mark the clause before or
behind them, as Lucene's parser does, without precedence.
"""

from dataclasses import dataclass, replace

from storage.query.clauses import (
    Bool,
    Clause,
    Exists,
    Field,
    Fields,
    Fuzziness,
    Match,
    MatchAll,
    MatchNone,
    Regexp,
)
from storage.query.full_text import fields_of
from storage.query.node import Node, field_named
from storage.query.patterns import OPERATORS
from storage.query.query_leaves import Manner, between, phrase, wildcard, word, words
from storage.query.query_tokens import Token, tokens_of, unescaped
from storage.query.term_level import checked_regexp

PARAMETERS = (
    "query",
    "default_field",
    "fields",
    "default_operator",
    "allow_leading_wildcard",
    "fuzziness",
    "fuzzy_prefix_length",
    "fuzzy_transpositions",
    "lenient",
    "minimum_should_match",
    "phrase_slop",
    "tie_breaker",
    "type",
    "auto_generate_synonyms_phrase_query",
    "enable_position_increments",
    "max_determinized_states",
)
MAX_NESTING = 18


def parse_query_string(node: Node) -> Clause:
    """`query_string`."""
    node.only(*PARAMETERS)
    node.number("tie_breaker", 0.0)
    node.choice("type", ("best_fields", "most_fields"), "best_fields")
    for name in ("lenient", "auto_generate_synonyms_phrase_query", "enable_position_increments"):
        node.flag(name, True)
    reader = _Reader(tokens_of(node.scalar("query"), node.at("query")), _manner(node))
    clause = reader.whole()
    return with_minimum(clause, node.minimum())


def _manner(node: Node) -> Manner:
    key = "fields" if node.has("fields") else "default_field"
    return Manner(
        node.at("query"),
        fields_of(node, key),
        node.choice("default_operator", ("or", "and"), "or") == "and",
        node.count("phrase_slop", 0),
        node.fuzziness() or Fuzziness(),
        node.count("fuzzy_prefix_length", 0),
        node.flag("fuzzy_transpositions", True),
        node.flag("allow_leading_wildcard", True),
    )


def with_minimum(clause: Clause, minimum: str | None) -> Clause:
    """Ask for a minimum where the clause has several optional parts of its own."""
    if minimum is None:
        return clause
    one_field = isinstance(clause, Match) and _single(clause.fields)
    if isinstance(clause, Bool) or (isinstance(clause, Match) and one_field):
        return replace(clause, minimum_should_match=minimum)
    return clause


def _single(fields: Fields) -> bool:
    return len(fields) == 1 and not fields[0].pattern


@dataclass(slots=True)
class _Part:
    """One clause of a boolean with its mark: must, should or must_not."""

    clause: Clause
    mark: str


class _Reader:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[Token], manner: Manner) -> None:
        self.tokens = tokens
        self.manner = manner
        self.position = 0

    def kind(self, ahead: int = 0) -> str:
        at = self.position + ahead
        return self.tokens[at].kind if at < len(self.tokens) else "end"

    def next(self) -> Token:
        self.position += 1
        return self.tokens[self.position - 1]

    def take(self, kind: str) -> bool:
        if self.kind() != kind:
            return False
        self.position += 1
        return True

    def whole(self) -> Clause:
        if self.kind() == "end":
            return MatchNone()
        clause = self.query(self.manner.fields, 0)
        if self.kind() != "end":
            raise self.manner.wrong(f"unexpected '{self.next().text}'")
        return clause or MatchNone()

    def query(self, fields: Fields, depth: int) -> Clause | None:
        """Clauses up to the end or a closing parenthesis; None when analysis leaves nothing."""
        if depth > MAX_NESTING:
            raise self.manner.wrong(f"nested deeper than {MAX_NESTING}")
        parts: list[_Part] = []
        first = True
        while first or self.kind() not in ("end", ")"):
            conjunction = "" if first else self.conjunction()
            modifier = self.modifier()
            plain = not conjunction and not modifier
            for clause in self.clauses(fields, depth, several=plain):
                self.add(parts, clause, conjunction, modifier)
            first = False
        return _joined(parts)

    def conjunction(self) -> str:
        return self.next().kind if self.kind() in ("and", "or") else ""

    def modifier(self) -> str:
        return self.next().kind if self.kind() in ("+", "-", "not") else ""

    def add(self, parts: list[_Part], clause: Clause, conjunction: str, modifier: str) -> None:
        """Mark the clause, and the one before it where the conjunction binds that too."""
        every = self.manner.every
        if parts and parts[-1].mark != "must_not":
            if conjunction == "and":
                parts[-1].mark = "must"
            elif conjunction == "or" and every:
                parts[-1].mark = "should"
        if modifier in ("-", "not"):
            mark = "must_not"
        elif every:
            mark = "should" if conjunction == "or" else "must"
        else:
            mark = "must" if modifier == "+" or conjunction == "and" else "should"
        parts.append(_Part(clause, mark))

    def clauses(self, fields: Fields, depth: int, *, several: bool) -> list[Clause]:
        """The next clause; words side by side make one, or one each for a single field."""
        if several and self.kind() == "word" and self.run() > 1:
            taken = [self.next().text for _ in range(self.run())]
            texts = taken if _single(fields) else [" ".join(taken)]
            return [clause for text in texts for clause in words(self.manner, fields, text)]
        clause = self.clause(fields, depth)
        return [clause] if clause is not None else []

    def run(self) -> int:
        """How many plain words stand side by side from here."""
        count = 0
        while self.kind(count) == "word" and self.kind(count + 1) not in (":", "~", "^"):
            count += 1
        return count

    def clause(self, fields: Fields, depth: int) -> Clause | None:
        if self.kind() in ("word", "wildcard") and self.kind(1) == ":":
            name, _ = self.next(), self.next()
            if (
                name.text == "*"
                and self.kind() == "wildcard"
                and self.tokens[self.position].text == "*"
            ):
                self.next()
                return MatchAll()
            if name.text == "_exists_":
                return self.exists()
            fields = (self.named(name),)
        if self.take("("):
            inner = self.query(fields, depth + 1)
            if not self.take(")"):
                raise self.manner.wrong("a parenthesis is not closed")
            self.take("^")
            return inner
        return self.leaf(fields)

    def named(self, token: Token) -> Field:
        return field_named(unescaped(token.text), self.manner.pointer, pattern=True)

    def exists(self) -> Clause:
        if self.kind() not in ("word", "wildcard", "phrase"):
            raise self.manner.wrong("'_exists_:' needs a field")
        return Exists((self.named(self.next()),))

    def leaf(self, fields: Fields) -> Clause | None:
        kind = self.kind()
        if kind not in ("word", "wildcard", "phrase", "regexp", "range"):
            raise self.manner.wrong("unexpected end" if kind == "end" else f"unexpected '{kind}'")
        token = self.next()
        tilde = self.next().text if self.kind() == "~" else None
        self.take("^")
        if kind == "word":
            return word(self.manner, fields, token.text, tilde)
        if kind == "phrase":
            return phrase(self.manner, fields, token.text, tilde)
        if kind == "regexp":
            clause = Regexp(fields, token.text, frozenset(OPERATORS.values()), folded=True)
            return checked_regexp(clause, self.manner.pointer)
        if kind == "range":
            return between(fields, token)
        return wildcard(self.manner, fields, token.text)


def _joined(parts: list[_Part]) -> Clause | None:
    if not parts:
        return None
    if len(parts) == 1 and parts[0].mark != "must_not":
        return parts[0].clause
    marked = {mark: tuple(p.clause for p in parts if p.mark == mark) for mark in MARKS}
    return Bool(must=marked["must"], should=marked["should"], must_not=marked["must_not"])


MARKS = ("must", "should", "must_not")
