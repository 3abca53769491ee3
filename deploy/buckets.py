"""Create and configure the buckets on your own S3 servers.

Run `python -m deploy.buckets`; it is safe to repeat. Buckets in a cloud are created by its
administrators, with permissions that the store's own account does not have.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from config import load_settings
from storage.model import REPLICAS

UPLOAD_DAYS = 14
"""Age at which an unfinished upload goes, counted from its beginning. The clock aborts forgotten
ones after a day without a new part; this is for a store that is no more."""

# The server may be starting.
PATIENCE = Config(
    connect_timeout=5,
    read_timeout=20,
    retries={"total_max_attempts": 8, "mode": "standard"},
    s3={"addressing_style": "path"},
)
EXISTS = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")
NOT_IMPLEMENTED = ("NotImplemented", "MethodNotAllowed")
NO_RULES = "NoSuchLifecycleConfiguration"

Report = Callable[[str], None]


def main(environ: Mapping[str, str], report: Report = print) -> None:
    """Create and configure every bucket that the settings name."""
    settings = load_settings(environ)
    replicas = [settings.bucket(replica) for replica in REPLICAS]
    others = [settings.areas_url, *(settings.checkout_bucket(replica) for replica in REPLICAS)]
    for url in dict.fromkeys((*replicas, *others)):
        if url:
            # Objects of replicas are immutable.
            configure_bucket(url, report, versioned=url in replicas)


def configure_bucket(url: str, report: Report, *, versioned: bool) -> None:
    """Create and configure one bucket, if it is on your own server; safe to repeat."""
    parts = urlsplit(url)
    name, options = parts.netloc, dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or "endpoint" not in options:
        report(f"{parts.scheme}://{name}: left as it is")
        return
    session = boto3.session.Session(
        profile_name=options.get("profile"), region_name=options.get("region")
    )
    region = session.region_name or "us-east-1"
    s3 = session.client("s3", endpoint_url=options["endpoint"], region_name=region, config=PATIENCE)
    is_new = _create_bucket(s3, name, region)
    report(f"s3://{name} at {options['endpoint']}: {'made' if is_new else 'was there'}")
    steps = {"versions": _enable_versions} if versioned else {}
    for what, step in {**steps, "rule for unfinished uploads": _abort_old_uploads}.items():
        try:
            step(s3, name)
        except ClientError as error:
            if _code(error) not in NOT_IMPLEMENTED:
                raise
            report(f"  this server knows no {what}")


def _create_bucket(s3: Any, name: str, region: str) -> bool:
    """Return whether the bucket is new."""
    # S3 rejects the name of the first region.
    where = {} if region == "us-east-1" else {"LocationConstraint": region}
    try:
        s3.create_bucket(Bucket=name, **({"CreateBucketConfiguration": where} if where else {}))
    except ClientError as error:
        if _code(error) not in EXISTS:
            raise
        # After a change of keys it may be another account's: then it must be open to this one.
        s3.head_bucket(Bucket=name)
        return False
    return True


def _enable_versions(s3: Any, name: str) -> None:
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})


def _abort_old_uploads(s3: Any, name: str) -> None:
    """Add a rule unless there are rules: ours would replace them."""
    try:
        s3.get_bucket_lifecycle_configuration(Bucket=name)
    except ClientError as error:
        if _code(error) != NO_RULES:
            raise
        rule = {
            "ID": "unfinished-uploads",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UPLOAD_DAYS},
        }
        s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [rule]})


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


if __name__ == "__main__":
    main(os.environ)
