"""Read the Procfile, and list the processes of an embedded store."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from config import Settings

ROOT = Path(__file__).resolve().parent.parent
_LINE_PATTERN = re.compile(r"([A-Za-z0-9_-]+):\s*(\S.*)")


class ProcfileError(Exception):
    """A line of the Procfile cannot be used; the text names it."""


@dataclass(frozen=True)
class ProcessLine:
    """One process that a deployment runs, and why."""

    name: str
    command: tuple[str, ...]
    reason: str


def read_procfile(path: Path = ROOT / "Procfile") -> tuple[ProcessLine, ...]:
    """Every process in the order of the file."""
    return parse_procfile(path.read_text(encoding="utf-8"))


def build_embedded_processes(settings: Settings) -> tuple[ProcessLine, ...]:
    """The processes of a store on one machine, which needs no Redis."""
    ports = [settings.port, settings.port + 1] + ([settings.ops_port] if settings.ops_port else [])
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    bound = [word for port in ports for word in ("--bind", f"{host}:{port}")]
    web = ("gunicorn", "-c", "api/gunicorn.py", *bound, "web.embedded:application")
    worker = (sys.executable, "-m", "workers.embedded")
    return (
        ProcessLine("web", web, "Both HTTP services."),
        ProcessLine("worker", worker, "All work, and the scheduler."),
    )


def parse_procfile(text: str) -> tuple[ProcessLine, ...]:
    """The processes of a Procfile's text; ProcfileError for a bad line or a name given twice."""
    found: dict[str, ProcessLine] = {}
    reason: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            reason = [*reason, line.lstrip("# ")] if line else []
            continue
        process = _parse_line(line, " ".join(reason))
        if process.name in found:
            raise ProcfileError(f"{process.name} is named twice")
        found[process.name], reason = process, []
    return tuple(found.values())


def _parse_line(line: str, reason: str) -> ProcessLine:
    match = _LINE_PATTERN.fullmatch(line)
    if match is None:
        raise ProcfileError(f"not `name: command`: {line}")
    return ProcessLine(match[1], tuple(shlex.split(match[2])), reason)
