"""How much text the dotted names of a value are, as a search engine must spell them."""

from typing import Any

from pipelines.finding.metadata import Unreadable

MAX_TEXT = 64 * 1024 * 1024
"""Of one document. Every level of nesting, and every dot inside of a key, is a name that repeats
all above it: a few kilobytes of dots, or of leaves below one long path, would fill a memory."""


def text(value: Any, most: int = MAX_TEXT) -> int:
    """Characters in all its names, each name once; Unreadable when they are more than `most`."""
    seen: set[str] = set()
    found = 0
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        above, inside = waiting.pop()
        if isinstance(inside, list):
            waiting.extend((above, child) for child in inside if isinstance(child, dict | list))
        elif isinstance(inside, dict):
            for key, child in inside.items():
                name = f"{above}.{key}" if above else str(key)
                found += _added(name, seen, most - found)
                if isinstance(child, dict | list):
                    waiting.append((name, child))
    return found


def _added(name: str, seen: set[str], most: int) -> int:
    """Characters of a name and of those above it that were not there yet."""
    found = 0
    while name and name not in seen:
        seen.add(name)
        found += len(name)
        if found > most:
            raise Unreadable("the names of its fields would take too much room")
        name = name.rpartition(".")[0]
    return found
