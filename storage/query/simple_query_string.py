"""`simple_query_string`: words, "phrases", prefix*, fuzzy~1, + | - ( ); no text is refused."""

from dataclasses import dataclass, field
from functools import cached_property

from storage.query.clauses import (
    Bool,
    Clause,
    Fields,
    Fuzziness,
    Fuzzy,
    Match,
    MatchNone,
    MatchPhrase,
    Prefix,
)
from storage.query.full_text import fields_of, no_words
from storage.query.node import MAX_EDITS, Node
from storage.query.query_string import with_minimum

FLAGS = frozenset(
    [
        "AND",
        "OR",
        "NOT",
        "PREFIX",
        "PHRASE",
        "PRECEDENCE",
        "ESCAPE",
        "WHITESPACE",
        "FUZZY",
        "NEAR",
        "SLOP",
    ]
)
PARAMETERS = (
    "query",
    "fields",
    "flags",
    "default_operator",
    "fuzzy_prefix_length",
    "fuzzy_transpositions",
    "lenient",
    "minimum_should_match",
    "auto_generate_synonyms_phrase_query",
)
# Deeper parentheses are read as blanks, so that the clauses stay within their depth.
MAX_NESTING = 16


def parse_simple_query_string(node: Node) -> Clause:
    """`simple_query_string`."""
    node.only(*PARAMETERS)
    node.flag("lenient", True)
    node.flag("auto_generate_synonyms_phrase_query", True)
    reader = _Reader(
        node.scalar("query"),
        fields_of(node),
        _flags(node),
        node.choice("default_operator", ("or", "and"), "or"),
        node.count("fuzzy_prefix_length", 0),
        node.flag("fuzzy_transpositions", True),
    )
    clause = reader.read(0, len(reader.text), 0)
    return with_minimum(clause or MatchNone(), node.minimum())


def _flags(node: Node) -> frozenset[str]:
    value = node.text("flags", "ALL") if not isinstance(node.body.get("flags"), int) else "ALL"
    names = {name.strip() for name in value.upper().split("|")} - {""}
    unknown = sorted(names - FLAGS - {"ALL", "NONE"})
    if unknown:
        raise node.error("flags", f"has no flag '{unknown[0]}'")
    return FLAGS if "ALL" in names else frozenset(names - {"NONE"})


@dataclass(slots=True)
class _Tree:
    """What was read so far: parts joined by one operation, which a change of operation encloses."""

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
            branch = Bool(must_not=(clause,)) if self.negations % 2 else clause
            operation = self.pending or self.default
            if len(self.parts) > 1 and operation != self.joined_by:
                self.parts = [_join(self.parts, self.joined_by)]
            if self.parts:
                self.joined_by = operation
            self.parts.append(branch)
        self.pending = ""

    def clause(self) -> Clause | None:
        if len(self.parts) < 2:
            return self.parts[0] if self.parts else None
        return _join(self.parts, self.joined_by)


def _join(parts: list[Clause], operation: str) -> Clause:
    return Bool(must=tuple(parts)) if operation == "and" else Bool(should=tuple(parts))


@dataclass(frozen=True)
class _Reader:
    text: str
    fields: Fields
    flags: frozenset[str]
    default: str
    prefix_length: int
    transpositions: bool

    def read(self, start: int, end: int, depth: int) -> Clause | None:
        """The clauses between two positions."""
        tree = _Tree(self.default)
        position = start
        while position < end:
            if self.is_sign(position, "-"):
                tree.negations += 1
                position += 1
                continue
            position = self.step(tree, position, end, depth)
            tree.negations = 0
        return tree.clause()

    def step(self, tree: _Tree, position: int, end: int, depth: int) -> int:
        """Read one sign, phrase, group or word; answer where the next begins."""
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
        return self.text[position] == sign and SIGNS[sign] in self.flags

    def is_blank(self, position: int) -> bool:
        return self.text[position] in " \t\n\r" and "WHITESPACE" in self.flags

    def ends_word(self, position: int) -> bool:
        return self.is_blank(position) or any(self.is_sign(position, sign) for sign in '"|+()')

    def group(self, tree: _Tree, position: int, end: int, depth: int) -> int:
        close = self.closings.get(position, end)
        if close >= end or depth >= MAX_NESTING:
            return position + 1
        tree.add(self.read(position + 1, close, depth + 1))
        return close + 1

    @cached_property
    def closings(self) -> dict[int, int]:
        """Where each group closes, of those that do: found at once, for looking ahead from every
        parenthesis takes a minute when there is nothing else."""
        found: dict[int, int] = {}
        opened: list[list[int]] = [[]]
        escaped = False
        for at in range(len(self.text)):
            if self.is_sign(at, "(") and escaped:
                # Behind `~` the reader takes it for a sign: it closes with what is around it.
                opened[-1].append(at)
            elif self.is_sign(at, "("):
                opened.append([at])
            elif self.is_sign(at, ")") and not escaped:
                found.update(dict.fromkeys(opened.pop(), at))
                opened = opened or [[]]
            escaped = not escaped and self.is_sign(at, "\\")
        return found

    def phrase(self, tree: _Tree, position: int, end: int) -> int:
        close = position + 1
        while close < end and not self.is_sign(close, '"'):
            close += 2 if self.is_sign(close, "\\") else 1
        if close >= end:
            return position + 1
        text = self.unescaped(self.text[position + 1 : close])
        slop, after = self.number(close + 1, end, "NEAR")
        if self.keeps(text):
            tree.add(MatchPhrase(self.fields, text, slop or 0))
        return after

    def number(self, position: int, end: int, flag: str) -> tuple[int | None, int]:
        """What `~` says at this position, up to the end of the word; None without a tilde."""
        if position >= end or self.text[position] != "~" or flag not in self.flags:
            return None, position
        after = position + 1
        while after < end and not self.ends_word(after):
            after += 1
        digits = self.text[position + 1 : after]
        if not digits:
            return MAX_EDITS, after
        return (int(digits[:9]) if digits.isdecimal() else 0), after

    def word(self, tree: _Tree, position: int, end: int) -> int:
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
            return Fuzzy(
                self.fields, text, fuzziness, self.prefix_length, self.transpositions, folded=True
            )
        if prefix and edits is None:
            return Prefix(self.fields, text[:-1], folded=True)
        if not self.keeps(text):
            return None
        return Match(self.fields, text, every=self.default == "and")

    def keeps(self, text: str) -> bool:
        return bool(text) and (
            not no_words(self.fields, text) or any(name.pattern for name in self.fields)
        )

    def unescaped(self, text: str) -> str:
        if "ESCAPE" not in self.flags:
            return text
        parts, escaped = [], False
        for character in text:
            escaped = character == "\\" and not escaped
            if not escaped:
                parts.append(character)
        return "".join(parts)


SIGNS = {
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
