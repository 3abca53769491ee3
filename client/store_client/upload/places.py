"""Which place files wait in: the depositor's bucket if one is named, else an upload area."""

from store_client.client import Client
from store_client.upload import gcs_client, s3_client
from store_client.upload.journal import Journal
from store_client.upload.options import UploadOptions
from store_client.upload.sharing import Shared
from store_client.upload.staging import Staging
from store_client.upload.staging_area import AreaStaging
from store_client.upload.staging_gcs import GcsStaging
from store_client.upload.staging_s3 import S3Staging


def chosen(
    options: UploadOptions, area: str, client: Client, *, shared: Shared, journal: Journal
) -> Staging:
    """The staging of one upload; Misused when what it needs is not installed."""
    bucket = options.bucket
    if bucket is None:
        return AreaStaging(area, client, shared, journal)
    if bucket.scheme == "s3":
        # Files and parts of files are sent by threads of their own.
        return S3Staging(bucket, s3_client.connected(2 * options.jobs), shared, journal)
    return GcsStaging(bucket, gcs_client.connected(), shared, journal)
