"""Processor time of the client's commands that ask no store, beside Python itself.

A shell asks for completions each time a user presses Tab.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.harness import ROOT, Figures, Measure

STORE = "from store_client.cli.main import main; main()"


@contextmanager
def prepare(root: Path = ROOT) -> Iterator[Measure]:
    """Start the client of the code in `root`, with a home of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "STORE_CLIENT_HOME": home,
            "PYTHONPATH": str(root / "client"),
        }

        def measure() -> Figures:
            return {
                "python -c pass, ms": _measure_ms("pass", environ),
                "store --help, ms": _measure_ms(STORE, environ, ["--help"]),
                "store upload --help, ms": _measure_ms(STORE, environ, ["upload", "--help"]),
                "complete a command, ms": _complete("store bun", environ),
                "complete an option, ms": _complete("store upload --re", environ),
            }

        # The first start writes the bytecode.
        measure()
        yield measure


def _complete(line: str, environ: Mapping[str, str]) -> float:
    completing = {
        "_STORE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    return _measure_ms(STORE, {**environ, **completing})


def _measure_ms(code: str, environ: Mapping[str, str], arguments: Sequence[str] = ()) -> float:
    """Processor time of a process from start to end, user and system."""
    began = _used_by_children()
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, env=dict(environ), stdout=subprocess.DEVNULL, check=True)
    return (_used_by_children() - began) * 1_000


def _used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
