"""Compare the pinned libraries with the published vulnerabilities: `make scan`.

Exit codes: 0, none is known; 1, some are; 2, it could not be found out.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import click

from ops.procfile import ROOT
from tests.engines.engine import CACHE
from tests.engines.versions import PIP_AUDIT

NONE, SOME, UNKNOWN = 0, 1, 2
SCAN_S = 600.0


def judge(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Return the exit code for a report of pip-audit, and what to say.

    pip-audit itself succeeds when it could look up nothing.
    """
    libraries = report["dependencies"]
    unknown = sorted(one["name"] for one in libraries if "skip_reason" in one)
    found = [
        f"{one['name']} {one['version']}: {known['id']}, fixed in"
        f" {', '.join(known['fix_versions']) or 'no version yet'}"
        for one in libraries
        for known in one.get("vulns", ())
    ]
    if unknown and len(unknown) == len(libraries):
        found.append("Not scanned: no data were reached for any library")
    elif unknown:
        found.append(f"Not scanned, no data were reached for: {', '.join(unknown)}")
    elif not libraries:
        found.append("Not scanned: the report names no library")
    elif not found:
        found.append(f"{len(libraries)} libraries: no vulnerability is known")
    if any("vulns" in one and one["vulns"] for one in libraries):
        return SOME, found
    return (UNKNOWN if unknown or not libraries else NONE), found


def main() -> int:
    """Scan requirements.txt; return the exit code."""
    PIP_AUDIT.install(CACHE)
    requirements = ("--disable-pip", "--require-hashes", "-r", str(ROOT / "requirements.txt"))
    command = [str(PIP_AUDIT.path), *requirements, "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCAN_S, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        click.echo(f"Not scanned: {done.stderr.strip().rpartition(chr(10))[2]}")
        return UNKNOWN
    code, lines = judge(report)
    click.echo("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
