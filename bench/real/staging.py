"""The first half of an upload as a process of its own: a directory into a staging bucket, with all
four checksums. Run as `python -m bench.real.staging <directory> <bucket>`; `transfers` times it."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from store_client.upload import s3_client
from store_client.upload.journal import Journal
from store_client.upload.options import Bucket, UploadOptions
from store_client.upload.planning import Wanted, wanted
from store_client.upload.sharing import sharing
from store_client.upload.staging import Item, Staged
from store_client.upload.staging_s3 import S3Staging
from store_client.versions import create_version


def main(directory: str, bucket: str) -> None:
    """Stage all files by as many jobs as an upload has."""
    options = UploadOptions(Path(directory), "aws", bucket)
    with tempfile.TemporaryDirectory() as folder, sharing(options.jobs) as shared:
        journal = Journal(Path(folder) / "journal.jsonl", writing=True)
        client = s3_client.connected(2 * options.jobs)
        staging = S3Staging(options.bucket or Bucket("s3", bucket, ""), client, shared, journal)

        def stage(one: Wanted) -> Staged:
            return staging.stage(Item(one.file, one.content_type, str(uuid4()), create_version()))

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(stage, wanted(options)))
        journal.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
