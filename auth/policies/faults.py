"""What is wrong with a document, each fault with the JSON pointer to its place."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from auth.policies.limits import MAX_FAULTS, MAX_ITEMS
from storage import pointers


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong, by place; no more than a page of it."""

    told: dict[str, list[str]] = field(default_factory=dict)

    def add(self, pointer: str, text: str) -> None:
        """Tell one more."""
        if pointer in self.told or len(self.told) < MAX_FAULTS:
            self.told.setdefault(pointer, []).append(text)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a document we are, and what holds for all of it."""

    faults: Faults
    pointer: str
    variables: bool = True
    """Whether this version of the language has them."""
    stored: bool = False
    """Whether the document was accepted by an earlier release, which refused less."""

    def under(self, name: str | int) -> "Place":
        """A member or an item of it."""
        return replace(self, pointer=self.pointer + pointers.step(name))

    def wrong(self, text: str) -> None:
        """Tell what is wrong here."""
        self.faults.add(self.pointer, text)


def one_or_many(given: object, place: Place) -> list[tuple[Any, Place]]:
    """A value alone, or each of a list, with its place; an empty or a huge list is a fault."""
    if not isinstance(given, list):
        return [(given, place)]
    if not 0 < len(given) <= MAX_ITEMS:
        place.wrong(f"must have 1 to {MAX_ITEMS} items")
        return []
    return [(item, place.under(number)) for number, item in enumerate(given)]


def members(given: object, place: Place) -> Mapping[str, Any]:
    """The members of an object; anything else is a fault, and has none."""
    if isinstance(given, dict):
        return given
    place.wrong("must be an object")
    return {}
