"""Parse simple_query_string, which rejects no text."""

import re
from dataclasses import dataclass, field
from functools import cached_property

from storage.search.grammar.clauses import (
    BoolClause,
    Clause,
    Fuzziness,
    FuzzyClause,
    MatchClause,
    MatchNoneClause,
    MatchPhraseClause,
    PrefixClause,
    QueryFields,
)
from storage.search.grammar.leaf_clauses import drops_text, parse_fields
from storage.search.grammar.parameters import MAX_EDITS, ClauseNode
from storage.search.grammar.query_string import apply_minimum

SIGN_FLAGS = {
    "(": "PRECEDENCE",
    ")": "PRECEDENCE",
    '"': "PHRASE",
    "+": "AND",
    "|": "OR",
    "-": "NOT",
    "\\": "ESCAPE",
    "*": "PREFIX",
    "~": "FUZZY",
}
SIMPLE_FLAGS = frozenset([*SIGN_FLAGS.values(), "WHITESPACE", "NEAR", "SLOP"])
SIMPLE_PARAMETERS = (
    "query fields flags default_operator fuzzy_prefix_length fuzzy_transpositions lenient"
    " minimum_should_match auto_generate_synonyms_phrase_query"
)
ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
# Deeper parentheses are read as blanks, which bounds the depth of clauses.
MAX_NESTING = 16


def parse_simple_query_string(node: ClauseNode) -> Clause:
    """Parse `simple_query_string`."""
    node.check_parameters(SIMPLE_PARAMETERS)
    node.flag("lenient", True)
    node.flag("auto_generate_synonyms_phrase_query", True)
    reader = _SimpleQueryParser(
        node.scalar("query"),
        parse_fields(node),
        _parse_flags(node),
        node.choice("default_operator", ("or", "and"), "or"),
        node.count("fuzzy_prefix_length", 0),
        node.flag("fuzzy_transpositions", True),
    )
    clause = reader.read(0, len(reader.text), 0)
    return apply_minimum(clause or MatchNoneClause(), node.minimum())


def _parse_flags(node: ClauseNode) -> frozenset[str]:
    value = node.text("flags", "ALL") if not isinstance(node.body.get("flags"), int) else "ALL"
    names = {name.strip() for name in value.upper().split("|")} - {""}
    unknown = sorted(names - SIMPLE_FLAGS - {"ALL", "NONE"})
    if unknown:
        raise node.error("flags", f"has no flag '{unknown[0]}'")
    return SIMPLE_FLAGS if "ALL" in names else frozenset(names - {"NONE"})


@dataclass(slots=True)
class _ClauseTree:
    """Clauses joined by one operation; another operation wraps them."""

    default: str
    parts: list[Clause] = field(default_factory=list)
    joined_by: str = ""
    pending: str = ""
    negations: int = 0

    def operation(self, name: str) -> None:
        if self.parts and not self.pending:
            self.pending = name

    def add(self, clause: Clause | None) -> None:
        if clause is not None:
            branch = BoolClause(must_not=(clause,)) if self.negations % 2 else clause
            operation = self.pending or self.default
            if len(self.parts) > 1 and operation != self.joined_by:
                self.parts = [_join_clauses(self.parts, self.joined_by)]
            if self.parts:
                self.joined_by = operation
            self.parts.append(branch)
        self.pending = ""

    def clause(self) -> Clause | None:
        if len(self.parts) < 2:
            return self.parts[0] if self.parts else None
        return _join_clauses(self.parts, self.joined_by)


def _join_clauses(parts: list[Clause], operation: str) -> Clause:
    return BoolClause(must=tuple(parts)) if operation == "and" else BoolClause(should=tuple(parts))


