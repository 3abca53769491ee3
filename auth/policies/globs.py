"""Matching `*` and `?` in time linear in the text, without backtracking.

The literal runs between stars are looked for from left to right, each once: taking the leftmost
place leaves the most for those after it, so no choice is ever taken back. What matches so is tried
once more where wildcards must not match colons (`Segments`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Wild(Enum):
    """What a pattern holds beside literal text."""

    ANY = "*"
    ONE = "?"
    ANY_IN_SEGMENT = "* but no colon"
    ONE_IN_SEGMENT = "? but no colon"


ANY = frozenset({Wild.ANY, Wild.ANY_IN_SEGMENT})
ONE = frozenset({Wild.ONE, Wild.ONE_IN_SEGMENT})
BOUND = frozenset({Wild.ANY_IN_SEGMENT, Wild.ONE_IN_SEGMENT})
"""Wildcards of an ARN that stay within its segment: they stand for anything but a colon."""
COLON = ":"


Token = str | Wild


@dataclass(frozen=True, slots=True)
class Run:
    """Text between two stars."""

    length: int
    literal: str | None
    """The text; None where some of its characters may be any."""
    characters: tuple[str | None, ...] = ()
    masks: Mapping[str | None, int] = field(default_factory=dict, compare=False)
    """For each character the places that it fits, as bits; of others, under None, the open ones."""

    def fits(self, text: str, at: int) -> bool:
        """Whether it stands at this place."""
        if self.literal is not None:
            return text.startswith(self.literal, at)
        part = text[at : at + self.length]
        pairs = zip(self.characters, part, strict=False)
        return len(part) == self.length and all(own in (None, its) for own, its in pairs)

    def find(self, text: str, start: int, end: int) -> int:
        """The first place between these where it stands, -1 if there is none."""
        if self.literal is not None:
            return text.find(self.literal, start, end)
        # Shift-and: a bit for each beginning of the run that ends here, all moved on at once.
        reached, whole, others = 0, 1 << (self.length - 1), self.masks[None]
        for at in range(start, end):
            reached = (reached << 1 | 1) & self.masks.get(text[at], others)
            if reached & whole:
                return at - self.length + 1
        return -1


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern ready to match: what it begins with, what it ends with, what lies between."""

    first: Run
    last: Run | None
    """None: there is no star, and `first` is the whole text."""
    between: tuple[Run, ...]
    least: int
    """Characters that a text needs at least."""
    segments: "Segments | None" = None
    """The colons that wildcards must not match; None where every wildcard matches them."""

    @property
    def exact(self) -> str | None:
        """The only text that matches; None when there may be several."""
        return self.first.literal if self.last is None else None

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs of it."""
        return (self.first, *self.between, *(() if self.last is None else (self.last,)))

    def matches(self, text: str) -> bool:
        """Whether the whole text is as the pattern says."""
        return self._matches_anywhere(text) and (self.segments is None or self.segments.match(text))

    def _matches_anywhere(self, text: str) -> bool:
        """Whether it is if every wildcard may match colons."""
        if self.last is None:
            return len(text) == self.least and self.first.fits(text, 0)
        end = len(text) - self.last.length
        if len(text) < self.least or not self.first.fits(text, 0) or not self.last.fits(text, end):
            return False
        at = self.first.length
        for run in self.between:
            found = run.find(text, at, end)
            if found < 0:
                return False
            at = found + run.length
        return True


@dataclass(frozen=True, slots=True)
class Segments:
    """A pattern whose wildcards stay within segments, as an automaton: one bit for each state.

    The state is how many characters of the pattern are matched. All states move on at once, so the
    time is linear in the text.
    """

    prefix: int
    """Characters before the first wildcard, which the caller has compared."""
    accepted: int
    """The bit of the last state."""
    any_loops: int
    """States before a `*` that matches colons."""
    bound_loops: int
    """States before any `*`."""
    masks: Mapping[str | None, int] = field(compare=False)
    """For each character the states that it leads on from; under None, those of all others."""

    def match(self, text: str) -> bool:
        """Whether a text that matches if wildcards may match colons does so if they may not."""
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


def glob(tokens: tuple[Token, ...]) -> Glob:
    """The pattern that these tokens make; text is literal whatever it holds."""
    parts: list[list[str | None]] = [[]]
    for token in tokens:
        if token in ANY:
            parts.append([])
        else:
            parts[-1].extend([None] if token in ONE else list(str(token)))
    first, *others = (_run(tuple(part)) for part in parts)
    least = sum(map(len, parts))
    bound = None if BOUND.isdisjoint(tokens) else _segments(tokens)
    if not others:
        return Glob(first, None, (), least, bound)
    between = tuple(run for run in others[:-1] if run.length)
    return Glob(first, others[-1], between, least, bound)


def _segments(tokens: tuple[Token, ...]) -> Segments:
    characters: list[str | Wild] = []
    any_loops = bound_loops = 0
    for token in tokens:
        if token in ANY:
            bound_loops |= 1 << len(characters)
            any_loops |= (token is Wild.ANY) << len(characters)
        else:
            characters += [token] if isinstance(token, Wild) else token
    prefix = next(at for at, token in enumerate(tokens) if isinstance(token, Wild))
    return Segments(
        prefix=sum(map(len, map(str, tokens[:prefix]))),
        accepted=1 << len(characters),
        any_loops=any_loops,
        bound_loops=bound_loops,
        masks=_character_masks(characters),
    )


def _character_masks(characters: list[str | Wild]) -> dict[str | None, int]:
    others = sum(1 << at for at, own in enumerate(characters) if own in ONE)
    colons = sum(1 << at for at, own in enumerate(characters) if own is Wild.ONE)
    masks: dict[str | None, int] = {None: others, COLON: colons}
    for at, own in enumerate(characters):
        if isinstance(own, str):
            masks[own] = masks.get(own, others) | 1 << at
    return masks


def _run(characters: tuple[str | None, ...]) -> Run:
    if None not in characters:
        return Run(len(characters), "".join(map(str, characters)))
    return Run(len(characters), None, characters, _masks(characters))


def _masks(characters: tuple[str | None, ...]) -> dict[str | None, int]:
    opened = sum(1 << at for at, own in enumerate(characters) if own is None)
    masks: dict[str | None, int] = {None: opened}
    for at, own in enumerate(characters):
        if own is not None:
            masks[own] = masks.get(own, opened) | 1 << at
    return masks
