"""Print what an image consists of, as a CycloneDX bill of materials (SBOM) in JSON.

Run `python -m deploy.sbom` in a container of the image; `make sbom` does. The same image gives the
same text: it has neither a time nor a serial number.
"""

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from typing import Any
from urllib.parse import quote

from config import VERSION

SPECIFICATION = "1.6"
DEBIAN_FIELDS = ("Package", "Version", "Architecture", "source:Package", "db:Status-Status")
INSTALLED = "installed"

Component = dict[str, Any]


def build_sbom(components: Iterable[Component]) -> dict[str, Any]:
    """Return the bill of materials of the store with these components."""
    name = "consortium-store"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": name, "version": VERSION, "bom-ref": name}
        },
        "components": sorted(components, key=lambda one: str(one["bom-ref"])),
    }


def describe_libraries(found: Iterable[Distribution]) -> list[Component]:
    """Describe Python distributions, each once."""
    versions = {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one.version for one in found}
    return [
        _component(name, version, f"pkg:pypi/{name}@{quote(version)}")
        for name, version in versions.items()
    ]


def describe_system_packages(lines: Iterable[str], release: Mapping[str, str]) -> list[Component]:
    """Describe installed Debian packages, from lines of `dpkg-query` with DEBIAN_FIELDS."""
    distro = f"{release['ID']}-{release['VERSION_ID']}"
    found = []
    for line in lines:
        name, version, architecture, source, state = line.split("\t")
        if state == INSTALLED:
            place = f"pkg:deb/{release['ID']}/{quote(name)}@{quote(version, safe='')}"
            # Advisories are about source packages.
            qualifiers = f"arch={architecture}&distro={distro}&upstream={quote(source)}"
            found.append(_component(name, version, f"{place}?{qualifiers}"))
    return found


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main() -> None:
    """Print the bill of materials of this image."""
    wanted = "\\t".join(f"${{{field}}}" for field in DEBIAN_FIELDS) + "\\n"
    command = ["dpkg-query", "--show", f"--showformat={wanted}"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    release = platform.freedesktop_os_release()
    components = describe_libraries(distributions())
    components += describe_system_packages(lines, release)
    python = platform.python_version()
    components.append(_component("python", python, f"pkg:generic/python@{quote(python)}"))
    json.dump(build_sbom(components), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