@dataclass(frozen=True)
class _SimpleQueryParser:
    text: str
    fields: QueryFields
    flags: frozenset[str]
    default: str
    prefix_length: int
    transpositions: bool

    def read(self, start: int, end: int, depth: int) -> Clause | None:
        """Parse the clauses between two positions."""
        tree = _ClauseTree(self.default)
        position = start
        while position < end:
            if self.is_sign(position, "-"):
                tree.negations += 1
                position += 1
                continue
            position = self.step(tree, position, end, depth)
            tree.negations = 0
        return tree.clause()

    def step(self, tree: _ClauseTree, position: int, end: int, depth: int) -> int:
        """Parse one sign, phrase, group or word; return the position after it."""
        if self.is_sign(position, "("):
            return self.group(tree, position, end, depth)
        if self.is_sign(position, '"'):
            return self.phrase(tree, position, end)
        if self.is_sign(position, "+"):
            tree.operation("and")
        elif self.is_sign(position, "|"):
            tree.operation("or")
        elif not self.is_blank(position) and not self.is_sign(position, ")"):
            return self.word(tree, position, end)
        return position + 1

    def is_sign(self, position: int, sign: str) -> bool:
        return self.text[position] == sign and SIGN_FLAGS[sign] in self.flags

    def is_blank(self, position: int) -> bool:
        return self.text[position] in " \t\n\r" and "WHITESPACE" in self.flags

    def ends_word(self, position: int) -> bool:
        return self.is_blank(position) or any(self.is_sign(position, sign) for sign in '"|+()')

    def group(self, tree: _ClauseTree, position: int, end: int, depth: int) -> int:
        close = self.group_ends.get(position, end)
        if close >= end or depth >= MAX_NESTING:
            return position + 1
        tree.add(self.read(position + 1, close, depth + 1))
        return close + 1

    @cached_property
    def group_ends(self) -> dict[int, int]:
        """Positions at which groups close.

        Found in one pass: looking ahead from every parenthesis is quadratic.
        """
        found: dict[int, int] = {}
        opened: list[list[int]] = [[]]
        escaped = False
        for at in range(len(self.text)):
            if self.is_sign(at, "(") and escaped:
                # After `~` the parser reads it as a sign: it closes with the enclosing group.
                opened[-1].append(at)
            elif self.is_sign(at, "("):
                opened.append([at])
            elif self.is_sign(at, ")") and not escaped:
                found.update(dict.fromkeys(opened.pop(), at))
                opened = opened or [[]]
            escaped = not escaped and self.is_sign(at, "\\")
        return found

    def phrase(self, tree: _ClauseTree, position: int, end: int) -> int:
        close = position + 1
        while close < end and not self.is_sign(close, '"'):
            close += 2 if self.is_sign(close, "\\") else 1
        if close >= end:
            return position + 1
        text = self.unescape(self.text[position + 1 : close])
        slop, after = self.number(close + 1, end, "NEAR")
        if self.has_words(text):
            tree.add(MatchPhraseClause(self.fields, text, slop or 0))
        return after

    def number(self, position: int, end: int, flag: str) -> tuple[int | None, int]:
        """Parse the number after `~`, up to the end of the word; None without a tilde."""
        if position >= end or self.text[position] != "~" or flag not in self.flags:
            return None, position
        after = position + 1
        while after < end and not self.ends_word(after):
            after += 1
        digits = self.text[position + 1 : after]
        if not digits:
            return MAX_EDITS, after
        return (int(digits[:9]) if digits.isdecimal() else 0), after

    def word(self, tree: _ClauseTree, position: int, end: int) -> int:
        at, escaped, prefix, characters = position, False, False, list[str]()
        while at < end:
            if not escaped:
                if self.is_sign(at, "\\"):
                    escaped, prefix, at = True, False, at + 1
                    continue
                if self.ends_word(at) or (characters and self.is_sign(at, "~")):
                    break
                prefix = bool(characters) and self.is_sign(at, "*")
            escaped = False
            characters.append(self.text[at])
            at += 1
        edits, after = self.number(at, end, "FUZZY")
        if characters:
            tree.add(self.leaf("".join(characters), edits, prefix))
        return after

    def leaf(self, text: str, edits: int | None, prefix: bool) -> Clause | None:
        if edits:
            fuzziness = Fuzziness(min(edits, MAX_EDITS))
            return FuzzyClause(
                self.fields, text, fuzziness, self.prefix_length, self.transpositions, folded=True
            )
        if prefix and edits is None:
            return PrefixClause(self.fields, text[:-1], folded=True)
        if not self.has_words(text):
            return None
        return MatchClause(self.fields, text, match_every=self.default == "and")

    def has_words(self, text: str) -> bool:
        return bool(text) and not drops_text(self.fields, text)

    def unescape(self, text: str) -> str:
        return ESCAPED.sub(r"\1", text) if "ESCAPE" in self.flags else text
