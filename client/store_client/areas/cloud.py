"""Straight into the cloud, with temporary credentials that reach no further than the area.

Only where the store gives such, and where the extra that speaks to that cloud is installed; the
clouds' own libraries are in s3.py and gcs.py.
"""

import importlib
import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from store_client.areas import asking
from store_client.areas.journal import Journal
from store_client.areas.reading import Outgoing
from store_client.areas.sent import Sending, Sent, checked
from store_client.checksums import Checksums
from store_client.errors import Damaged, Refused

log = logging.getLogger(__name__)

NEEDS = {"s3": "boto3", "gs": "google.cloud.storage"}
"""What has to be installed to send there."""


class Bucket(Protocol):
    """The part of a bucket that an area is."""

    def url(self, name: str) -> str:
        """What put_file takes as the source of that file."""

    def fill(self, sending: Sending, outgoing: Outgoing, journal: Journal) -> Checksums:
        """Send what is not there yet of a file; Damaged when it has to be begun anew."""


def bucket_of(sending: Sending) -> Bucket | None:
    """Where files of this area may be sent to directly; None: through the store."""
    usable = [kind for kind, module in NEEDS.items() if _installed(module)]
    if not usable:
        return None
    try:
        said = asking.credentials(sending.client, sending.area)
    except Refused as error:
        log.info("no credentials for the area, so files go through the store: %s", error)
        return None
    return _bucket(sending, said) if said["kind"] in usable else None


def send_direct(sending: Sending, outgoing: Outgoing, *, bucket: Bucket) -> Sent:
    """Send a file there, and wait until the store has seen that it is all right."""
    journal = Journal(sending.client.config, sending.area, outgoing=outgoing, way="cloud")
    try:
        ours = _filled(sending, outgoing, bucket=bucket, journal=journal)
        checked(sending, outgoing, ours)
    except Damaged:
        journal.drop()
        raise
    journal.drop()
    return Sent(bucket.url(outgoing.name), outgoing.size, ours)


def _filled(sending: Sending, outgoing: Outgoing, *, bucket: Bucket, journal: Journal) -> Checksums:
    kept = journal.read()
    if "checksums" in kept:
        sending.tell.bytes(outgoing.size)
        return Checksums(**kept["checksums"])
    ours = bucket.fill(sending, outgoing, journal)
    said = {
        "content_type": outgoing.content_type,
        "size": outgoing.size,
        "checksums": asdict(ours),
    }
    asking.arrived(sending.client, sending.area, outgoing.name, said=said)
    journal.keep({"checksums": asdict(ours)})
    return ours


def _bucket(sending: Sending, said: Mapping[str, Any]) -> Bucket:
    name = {"s3": "store_client.areas.s3", "gs": "store_client.areas.gcs"}[said["kind"]]
    made: Bucket = importlib.import_module(name).bucket(sending, said)
    return made


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
