"""Translate Lucene wildcards and regular expressions to RE2.

Lucene's expressions match from end to end, have no anchors, and use some operators that RE2 lacks.
Those without a linear counterpart (complement, intersection, numeric interval) are rejected where
their flags enable them.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol

import re2

REGEXP_OPERATORS = {
    "COMPLEMENT": "~",
    "INTERSECTION": "&",
    "INTERVAL": "<",
    "AUTOMATON": "<",
    "EMPTY": "#",
    "ANYSTRING": "@",
}
"""Lucene's optional operators by the name of their flag."""

UNSUPPORTED_OPERATORS = {"~": "complement", "&": "intersection", "<": "numeric interval"}
PREDEFINED_CLASSES = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "s": r"[ \t\n\r]",
    "S": r"[^ \t\n\r]",
    "w": "[a-zA-Z_0-9]",
    "W": "[^a-zA-Z_0-9]",
}
MAX_NESTING = 50


MAX_RE2_MEMORY, DEFAULT_RE2_MEMORY = 8 << 20, 1 << 20
"""Bytes of memory for one expression; the larger limit only for those that need it."""
_INSTRUCTIONS_PER_US = 1024
"""Instructions that RE2 tries on a character in about a microsecond, at worst."""


class _CompiledRe2(Protocol):
    programsize: int

    def fullmatch(self, text: str) -> object: ...


@lru_cache(maxsize=4096)
def make_matcher(expression: str) -> Callable[[str], bool]:
    """Return a function that matches a whole text with RE2; ValueError if malformed."""
    compiled = compile_re2(expression)
    return lambda text: compiled.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def make_cost_estimate(expression: str) -> Callable[[str], int]:
    """Return a function that estimates the microseconds of a match, at worst."""
    instructions = compile_re2(expression).programsize
    return lambda text: len(text) * instructions // _INSTRUCTIONS_PER_US


def compile_re2(expression: str) -> _CompiledRe2:
    """Compile an expression; `.` matches line ends, too."""
    options = re2.Options()
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    for memory in (DEFAULT_RE2_MEMORY, MAX_RE2_MEMORY):
        options.max_mem = memory
        try:
            compiled: _CompiledRe2 = re2.compile(expression, options)
        except re2.error as error:
            failure = error
        else:
            return compiled
    message = failure.args[0] if failure.args else ""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    raise ValueError(f"too complex or malformed: {text}") from failure


def parse_wildcard_pattern(pattern: str) -> Iterator[tuple[str, bool]]:
    """Iterate over a wildcard pattern's characters, each with whether it is an operator."""
    escaped = False
    for character in pattern:
        if escaped or character not in "\\*?":
            yield character, False
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            yield character, True
    if escaped:
        yield "\\", False


def wildcard_to_re2(pattern: str, *, case_insensitive: bool = False) -> str:
    """Return a wildcard pattern as an RE2 expression."""
    return "".join(
        {"*": ".*", "?": "."}[character]
        if special
        else escape_character(character, case_insensitive)
        for character, special in parse_wildcard_pattern(pattern)
    )


def escape_wildcard(text: str) -> str:
    """Return the pattern that matches only this text."""
    return "".join("\\" + character if character in "\\*?" else character for character in text)


def wildcard_prefix(pattern: str) -> str:
    """Return the literal prefix of a wildcard pattern."""
    prefix = []
    for character, special in parse_wildcard_pattern(pattern):
        if special:
            break
        prefix.append(character)
    return "".join(prefix)


def escape_character(character: str, case_insensitive: bool = False) -> str:
    """Return a literal character; an ASCII letter in both cases if case does not matter."""
    if case_insensitive and character.isascii() and character.isalpha():
        return f"[{character.lower()}{character.upper()}]"
    if character.isalnum() and character.isascii():
        return character
    return escape_code_point(character)


def escape_code_point(character: str) -> str:
    """Return a character as an RE2 escape."""
    return rf"\x{{{ord(character):x}}}"


def regexp_to_re2(
    pattern: str, operators: frozenset[str], *, case_insensitive: bool = False
) -> str:
    """Return a Lucene regular expression as an RE2 one; ValueError says what is wrong with it."""
    if not pattern:
        return ""
    reader = _RegexpParser(pattern, operators, case_insensitive)
    expression = reader.union(0)
    if reader.more():
        raise ValueError(f"end of expression expected at position {reader.position}")
    make_matcher(expression)
    return expression


