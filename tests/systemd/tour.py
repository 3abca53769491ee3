"""Run the demonstration on the machine of the units, as an operator does."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ops import demo
from ops.local_store import LocalStore


class MachineStore(LocalStore):
    """A store whose operators' commands are run by `store-ops`."""

    def run_command(self, *words: str, stdin: str = "") -> str:
        """Run an operator's command; return what it prints."""
        return subprocess.run(
            ("store-ops", *words), input=stdin, capture_output=True, text=True, check=True
        ).stdout


def main() -> None:
    """Exit with 0 if every expectation holds."""
    addresses = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
    began = time.monotonic()
    without_token = MachineStore(Path("/var/lib/store"), *addresses, "", 0.0, {}, 0)
    words = ("token", "--email", "root@example.org", "--groups", "store_admin")
    token = without_token.run_command(*words).strip()
    took_s = time.monotonic() - began
    store = MachineStore(without_token.home, *addresses, token, took_s, {}, 0)
    with tempfile.TemporaryDirectory() as folder:
        demo.write_bundles(Path(folder), None, None)
        sys.exit(not demo.run_tour(store, Path(folder)))


if __name__ == "__main__":
    main()
