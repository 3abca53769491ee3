"""Ports that a process tree listens on, from /proc."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LISTEN, ACCEPTING = "0A", 0x10000


def tree(roots: Iterable[int]) -> set[int]:
    """Processes and all their descendants."""
    found = set(roots)
    waiting = list(found)
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            children = {int(word) for word in task.read_text().split()} - found
            found |= children
            waiting += children
    return found


def ports(pids: Iterable[int]) -> set[int]:
    """TCP ports that they listen on, whatever the address; UDP sockets count too."""
    held = _inodes(pids)
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for row in _rows(table):
            listens = row[3] == LISTEN or table.startswith("udp")
            if listens and row[9] in held:
                found.add(int(row[1].rpartition(":")[2], 16))
    return found


def count_connections(port: int) -> int:
    """Connections to a port that its server has not closed yet."""
    return sum(
        int(row[1].rpartition(":")[2], 16) == port and row[3] != LISTEN and row[9] != "0"
        for row in _rows("tcp")
    )


def unix_sockets(pids: Iterable[int]) -> set[str]:
    """Paths of Unix sockets that they accept connections on; abstract ones begin with `@`."""
    held = _inodes(pids)
    found = set()
    for row in _rows("unix"):
        if int(row[3], 16) & ACCEPTING and row[6] in held:
            found.add(row[7] if len(row) > 7 else "")
    return found


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]


def _inodes(pids: Iterable[int]) -> set[str]:
    found = set()
    for pid in pids:
        with suppress(OSError):
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    kind, _, inode = os.readlink(handle).partition(":")
                    if kind == "socket":
                        found.add(inode.strip("[]"))
    return found
