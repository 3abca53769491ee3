"""Nextflow from Maven's jars; its own launcher would download itself from elsewhere."""

import shutil
from pathlib import Path

from tests.engines.engine import CACHE
from tests.engines.maven import copy_jars
from tests.engines.versions import NEXTFLOW

VARIABLE = "STORE_TEST_NEXTFLOW"
JARS = f"nextflow-{NEXTFLOW}"
OPENED = ("java.lang", "java.util", "java.io", "java.nio", "java.net", "sun.nio.ch", "sun.nio.fs")
"""Packages of Java that Nextflow's libraries look into, as its own launcher allows them to."""
JAVA = (
    "java",
    "-XX:TieredStopAtLevel=1",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
)


def missing() -> str | None:
    """What this machine lacks, or None."""
    if shutil.which("java") is None:
        return "a Java of version 17 or later (openjdk-17-jdk-headless)"
    if not (CACHE / JARS).is_dir() and shutil.which("mvn") is None:
        return "Maven, to get Nextflow with (maven)"
    return None


def there() -> str | None:
    """Which version is installed, or None."""
    return NEXTFLOW if (CACHE / JARS).is_dir() else None


def install(cache: Path) -> None:
    """Get the jars, unless they are there."""
    copy_jars("io.nextflow", "nextflow", NEXTFLOW, cache / JARS)


def environ() -> dict[str, str]:
    """What names the class path to the tests."""
    return {VARIABLE: f"{(CACHE / JARS).resolve()}/*"}
