"""The command `python -m tests.engines`: run a command with real engines on loopback."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import click

from tests.engines import (
    chromium,
    nextflow,
    openapi_typescript,
    optional_engines,
    platforms,
    podman,
    prometheus,
    startup,
    systemd,
)
from tests.engines.engine import stop
from tests.engines.startup import ENGINES, TOOLS, Installable
from tests.engines.versions import (
    ANALYSIS,
    ANALYSIS_VARIABLE,
    DRS_COMPLIANCE_SUITE,
    DRS_COMPLIANCE_SUITE_VARIABLE,
    HCA,
    HCA_VARIABLE,
    OPENAPI_PYTHON_CLIENT,
    OPENAPI_PYTHON_CLIENT_VARIABLE,
    ROC_VALIDATOR,
    ROC_VALIDATOR_VARIABLE,
    SNAKEMAKE,
    SNAKEMAKE_VARIABLE,
)

NAMES = click.Choice([*ENGINES, *TOOLS])


@click.group()
def engines() -> None:
    """Real engines for tests, drills and benches."""


@engines.command("list")
def list_() -> None:
    """What is there, what can be had, and what the machine lacks for it."""
    for name, what in {**ENGINES, **TOOLS}.items():
        click.echo(f"{name}: {_state(what)}")


def _state(what: Installable) -> str:
    if lacking := what.missing():
        return f"cannot be had: the machine lacks {lacking}"
    found = what.there()
    return f"there: {found}" if found else "not there, can be had"


@engines.command()
@click.argument("names", nargs=-1, type=NAMES)
def install(names: Sequence[str]) -> None:
    """Get engines and tools, all of them by default."""
    absent = startup.install(names or [*ENGINES, *TOOLS])
    _tell(absent)
    sys.exit(bool(absent))


@engines.command()
@click.option(
    "--only", multiple=True, type=click.Choice(list(ENGINES)), help="Start these alone; repeatable."
)
@click.option("--tool", "tools", multiple=True, type=NAMES, help="Install this program, too.")
@click.option("--unsynced", is_flag=True, help="PostgreSQL waits for no disk; not for drills.")
@optional_engines.option
@click.argument("command", nargs=-1, required=True)
def run(
    only: Sequence[str],
    tools: Sequence[str],
    unsynced: bool,
    excuse: set[str],
    command: Sequence[str],
) -> None:
    """Start engines, run COMMAND with STORE_TEST_* naming them, stop them."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, _end)
    absent = startup.install(tools)
    with startup.running(*only, unsynced=unsynced) as started:
        absent |= started.absent
        _tell(absent)
        click.echo(
            f"engines: {', '.join(started.engines)} ready after {time.monotonic() - began:.0f} s"
        )
        unexcused = sorted(absent.keys() - excuse)
        code = _carry_out(command, {**os.environ, **started.environ, **_name_tools(tools, absent)})
    for name in unexcused:
        click.echo(f"not run: {name}: {absent[name]}; excuse it by --excuse {name}")
    sys.exit(code or bool(unexcused))


def _name_tools(tools: Sequence[str], absent: Mapping[str, str]) -> dict[str, str]:
    """What the environment says of tools; most are found by their path."""
    environs = {
        "chromium": chromium.environ,
        "analysis": lambda: {ANALYSIS_VARIABLE: str(ANALYSIS.path)},
        "drs-compliance-suite": lambda: {
            DRS_COMPLIANCE_SUITE_VARIABLE: str(DRS_COMPLIANCE_SUITE.path)
        },
        "hca": lambda: {HCA_VARIABLE: str(HCA.path)},
        "nextflow": nextflow.environ,
        "openapi-python-client": lambda: {
            OPENAPI_PYTHON_CLIENT_VARIABLE: str(OPENAPI_PYTHON_CLIENT.path)
        },
        "openapi-typescript": openapi_typescript.environ,
        "platforms": platforms.environ,
        "podman": podman.environ,
        "prometheus": prometheus.environ,
        "roc-validator": lambda: {ROC_VALIDATOR_VARIABLE: str(ROC_VALIDATOR.path)},
        "snakemake": lambda: {SNAKEMAKE_VARIABLE: str(SNAKEMAKE.path)},
        "systemd": systemd.environ,
    }
    named: dict[str, str] = {}
    for name in {*tools} - absent.keys():
        named |= environs.get(name, dict)()
    return named


def _carry_out(command: Sequence[str], environ: dict[str, str]) -> int:
    process = subprocess.Popen(command, env=environ)
    try:
        return process.wait()
    finally:
        # As by the keyboard: then a test runner stops what its tests have started.
        stop(process, signal.SIGINT)
        click.echo(f"engines: {shlex.join(command)[:80]} ended with {process.returncode}")


def _end(_number: int, _frame: object) -> None:
    """So that what was started is stopped."""
    raise KeyboardInterrupt


def _tell(absent: dict[str, str]) -> None:
    for name, why in absent.items():
        click.echo(f"not run: {name}: {why}")


if __name__ == "__main__":
    engines()
