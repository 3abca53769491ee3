"""Install and start several engines at once, and report missing ones."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.engines import (
    chromium,
    gcs,
    nextflow,
    openapi_typescript,
    opensearch,
    pgbouncer,
    platforms,
    podman,
    postgres,
    prometheus,
    redis,
    s3,
    systemd,
)
from tests.engines.engine import CACHE, Running
from tests.engines.versions import (
    ANALYSIS,
    AWS,
    DRS_COMPLIANCE_SUITE,
    HCA,
    OPENAPI_PYTHON_CLIENT,
    RCLONE,
    ROC_VALIDATOR,
    S5CMD,
    SNAKEMAKE,
)


class Installable(Protocol):
    """What can be had: an engine's module, or a tool."""

    def missing(self) -> str | None:
        """What this machine lacks, or None."""

    def there(self) -> str | None:
        """Which version is installed, or None."""

    def install(self, cache: Path, /) -> None:
        """Get it, unless it is there."""


class Engine(Installable, Protocol):
    """A module of this package."""

    VARIABLE: str
    """Names the engine to the tests."""

    def running(self, home: Path, **settings: str) -> AbstractContextManager[Running]:
        """Start it, with settings of its own; stop it at the end."""


ENGINES: dict[str, Engine] = {
    "redis": redis,
    "postgres": postgres,
    "pgbouncer": pgbouncer,
    "s3": s3,
    "gcs": gcs,
    "opensearch": opensearch,
}
TOOLS: dict[str, Installable] = {
    "s5cmd": S5CMD,
    "rclone": RCLONE,
    "aws": AWS,
    "hca": HCA,
    "analysis": ANALYSIS,
    "drs-compliance-suite": DRS_COMPLIANCE_SUITE,
    "roc-validator": ROC_VALIDATOR,
    "snakemake": SNAKEMAKE,
    "nextflow": nextflow,
    "openapi-python-client": OPENAPI_PYTHON_CLIENT,
    "openapi-typescript": openapi_typescript,
    "platforms": platforms,
    "prometheus": prometheus,
    "chromium": chromium,
    "podman": podman,
    "systemd": systemd,
}


@dataclass
class Started:
    """What runs, by name, what does not and why, and what clients find in their environment."""

    engines: dict[str, Running] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)


def install(names: Sequence[str]) -> dict[str, str]:
    """Get these, a few at a time; what could not be had, and why."""
    CACHE.mkdir(exist_ok=True)
    everything: dict[str, Installable] = {**ENGINES, **TOOLS}

    def get(name: str) -> str | None:
        lacking = everything[name].missing()
        if lacking is None:
            everything[name].install(CACHE)
        return lacking

    # Packages of the system wait for each other anyway; building takes every core.
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda name: _reason(lambda: get(name)), names)
    return {name: why for name, why in zip(names, results, strict=True) if why}


def _reason(work: Callable[[], str | None]) -> str | None:
    try:
        return work()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"


@contextmanager
def running(*names: str, unsynced: bool = False) -> Iterator[Started]:
    """Install and start engines, all of them by default, in a folder that goes with the block;
    `unsynced` is for suites that nobody pulls the plug of."""
    wanted = names or tuple(ENGINES)
    started = Started(absent=install(wanted))
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engines-")))
        home.chmod(0o711)
        ready = [name for name in wanted if name not in started.absent]
        begun: dict[str, Future[_Begun | str]] = {}
        # Before the first is begun: whoever interrupts us meanwhile leaves none behind.
        stack.callback(_end, begun)
        with ThreadPoolExecutor(len(ENGINES)) as pool:
            begun |= {name: pool.submit(_begin, name, home, unsynced) for name in ready}
        for name, future in begun.items():
            _note(started, name, future.result())
        yield started


class _Begun(NamedTuple):
    """An engine that one thread started and another will stop."""

    context: AbstractContextManager[Running]
    engine: Running


def _end(begun: Mapping[str, "Future[_Begun | str]"]) -> None:
    """Stop what was begun, also what is not ready yet."""
    with ExitStack() as stack:
        for future in begun.values():
            stack.callback(_stop, future)


def _stop(future: "Future[_Begun | str]") -> None:
    if future.exception() is None and isinstance(one := future.result(), _Begun):
        one.context.__exit__(None, None, None)


UNSYNCED = {name: {"fsync": "off"} for name in ("postgres", "pgbouncer")}


def _begin(name: str, home: Path, unsynced: bool) -> _Begun | str:
    folder = home / name
    folder.mkdir()
    context = ENGINES[name].running(folder, **(UNSYNCED.get(name, {}) if unsynced else {}))
    try:
        return _Begun(context, context.__enter__())
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"


def _note(started: Started, name: str, begun: _Begun | str) -> None:
    if isinstance(begun, str):
        started.absent[name] = begun
        return
    started.engines[name] = begun.engine
    started.environ |= {ENGINES[name].VARIABLE: begun.engine.url, **begun.engine.environ}
