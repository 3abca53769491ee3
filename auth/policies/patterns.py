"""Texts of a policy: read into tokens, and variables put in as literal text.

`${*}`, `${?}` and `${$}` are these characters themselves; `${store:groups, 'none'}` has a value for
those that have no group.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from auth.policies.globs import COLON, Token, Wild
from auth.policies.keys import LISTS, VARIABLES
from auth.policies.limits import MAX_STARS

Value = str | int | float | bool | tuple[str, ...]
"""Of a variable or a key of the context."""

_PIECE = re.compile(
    r"""\$\{(?P<name>[^}',]*)(?:,\s*'(?P<default>[^}']*)')?\}|(?P<wild>[*?])|(?P<open>\$\{)"""
)
_ESCAPED = ("*", "?", "$")


class Fault(Exception):
    """The text cannot be used; says why."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A place where a value of the principal goes."""

    name: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with its wildcards and variables."""

    tokens: tuple[Token | Variable, ...]

    @property
    def plain(self) -> tuple[Token, ...]:
        """The tokens but for variables."""
        return tuple(token for token in self.tokens if not isinstance(token, Variable))

    def resolve(self, variables: Mapping[str, Value]) -> Iterator[tuple[Token, ...]]:
        """The tokens with each value of the variables; none when one of them has no value."""
        return itertools.product(*(_choices(token, variables) for token in self.tokens))

    def split(self, separator: str, most: int) -> "tuple[Pattern, ...]":
        """Its parts, at most so many; what a variable stands for is never parted."""
        parts: list[list[Token | Variable]] = [[]]
        for token in self.tokens:
            if not isinstance(token, str):
                parts[-1].append(token)
                continue
            head, *others = token.split(separator, most - len(parts))
            parts[-1].append(head)
            parts += [[other] for other in others]
        return tuple(Pattern(tuple(token for token in part if token != "")) for part in parts)


def read(text: str, *, wild: bool, variables: bool) -> Pattern:
    """The pattern; Fault when it is none. Without `wild` a star is a star."""
    tokens: list[Token | Variable] = []
    end = 0
    for found in _PIECE.finditer(text):
        tokens += [text[end : found.start()], _token(found, wild)]
        end = found.end()
    tokens.append(text[end:])
    pattern = Pattern(tuple(token for token in tokens if token != ""))
    _check(pattern, variables)
    return pattern


def in_segments(pattern: Pattern) -> Pattern:
    """The pattern with the meaning that AWS gives wildcards in ARNs: a `*` at the end of a segment
    matches beyond the colon, any other `*` or `?` stays within its segment."""
    following = [*pattern.tokens[1:], COLON]
    return Pattern(tuple(map(_in_segment, pattern.tokens, following)))


def _in_segment(token: Token | Variable, following: Token | Variable) -> Token | Variable:
    if token is Wild.ONE:
        return Wild.ONE_IN_SEGMENT
    at_end = isinstance(following, str) and following.startswith(COLON)
    return Wild.ANY_IN_SEGMENT if token is Wild.ANY and not at_end else token


def values(value: Value | None) -> tuple[str | int | float | bool, ...]:
    """One value or many, as many; nothing for what is not there."""
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def text_of(value: str | int | float | bool) -> str:
    """A value as policies spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _token(found: re.Match[str], wild: bool) -> Token | Variable:
    if found["wild"]:
        return Wild(found["wild"]) if wild else found["wild"]
    if found["open"]:
        raise Fault("has a `${` that no `}` ends; `${$}` is a dollar")
    name = found["name"].strip()
    if name in _ESCAPED and found["default"] is None:
        return name
    if name.lower() not in VARIABLES:
        raise Fault(f"names an unknown variable; there are {', '.join(VARIABLES)}")
    return Variable(name.lower(), found["default"])


def _check(pattern: Pattern, variables: bool) -> None:
    named = [token for token in pattern.tokens if isinstance(token, Variable)]
    if pattern.tokens.count(Wild.ANY) > MAX_STARS:
        raise Fault(f"has more than {MAX_STARS} `*`")
    if named and not variables:
        raise Fault("uses variables, which Version 2008-10-17 does not know")
    if sum(variable.name in LISTS for variable in named) > 1:
        raise Fault("may name a variable of many values once only")


def _choices(token: Token | Variable, variables: Mapping[str, Value]) -> tuple[Token, ...]:
    if not isinstance(token, Variable):
        return (token,)
    found = tuple(text_of(value) for value in values(variables.get(token.name)))
    return found or (() if token.default is None else (token.default,))
