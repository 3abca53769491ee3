"""Sharing: parts that many expressions ask of one document alike are evaluated once.

Parts that see the document itself are marked with what they say; their results are kept for as
long as the document is looked at, with the steps they took, which everybody who uses them pays.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

Node = dict[str, Any]

MARK = "shared"
"""The member of a node that names what it says."""
STEPS_OF_ONE, STEPS_OF_ALL = 1_000, 1_000_000
"""What may be kept: results of so many steps have no more elements."""

_OF_THE_SAME = frozenset(
    {
        "comparator",
        "and_expression",
        "or_expression",
        "not_expression",
        "function_expression",
        "multi_select_list",
        "multi_select_dict",
        "key_val_pair",
    }
)
"""Parts whose own parts all see what they see themselves."""
_FROM_THE_FIRST = frozenset(
    {
        "subexpression",
        "index_expression",
        "pipe",
        "projection",
        "filter_projection",
        "value_projection",
        "flatten",
    }
)
"""Parts of which only the first one does."""
_WORTH = _FROM_THE_FIRST | {"function_expression"}


def mark(tree: Node) -> None:
    """Mark every part of an expression that is worth keeping."""
    for node in _at_the_top(tree):
        if node["type"] in _WORTH:
            node[MARK] = name(node)


def name(node: Node) -> bytes:
    """What stands for a part of a marked expression, the same wherever it says the same."""
    if MARK in node:
        return bytes(node[MARK])
    return blake2b(repr(node).encode(errors="replace"), digest_size=16).digest()


def _at_the_top(node: Node) -> Iterator[Node]:
    """The nodes that see the document itself, parts before their whole."""
    if node["type"] in _OF_THE_SAME:
        for child in node["children"]:
            yield from _at_the_top(child)
    elif node["type"] in _FROM_THE_FIRST:
        yield from _at_the_top(node["children"][0])
    yield node


class Shared:
    """The results that are kept of one document."""

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[Any, int]] = {}
        self._left = STEPS_OF_ALL

    def get(self, key: bytes) -> tuple[Any, int] | None:
        """A result and the steps that it took."""
        return self._kept.get(key)

    def keep(self, key: bytes, result: Any, steps: int) -> None:
        """Keep it, unless it is too large or there is too much already."""
        if steps <= min(STEPS_OF_ONE, self._left):
            self._left -= steps
            self._kept[key] = result, steps
