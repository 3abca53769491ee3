"""The tables of docs/operations.md that are written from the code: `make docs`."""

import re
from collections.abc import Mapping
from pathlib import Path

from ops import manual, procfile
from workers.queues import PROMISES, QUEUES, steps_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operations.md"
BLOCK = re.compile(r"(<!-- begin (\w+)[^>]*-->\n)(.*?)(<!-- end \2 -->)", re.DOTALL)


def tables() -> Mapping[str, str]:
    """Every table by the name it has in the page."""
    return {"settings": manual.markdown(), "queues": queues(), "processes": processes()}


def queues() -> str:
    lines = ["| queue | steps | lease, s | tried again after, s | why |", "|---|---|---|---|---|"]
    for queue in QUEUES:
        for step in steps_of(queue):
            row = PROMISES[step]
            delays = ", ".join(f"{delay:g}" for delay in row.backoff_s)
            lines.append(f"| `{queue}` | `{step}` | {row.lease_s:g} | {delays} | {row.why} |")
    return "\n".join(lines) + "\n"


def processes() -> str:
    lines = ["| process | command | why |", "|---|---|---|"]
    for line in procfile.read():
        lines.append(f"| `{line.name}` | `{' '.join(line.command)}` | {line.reason} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """The page with every table as the code would write it."""
    found = tables()
    return BLOCK.sub(lambda block: block[1] + found[block[2]] + block[4], text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
