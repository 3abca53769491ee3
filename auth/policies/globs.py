"""Matching `*` and `?` in time linear in the text, without backtracking.

The literal runs between stars are looked for from left to right, each once: taking the leftmost
place leaves the most for those after it, so no choice is ever taken back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Wild(Enum):
    """What a pattern holds beside literal text."""

    ANY = "*"
    ONE = "?"


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


def glob(tokens: tuple[Token, ...]) -> Glob:
    """The pattern that these tokens make; text is literal whatever it holds."""
    parts: list[list[str | None]] = [[]]
    for token in tokens:
        if token is Wild.ANY:
            parts.append([])
        else:
            parts[-1].extend([None] if token is Wild.ONE else list(str(token)))
    first, *others = (_run(tuple(part)) for part in parts)
    least = sum(map(len, parts))
    if not others:
        return Glob(first, None, (), least)
    return Glob(first, others[-1], tuple(run for run in others[:-1] if run.length), least)


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
