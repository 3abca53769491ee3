"""The private queue of an embedded store: redis-server when there is one, else an in-memory one."""

import shutil
import sys

from ops.procfile import ProcessLine

NAME = "redis"


def line(host: str, port: int, *, path: str) -> ProcessLine:
    """The process that serves the queue; `path` is where programs are looked for."""
    found = shutil.which("redis-server", path=path)
    command = _real(found, host, port) if found else _embedded(host, port)
    return ProcessLine(NAME, command, "Carries messages; the to-do table is what remembers.")


def url(host: str, port: int) -> str:
    """Where the other processes find it."""
    return f"redis://{host}:{port}/0"


def _real(program: str, host: str, port: int) -> tuple[str, ...]:
    # Nothing is kept, and what it would tell of itself every few minutes helps nobody.
    kept = {"--save": "", "--appendonly": "no"}
    options = {"--bind": host, "--port": str(port), **kept, "--loglevel": "warning"}
    return (program, *(word for option in options.items() for word in option))


def _embedded(host: str, port: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "ops.fakeredis_server", host, str(port))
