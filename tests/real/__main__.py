"""The demonstration on real engines: `python -m tests.real`.

Within `python -m tests.engines run`, which names the engines; the buckets go with them.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from ops import demo
from tests.real import engines
from tests.storage.blobs import backend_gcs


def main() -> None:
    """Exit with 0 if every expectation holds."""
    if not engines.ENOUGH:
        sys.exit("STORE_TEST_* name too few engines: python -m tests.engines run -- …")
    with ExitStack() as stack:
        if engines.GCS:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="account-"))
            stack.enter_context(backend_gcs.running(Path(folder)))
        gcp = engines.gcs_bucket() if engines.GCS else engines.s3_bucket()
        settings = stack.enter_context(engines.settings(gcp=gcp))
        for name, value in settings.items():
            click.echo(f"{name}={value}")
        holds = demo.run(settings=settings)
    sys.exit(not holds)


if __name__ == "__main__":
    main()