class _RegexpParser:
    """Recursive descent over Lucene's grammar: union, sequence, repetition, simple expression."""

    def __init__(self, pattern: str, operators: frozenset[str], case_insensitive: bool) -> None:
        self.pattern = pattern
        self.operators = operators
        self.case_insensitive = case_insensitive
        self.position = 0

    def more(self) -> bool:
        return self.position < len(self.pattern)

    def peek(self, characters: str) -> bool:
        return self.more() and self.pattern[self.position] in characters

    def take(self, character: str) -> bool:
        if not self.peek(character):
            return False
        self.position += 1
        return True

    def next(self) -> str:
        if not self.more():
            raise ValueError("unexpected end")
        self.position += 1
        return self.pattern[self.position - 1]

    def operator(self, character: str) -> bool:
        """Read an optional operator if it is next and enabled; ValueError for unsupported ones."""
        if character not in self.operators or not self.peek(character):
            return False
        if character in UNSUPPORTED_OPERATORS:
            raise ValueError(f"{UNSUPPORTED_OPERATORS[character]} ('{character}') is not supported")
        return self.take(character)

    def union(self, depth: int) -> str:
        if depth > MAX_NESTING:
            raise ValueError(f"nested deeper than {MAX_NESTING}")
        choices = [self.sequence(depth)]
        while self.take("|"):
            choices.append(self.sequence(depth))
        return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"

    def sequence(self, depth: int) -> str:
        parts = [self.repetition(depth)]
        while self.more() and not self.peek(")|"):
            self.operator("&")
            parts.append(self.repetition(depth))
        return "".join(parts)

    def repetition(self, depth: int) -> str:
        expression = self.simple(depth)
        while self.peek("?*+{"):
            sign = self.next()
            expression = f"(?:{expression}){sign if sign != '{' else self.counts()}"
        return expression

    def counts(self) -> str:
        least = most = self.integer()
        if self.take(","):
            most = "" if self.peek("}") else self.integer()
        if not self.take("}"):
            raise ValueError(f"expected '}}' at position {self.position}")
        if most and int(most) < int(least):
            raise ValueError("a repetition's maximum is below its minimum")
        return f"{{{least},{most}}}"

    def integer(self) -> str:
        start = self.position
        while self.peek("0123456789"):
            self.position += 1
        if start == self.position:
            raise ValueError(f"integer expected at position {start}")
        return str(int(self.pattern[start : self.position][:9]))

    def simple(self, depth: int) -> str:
        self.operator("~")
        self.operator("<")
        if self.take("["):
            return self.character_class()
        if self.take("."):
            return "."
        if self.operator("@"):
            return ".*"
        if self.operator("#"):
            return r"[^\x{0}-\x{10FFFF}]"
        if self.take('"'):
            return self.quotation()
        if self.take("("):
            return self.group(depth)
        return self.predefined_class() or escape_character(self.character(), self.case_insensitive)

    def quotation(self) -> str:
        end = self.pattern.find('"', self.position)
        if end < 0:
            raise ValueError("expected '\"'")
        text, self.position = self.pattern[self.position : end], end + 1
        return f"(?:{''.join(escape_character(each, self.case_insensitive) for each in text)})"

    def group(self, depth: int) -> str:
        if self.take(")"):
            return "(?:)"
        expression = self.union(depth + 1)
        if not self.take(")"):
            raise ValueError("expected ')'")
        return f"(?:{expression})"

    def predefined_class(self) -> str:
        name = self.pattern[self.position : self.position + 2]
        if len(name) < 2 or name[0] != "\\" or name[1] not in PREDEFINED_CLASSES:
            return ""
        self.position += 2
        return PREDEFINED_CLASSES[name[1]]

    def character(self) -> str:
        self.take("\\")
        return self.next()

    def character_class(self) -> str:
        negated = self.take("^")
        members = [self.class_member()]
        while self.more() and not self.peek("]"):
            members.append(self.class_member())
        if not self.take("]"):
            raise ValueError("expected ']'")
        if not negated:
            return f"(?:{'|'.join(members)})"
        return f"[^{''.join(_strip_class_brackets(member) for member in members)}]"

    def class_member(self) -> str:
        shorthand = self.predefined_class()
        if shorthand:
            return shorthand
        first = self.character()
        if not self.take("-"):
            is_letter = first.isascii() and first.isalpha()
            cases = first.lower() + first.upper() if self.case_insensitive and is_letter else first
            return f"[{''.join(map(escape_code_point, cases))}]"
        last = self.character()
        if first > last:
            raise ValueError("a character range ends before it begins")
        return f"[{escape_code_point(first)}-{escape_code_point(last)}]"


def _strip_class_brackets(member: str) -> str:
    """Return a class member without its brackets; ValueError for a negated one."""
    if member.startswith("[^"):
        raise ValueError("a negated class cannot hold a negated class")
    return member[1:-1]
