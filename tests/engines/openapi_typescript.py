"""TypeScript, and what generates a client in it from an OpenAPI definition."""

import shutil
import subprocess
from pathlib import Path

from tests.engines import packages
from tests.engines.engine import CACHE
from tests.engines.versions import OPENAPI_TYPESCRIPT

VARIABLE = "STORE_TEST_OPENAPI_TYPESCRIPT"
PROGRAMS, PACKAGE = ("node", "npm"), "npm"
LOCK = Path(__file__).with_name("typescript")
FOLDER = f"openapi-typescript-{OPENAPI_TYPESCRIPT}"


def missing() -> str | None:
    """What this machine lacks, or None."""
    return packages.lacking(PROGRAMS, PACKAGE)


def there() -> str | None:
    """Which version is installed, or None."""
    return OPENAPI_TYPESCRIPT if (CACHE / FOLDER).is_dir() else None


def install(cache: Path) -> None:
    """Get the packages of the lock file, unless they are there: all or none."""
    packages.debian(PROGRAMS, PACKAGE, cache)
    with packages.alone(cache, FOLDER):
        if (cache / FOLDER).is_dir():
            return
        fresh = cache / f"{FOLDER}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(LOCK, fresh)
        npm = packages.found("npm")
        subprocess.run([npm, "ci", "--silent", "--no-audit", "--no-fund"], cwd=fresh, check=True)
        fresh.rename(cache / FOLDER)


def environ() -> dict[str, str]:
    """What names the folder of the packages to the tests."""
    return {VARIABLE: str((CACHE / FOLDER).resolve())}
