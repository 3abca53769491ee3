"""Chromium of the system package; Playwright drives it, and downloads no browser of its own."""

from pathlib import Path

from tests.engines import packages

PROGRAMS, PACKAGE = ("chromium",), "chromium"
VARIABLE = "STORE_TEST_CHROMIUM"


def missing() -> str | None:
    """What this machine lacks, or None."""
    return packages.lacking(PROGRAMS, PACKAGE)


def there() -> str | None:
    """Which version is installed, or None."""
    return packages.version("chromium")


def install(cache: Path) -> None:
    """Get the package, unless it is there."""
    packages.debian(PROGRAMS, PACKAGE, cache)


def environ() -> dict[str, str]:
    """What names the program to the tests."""
    return {VARIABLE: packages.found("chromium")}
