"""The first half of an upload as a separate process: a directory into a staging bucket, with all
four checksums. Run as `python -m bench.real.staging <directory> <bucket>`; `transfers` times it."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from store_client.transfer import s3
from store_client.transfer.engine import open_transfer
from store_client.transfer.journal import UploadJournal
from store_client.upload.options import StagingBucket, UploadOptions
from store_client.upload.plan import PlannedFile, plan_files
from store_client.upload.staging import S3Staging, StagedFile, StagingItem
from store_client.versions import create_version


def main(directory: str, bucket: str) -> None:
    """Stage all files by as many jobs as an upload has."""
    options = UploadOptions(Path(directory), "aws", bucket)
    with tempfile.TemporaryDirectory() as folder, open_transfer(options.jobs) as context:
        journal = UploadJournal(Path(folder) / "journal.jsonl", writing=True)
        client = s3.connect(2 * options.jobs)
        target = options.bucket or StagingBucket("s3", bucket, "")
        staging = S3Staging(target, client, context, journal)

        def stage(one: PlannedFile) -> StagedFile:
            return staging.stage(
                StagingItem(one.file, one.content_type, str(uuid4()), create_version())
            )

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(stage, plan_files(options)))
        journal.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
