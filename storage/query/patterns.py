"""Lucene's patterns as expressions for a linear-time engine: wildcards and regular expressions.

Lucene's regular expressions match from end to end, know no anchors and take some characters as
operators that others do not. What has no counterpart in a linear engine (complement, intersection,
numeric interval) is refused while it is in force.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol

import re2

OPERATORS = {
    "COMPLEMENT": "~",
    "INTERSECTION": "&",
    "INTERVAL": "<",
    "AUTOMATON": "<",
    "EMPTY": "#",
    "ANYSTRING": "@",
}
"""Lucene's optional operators by the name of their flag."""

UNSUPPORTED = {"~": "complement", "&": "intersection", "<": "numeric interval"}
CLASSES = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "s": r"[ \t\n\r]",
    "S": r"[^ \t\n\r]",
    "w": "[a-zA-Z_0-9]",
    "W": "[^a-zA-Z_0-9]",
}
MAX_NESTING = 50


MOST_MEMORY, MEMORY = 8 << 20, 1 << 20
"""Bytes that the engine may take for one expression; the most only for what needs them."""
_TRIED_BY_ONE = 1024
"""Instructions that the engine tries on a character in about a microsecond, where it has to."""


class _Compiled(Protocol):
    programsize: int

    def fullmatch(self, text: str) -> object: ...


@lru_cache(maxsize=4096)
def matcher(expression: str) -> Callable[[str], bool]:
    """Whether a text fits an RE2 expression from end to end; ValueError if it is not one."""
    compiled = compiled_re2(expression)
    return lambda text: compiled.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def pricing(expression: str) -> Callable[[str], int]:
    """About how many microseconds, at worst, it takes to tell whether a text fits."""
    instructions = compiled_re2(expression).programsize
    return lambda text: len(text) * instructions // _TRIED_BY_ONE


def compiled_re2(expression: str) -> _Compiled:
    """The expression compiled, `.` standing for line ends too."""
    try:
        return _compiled(expression, MEMORY)
    except ValueError:
        return _compiled(expression, MOST_MEMORY)


def _compiled(expression: str, memory: int) -> _Compiled:
    options = re2.Options()
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = memory
    try:
        compiled: _Compiled = re2.compile(expression, options)
    except re2.error as error:
        raise ValueError(f"too complex or malformed: {_said(error)}") from error
    return compiled


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def wildcard_pieces(pattern: str) -> Iterator[tuple[str, bool]]:
    """Characters of a wildcard pattern, each with whether it is an operator."""
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
    """A wildcard pattern as an RE2 expression."""
    return "".join(
        {"*": ".*", "?": "."}[character] if special else literal(character, case_insensitive)
        for character, special in wildcard_pieces(pattern)
    )


def wildcard_verbatim(text: str) -> str:
    """The pattern that only this text fits."""
    return "".join("\\" + character if character in "\\*?" else character for character in text)


def wildcard_prefix(pattern: str) -> str:
    """The characters that whatever fits the pattern begins with."""
    prefix = []
    for character, special in wildcard_pieces(pattern):
        if special:
            break
        prefix.append(character)
    return "".join(prefix)


def literal(character: str, case_insensitive: bool = False) -> str:
    """One character as itself; an ASCII letter in either case where case does not matter."""
    if case_insensitive and character.isascii() and character.isalpha():
        return f"[{character.lower()}{character.upper()}]"
    if character.isalnum() and character.isascii():
        return character
    return rf"\x{{{ord(character):x}}}"


def regexp_to_re2(
    pattern: str, operators: frozenset[str], *, case_insensitive: bool = False
) -> str:
    """A Lucene regular expression as an RE2 one; ValueError says what is wrong with it."""
    if not pattern:
        return ""
    reader = _Reader(pattern, operators, case_insensitive)
    expression = reader.union(0)
    if reader.more():
        raise ValueError(f"end of expression expected at position {reader.position}")
    matcher(expression)
    return expression


class _Reader:
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
        """Take an optional operator if it is next and in force; refuse one without counterpart."""
        if character not in self.operators or not self.peek(character):
            return False
        if character in UNSUPPORTED:
            raise ValueError(f"{UNSUPPORTED[character]} ('{character}') is not supported")
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
            return self.quoted()
        if self.take("("):
            return self.group(depth)
        return self.predefined() or literal(self.character(), self.case_insensitive)

    def quoted(self) -> str:
        end = self.pattern.find('"', self.position)
        if end < 0:
            raise ValueError("expected '\"'")
        text, self.position = self.pattern[self.position : end], end + 1
        return f"(?:{''.join(literal(each, self.case_insensitive) for each in text)})"

    def group(self, depth: int) -> str:
        if self.take(")"):
            return "(?:)"
        expression = self.union(depth + 1)
        if not self.take(")"):
            raise ValueError("expected ')'")
        return f"(?:{expression})"

    def predefined(self) -> str:
        name = self.pattern[self.position : self.position + 2]
        if len(name) < 2 or name[0] != "\\" or name[1] not in CLASSES:
            return ""
        self.position += 2
        return CLASSES[name[1]]

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
        return f"[^{''.join(_inside_class(member) for member in members)}]"

    def class_member(self) -> str:
        predefined = self.predefined()
        if predefined:
            return predefined
        first = self.character()
        if not self.take("-"):
            return f"[{_both_cases(first) if self.case_insensitive else _point(first)}]"
        last = self.character()
        if first > last:
            raise ValueError("a character range ends before it begins")
        return f"[{_point(first)}-{_point(last)}]"


def _point(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


def _both_cases(character: str) -> str:
    if character.isascii() and character.isalpha():
        return _point(character.lower()) + _point(character.upper())
    return _point(character)


def _inside_class(member: str) -> str:
    """A member without its own brackets; the complement of one has no place in a negated class."""
    if member.startswith("[^"):
        raise ValueError("a negated class cannot hold a negated class")
    return member[1:-1]
