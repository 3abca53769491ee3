"""Deposited metadata as a tree that a page can show, within bounds."""

from dataclasses import dataclass, field
from typing import Any

from storage import json_codec
from web.formats import shorten

MAX_NODES = 2_000
"""Values of one tree; the rest is counted."""
MAX_DEPTH = 12
MAX_CHILDREN = 200
MAX_TEXT = 2_000


@dataclass
class TreeNode:
    """A value with its name: a text, or further values; `left_out` are not shown."""

    name: str
    text: str | None = None
    children: list["TreeNode"] = field(default_factory=list)
    left_out: int = 0
    summary: str = ""


class TreeBuilder:
    """Builds trees until its room for nodes is used up."""

    def __init__(self, room: int = MAX_NODES) -> None:
        """Start with room for this many values."""
        self.room = room

    def build(self, name: str, value: Any, depth: int = 0) -> TreeNode:
        """Return the tree of a JSON value."""
        self.room -= 1
        if not isinstance(value, dict | list) or not value:
            return TreeNode(name, shorten(_format_scalar(value), MAX_TEXT))
        items = list(value.items() if isinstance(value, dict) else enumerate(value, 1))
        node = TreeNode(name, summary=_summarize(value))
        if depth >= MAX_DEPTH:
            node.left_out = len(items)
            return node
        for place, (key, child) in enumerate(items):
            if place == MAX_CHILDREN or self.room <= 0:
                node.left_out = len(items) - place
                break
            node.children.append(self.build(shorten(str(key)), child, depth + 1))
        return node


def _format_scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json_codec.encode(value).decode(errors="replace")


def _summarize(value: Any) -> str:
    noun = "field" if isinstance(value, dict) else "item"
    return f"{len(value):,} {noun}{'' if len(value) == 1 else 's'}"
