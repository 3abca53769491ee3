"""Create and configure the buckets on your own S3 servers.

Run `python -m deploy.buckets`; it is safe to repeat. Buckets in a cloud are created by its
administrators, with permissions that the store's own account does not have.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from config import Settings, load_settings
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
TAKEN = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")
UNKNOWN = ("NotImplemented", "MethodNotAllowed")
"""What a server answers that does not know a setting."""
NO_RULES = "NoSuchLifecycleConfiguration"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """A bucket of a setting; versioned if its objects are immutable."""

    url: str
    versioned: bool


def wanted(settings: Settings) -> tuple[Wanted, ...]:
    """Every bucket of the settings, once."""
    replicas = [settings.bucket(replica) for replica in REPLICAS]
    others = [settings.areas_url, *(settings.checkout_bucket(replica) for replica in REPLICAS)]
    found = {url: Wanted(url, url in replicas) for url in (*replicas, *others) if url}
    return tuple(found.values())


def settle(bucket: Wanted, say: Say) -> None:
    """Make one bucket, if it is on a server of one's own; safe to repeat."""
    parts = urlsplit(bucket.url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or "endpoint" not in options:
        say(f"{parts.scheme}://{parts.netloc}: left as it is")
        return
    session = boto3.session.Session(
        profile_name=options.get("profile"), region_name=options.get("region")
    )
    region = session.region_name or "us-east-1"
    s3 = session.client("s3", endpoint_url=options["endpoint"], region_name=region, config=PATIENCE)
    made = _make(s3, parts.netloc, region)
    say(f"s3://{parts.netloc} at {options['endpoint']}: {'made' if made else 'was there'}")
    if bucket.versioned:
        _tried(lambda: _keep_versions(s3, parts.netloc), "versions", say)
    _tried(lambda: _abort_old_uploads(s3, parts.netloc), "a rule for unfinished uploads", say)


def _make(s3: Any, name: str, region: str) -> bool:
    # The name of the first region must not be said.
    where = {} if region == "us-east-1" else {"LocationConstraint": region}
    try:
        s3.create_bucket(Bucket=name, **({"CreateBucketConfiguration": where} if where else {}))
    except ClientError as error:
        if _code(error) not in TAKEN:
            raise
        # Perhaps another account's, as after a change of keys: then it has to be open to us.
        s3.head_bucket(Bucket=name)
        return False
    return True


def _keep_versions(s3: Any, name: str) -> None:
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})


def _abort_old_uploads(s3: Any, name: str) -> None:
    """Unless there are rules: writing ours would replace them."""
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


def _tried(work: Callable[[], None], what: str, say: Say) -> None:
    try:
        work()
    except ClientError as error:
        if _code(error) not in UNKNOWN:
            raise
        say(f"  this server knows no {what.removeprefix('a ')}")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def main(environ: Mapping[str, str], say: Say = print) -> None:
    """Settle every bucket that the settings name."""
    for bucket in wanted(load_settings(environ)):
        settle(bucket, say)


if __name__ == "__main__":
    main(os.environ)
