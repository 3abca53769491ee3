"""A GCS emulator as a test engine (see docs/decisions/0013)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops import ports
from tests.engines.engine import Running
from tests.engines.s3 import answers
from tests.engines.service import Service
from tests.engines.versions import GCS_SERVER

VARIABLE = "STORE_TEST_GCS"
missing = GCS_SERVER.missing
there = GCS_SERVER.there
install = GCS_SERVER.install


@contextmanager
def running(home: Path, **_settings: str) -> Iterator[Running]:
    """Start it, empty; stop it at the end."""
    port = ports.find_free_port()
    address = f"http://127.0.0.1:{port}"
    options = {
        "scheme": "http",
        "host": "127.0.0.1",
        "port": str(port),
        "public-host": f"127.0.0.1:{port}",
        "external-url": address,
        # Pages send parts of uploads.
        "cors-headers": "x-goog-content-length-range,x-goog-hash",
        # In a folder, keys are paths: some cannot be stored, and `..` climbs.
        "backend": "memory",
        "log-level": "warn",
    }
    words = [word for name, value in options.items() for word in (f"-{name}", value)]
    command: list[str | Path] = [GCS_SERVER.path, *words]
    ready = f"{address}/_internal/healthcheck"
    with Service(
        f"gs://?endpoint={address}", command, home / "gcs.log", lambda: answers(ready)
    ) as service:
        yield service
