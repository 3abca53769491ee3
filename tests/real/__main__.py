"""`python -m tests.real`: the demonstration with every part on a real engine.

Within `python -m tests.engines run`, which names the engines; the buckets go with them.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from ops.demo import cli, samples
from tests.real import engines
from tests.storage.blobs import backend_gcs


def main() -> None:
    """Exit code 0 when everything held."""
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
        held = cli.run(Console(), samples.bundles(), settings=settings)
    sys.exit(not held)


if __name__ == "__main__":
    main()
