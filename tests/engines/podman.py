"""Podman, and a small Debian with Python to build images on where none can be pulled."""

import subprocess
import zlib
from pathlib import Path

from tests.engines import packages
from tests.engines.engine import CACHE

PROGRAMS = {
    "podman": "podman",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    # It checks units, beside containers.
    "systemd-analyze": "systemd",
}
"""Debian packages by their programs."""
VARIABLE = "STORE_TEST_PODMAN"
SUITE = "bookworm"
OPTIONS = (
    "--quiet",
    "--variant=apt",
    # What the official image of Python has besides.
    "--include=ca-certificates,netbase,passwd,python3-venv,tzdata",
    '--customize-hook=ln -s ../../bin/python3 "$1/usr/local/bin/python"',
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
BASE = CACHE / f"base-{SUITE}-{zlib.crc32(repr(OPTIONS).encode()):08x}.tar"
"""A small Debian whose Python is called `python`, too."""


def missing() -> str | None:
    """What this machine lacks, or None."""
    absent = [packages.lacking((program,), package) for program, package in PROGRAMS.items()]
    return "; ".join(why for why in absent if why) or None


def there() -> str | None:
    """Which version is installed, or None."""
    return packages.version("podman") if BASE.exists() else None


def install(cache: Path) -> None:
    """Get the packages, and make the base, unless they are there."""
    for program, package in PROGRAMS.items():
        packages.debian((program,), package, cache)
    with packages.alone(cache, BASE.name):
        if not BASE.exists():
            fresh = BASE.with_name(f"new-{BASE.name}")
            subprocess.run(["mmdebstrap", *OPTIONS, SUITE, str(fresh)], check=True)
            fresh.replace(BASE)


def environ() -> dict[str, str]:
    """What names the program to the tests."""
    return {VARIABLE: packages.found("podman")}
