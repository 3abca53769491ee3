"""Prometheus and its promtool, of the system package."""

from pathlib import Path

from tests.engines import packages

VARIABLE = "STORE_TEST_PROMTOOL"
PROGRAMS, PACKAGE = ("prometheus", "promtool"), "prometheus"


def missing() -> str | None:
    """What this machine lacks, or None."""
    return packages.lacking(PROGRAMS, PACKAGE)


def there() -> str | None:
    """Which version is installed, or None."""
    return packages.version("promtool")


def install(cache: Path) -> None:
    """Get the package, unless it is there."""
    packages.debian(PROGRAMS, PACKAGE, cache)


def environ() -> dict[str, str]:
    """What names promtool to the tests."""
    return {VARIABLE: packages.found("promtool")}
