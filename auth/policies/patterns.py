"""Policy patterns: wildcards matched in linear time, variables, and size limits.

The literal runs between stars are searched from left to right, each once: the leftmost match
leaves the most text for later runs, so there is no backtracking. If wildcards must not match
colons, `SegmentAutomaton` checks a match again.

`${*}`, `${?}` and `${$}` are escapes of these characters; `${store:groups, 'none'}` has a
default for principals without groups.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from auth.policies.keys import LIST_VARIABLES, VARIABLES

MAX_POLICY_BYTES = 10 * 1024
"""Interface 5: size of a document as compact JSON."""
MAX_POLICY_DEPTH = 8
"""Nesting depth; a valid document has five levels."""
MAX_STATEMENTS = 100
MAX_STARS = 20
"""In one pattern."""
MAX_ITEMS = 200
"""Actions, resources, or values of a key, in one list."""
MAX_POLICY_ERRORS = 50
"""Reported per policy."""
MAX_VARIABLE_VALUES = 1_000
"""Per variable: a pattern that uses it expands to as many."""
MAX_LIST_VARIABLES = 20
"""Uses of list variables in one document: each expands to many patterns."""
MAX_PATTERNS = 50_000
"""Per principal, after expansion: a hundred full documents."""
MAX_RULE_INDEXES = 1024
"""Actions of one principal whose index is cached."""


class Wildcard(Enum):
    """Tokens other than literal text."""

    ANY = "*"
    ONE = "?"
    ANY_IN_SEGMENT = "* but no colon"
    ONE_IN_SEGMENT = "? but no colon"


ANY_WILDCARDS = frozenset({Wildcard.ANY, Wildcard.ANY_IN_SEGMENT})
ONE_WILDCARDS = frozenset({Wildcard.ONE, Wildcard.ONE_IN_SEGMENT})
SEGMENT_WILDCARDS = frozenset({Wildcard.ANY_IN_SEGMENT, Wildcard.ONE_IN_SEGMENT})
"""Wildcards that stay within one segment of an ARN: they match all but a colon."""
COLON = ":"


PatternToken = str | Wildcard


@dataclass(frozen=True, slots=True)
class LiteralRun:
    """Text between two stars."""

    length: int
    literal: str | None
    """The text; None if the run contains wildcards."""
    characters: tuple[str | None, ...] = ()
    masks: Mapping[str | None, int] = field(default_factory=dict, compare=False)
    """Bits of the positions that each character matches; None: any other character."""

    def fits(self, text: str, at: int) -> bool:
        """Return whether it matches here."""
        if self.literal is not None:
            return text.startswith(self.literal, at)
        part = text[at : at + self.length]
        pairs = zip(self.characters, part, strict=False)
        return len(part) == self.length and all(own in (None, its) for own, its in pairs)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first match between these, or -1."""
        if self.literal is not None:
            return text.find(self.literal, start, end)
        # Shift-and algorithm: one bit for each prefix of the run that ends here.
        reached, whole, others = 0, 1 << (self.length - 1), self.masks[None]
        for at in range(start, end):
            reached = (reached << 1 | 1) & self.masks.get(text[at], others)
            if reached & whole:
                return at - self.length + 1
        return -1


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern: its first and last run, and the runs between."""

    first: LiteralRun
    last: LiteralRun | None
    """None: no star, `first` is the whole pattern."""
    between: tuple[LiteralRun, ...]
    least: int
    """Minimum length of a match."""
    segments: "SegmentAutomaton | None" = None
    """Limits wildcards to segments; None if every wildcard matches colons."""

    @property
    def exact(self) -> str | None:
        """The only matching text; None if there may be several."""
        return self.first.literal if self.last is None else None

    @property
    def runs(self) -> tuple[LiteralRun, ...]:
        """All its runs."""
        return (self.first, *self.between, *(() if self.last is None else (self.last,)))

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        return self._matches_anywhere(text) and (self.segments is None or self.segments.match(text))

    def _matches_anywhere(self, text: str) -> bool:
        """Match, with colons allowed in wildcards."""
        if self.last is None:
            return len(text) == self.least and self.first.fits(text, 0)
        end = len(text) - self.last.length
        if len(text) < self.least or not self.first.fits(text, 0) or not self.last.fits(text, end):
            return False
        at = self.first.length
        for run in self.between:
            start = run.find(text, at, end)
            if start < 0:
                return False
            at = start + run.length
        return True


@dataclass(frozen=True, slots=True)
class SegmentAutomaton:
    """Bit-parallel NFA of a pattern whose wildcards stay within segments.

    The state is the number of pattern characters matched. All states advance at once, so the
    time is linear in the text.
    """

    prefix: int
    """Characters before the first wildcard; the caller compared them."""
    accepted: int
    """The bit of the last state."""
    any_loops: int
    """States before a `*` that matches colons."""
    bound_loops: int
    """States before any `*`."""
    masks: Mapping[str | None, int] = field(compare=False)
    """States that each character advances; None: any other character."""

    def match(self, text: str) -> bool:
        """Return whether a text that `Glob` matched stays within segments."""
        if text.find(COLON, self.prefix) < 0:
            return True
        states, others = 1 << self.prefix, self.masks[None]
        for at in range(self.prefix, len(text)):
            character = text[at]
            loops = self.any_loops if character == COLON else self.bound_loops
            states = (states & self.masks.get(character, others)) << 1 | (states & loops)
            if not states:
                return False
        return bool(states & self.accepted)


def compile_glob(tokens: tuple[PatternToken, ...]) -> Glob:
    """Compile tokens to a pattern; strings are literal."""
    parts: list[list[str | None]] = [[]]
    for token in tokens:
        if token in ANY_WILDCARDS:
            parts.append([])
        else:
            parts[-1].extend([None] if token in ONE_WILDCARDS else list(str(token)))
    first, *others = (_compile_run(tuple(part)) for part in parts)
    least = sum(map(len, parts))
    bound = None if SEGMENT_WILDCARDS.isdisjoint(tokens) else _compile_segments(tokens)
    if not others:
        return Glob(first, None, (), least, bound)
    between = tuple(run for run in others[:-1] if run.length)
    return Glob(first, others[-1], between, least, bound)


def _compile_segments(tokens: tuple[PatternToken, ...]) -> SegmentAutomaton:
    characters: list[str | Wildcard] = []
    any_loops = bound_loops = 0
    for token in tokens:
        if token in ANY_WILDCARDS:
            bound_loops |= 1 << len(characters)
            any_loops |= (token is Wildcard.ANY) << len(characters)
        else:
            characters += [token] if isinstance(token, Wildcard) else token
    prefix = next(at for at, token in enumerate(tokens) if isinstance(token, Wildcard))
    return SegmentAutomaton(
        prefix=sum(map(len, map(str, tokens[:prefix]))),
        accepted=1 << len(characters),
        any_loops=any_loops,
        bound_loops=bound_loops,
        masks=_character_masks(characters),
    )


def _character_masks(characters: Sequence[str | Wildcard | None]) -> dict[str | None, int]:
    """Return the bits of the positions that each character matches; None: any other character."""
    others = colons = 0
    for at, own in enumerate(characters):
        if not isinstance(own, str):
            others |= 1 << at
            colons |= (own is not Wildcard.ONE_IN_SEGMENT) << at
    masks: dict[str | None, int] = {None: others, COLON: colons}
    for at, own in enumerate(characters):
        if isinstance(own, str):
            masks[own] = masks.get(own, others) | 1 << at
    return masks


def _compile_run(characters: tuple[str | None, ...]) -> LiteralRun:
    if None not in characters:
        return LiteralRun(len(characters), "".join(map(str, characters)))
    return LiteralRun(len(characters), None, characters, _character_masks(characters))


Value = str | int | float | bool | tuple[str, ...]
"""Of a variable or context key."""

_TOKEN_REGEX = re.compile(
    r"""\$\{(?P<name>[^}',]*)(?:,\s*'(?P<default>[^}']*)')?\}|(?P<wild>[*?])|(?P<open>\$\{)"""
)
_ESCAPED_CHARACTERS = ("*", "?", "$")


class PatternError(Exception):
    """A pattern is invalid."""


@dataclass(frozen=True, slots=True)
class PolicyVariable:
    """A placeholder for a principal's value."""

    name: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with its wildcards and variables."""

    tokens: tuple[PatternToken | PolicyVariable, ...]

    @property
    def plain(self) -> tuple[PatternToken, ...]:
        """The tokens without variables."""
        return tuple(token for token in self.tokens if not isinstance(token, PolicyVariable))

    def resolve(self, variables: Mapping[str, Value]) -> Iterator[tuple[PatternToken, ...]]:
        """Expand for each value of the variables; empty if a variable has no value."""
        return itertools.product(*(_token_values(token, variables) for token in self.tokens))

    def split(self, separator: str, most: int) -> "tuple[Pattern, ...]":
        """Split into at most `most` parts; values of variables are not split."""
        parts: list[list[PatternToken | PolicyVariable]] = [[]]
        for token in self.tokens:
            if not isinstance(token, str):
                parts[-1].append(token)
                continue
            head, *others = token.split(separator, most - len(parts))
            parts[-1].append(head)
            parts += [[other] for other in others]
        return tuple(Pattern(tuple(token for token in part if token != "")) for part in parts)


def parse_pattern(text: str, *, wild: bool, variables: bool) -> Pattern:
    """Parse a pattern; PatternError if invalid. `wild` enables wildcards."""
    tokens: list[PatternToken | PolicyVariable] = []
    end = 0
    for match in _TOKEN_REGEX.finditer(text):
        tokens += [text[end : match.start()], _parse_token(match, wild)]
        end = match.end()
    tokens.append(text[end:])
    pattern = Pattern(tuple(token for token in tokens if token != ""))
    _check_pattern(pattern, variables)
    return pattern


def limit_to_segments(pattern: Pattern) -> Pattern:
    """Limit wildcards to ARN segments, as AWS does.

    A `*` at the end of a segment matches colons; any other `*` or `?` does not."""
    limited: list[PatternToken | PolicyVariable] = []
    for token, following in zip(pattern.tokens, [*pattern.tokens[1:], COLON], strict=False):
        at_end = isinstance(following, str) and following.startswith(COLON)
        if token is Wildcard.ONE:
            limited.append(Wildcard.ONE_IN_SEGMENT)
        elif token is Wildcard.ANY and not at_end:
            limited.append(Wildcard.ANY_IN_SEGMENT)
        else:
            limited.append(token)
    return Pattern(tuple(limited))


def list_values(value: Value | None) -> tuple[str | int | float | bool, ...]:
    """Return one value or many as a tuple; None is empty."""
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def format_value(value: str | int | float | bool) -> str:
    """Format a value for policies."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_token(match: re.Match[str], wild: bool) -> PatternToken | PolicyVariable:
    if match["wild"]:
        return Wildcard(match["wild"]) if wild else match["wild"]
    if match["open"]:
        raise PatternError("has a `${` that no `}` ends; `${$}` is a dollar")
    name = match["name"].strip()
    if name in _ESCAPED_CHARACTERS and match["default"] is None:
        return name
    if name.lower() not in VARIABLES:
        raise PatternError(f"names an unknown variable; there are {', '.join(VARIABLES)}")
    return PolicyVariable(name.lower(), match["default"])


def _check_pattern(pattern: Pattern, variables: bool) -> None:
    named = [token for token in pattern.tokens if isinstance(token, PolicyVariable)]
    if pattern.tokens.count(Wildcard.ANY) > MAX_STARS:
        raise PatternError(f"has more than {MAX_STARS} `*`")
    if named and not variables:
        raise PatternError("uses variables, which Version 2008-10-17 does not know")
    if sum(variable.name in LIST_VARIABLES for variable in named) > 1:
        raise PatternError("may name a variable of many values once only")


def _token_values(
    token: PatternToken | PolicyVariable, variables: Mapping[str, Value]
) -> tuple[PatternToken, ...]:
    if not isinstance(token, PolicyVariable):
        return (token,)
    values = tuple(format_value(value) for value in list_values(variables.get(token.name)))
    return values or (() if token.default is None else (token.default,))
