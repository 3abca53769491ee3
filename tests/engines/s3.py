"""An S3 server on a folder (see docs/decisions/0013)."""

import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops import ports
from tests.engines.engine import Running
from tests.engines.service import Service
from tests.engines.versions import S3_SERVER

VARIABLE = "STORE_TEST_S3"
missing = S3_SERVER.missing
there = S3_SERVER.there
install = S3_SERVER.install


@contextmanager
def running(home: Path, **_settings: str) -> Iterator[Running]:
    """Start it with keys of its own, which its clients find in their environment."""
    port = ports.find_free_port()
    for name in ("s3", "s3-versions"):
        (home / name).mkdir()
    credentials = {
        "AWS_ACCESS_KEY_ID": secrets.token_hex(10),
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
        "AWS_REGION": "us-east-1",
    }
    own = {
        "ROOT_ACCESS_KEY": credentials["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": credentials["AWS_SECRET_ACCESS_KEY"],
    }
    listen = ("--port", f"127.0.0.1:{port}", "--health", "/health", "--keep-alive", "--quiet")
    folders = ("posix", "--versioning-dir", home / "s3-versions", home / "s3")
    address = f"http://127.0.0.1:{port}"
    with Service(
        f"s3://?endpoint={address}",
        [S3_SERVER.path, *listen, *folders],
        home / "s3.log",
        lambda: answers(f"{address}/health"),
        credentials,
        own,
    ) as service:
        yield service


def answers(url: str) -> bool:
    """Whether anything speaks HTTP there."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
