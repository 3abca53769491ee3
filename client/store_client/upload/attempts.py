"""Which bundle version an upload makes: the one that was begun, or a new one."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from store_client.transport.session import Session
from store_client.upload.journal import Attempt, Journal
from store_client.upload.options import UploadOptions
from store_client.upload.planning import Existing, existing
from store_client.versions import create_version, parse_version


def found(options: UploadOptions, session: Session, journal: Journal) -> Existing | None:
    """The version that this upload may have made already: of a bundle that was named the latest,
    else what the journal tells of."""
    if options.bundle:
        return existing(session, options.replica, options.bundle, None)
    if (made := journal.attempt) is None:
        return None
    return existing(session, options.replica, made.uuid, made.version)


def begun(options: UploadOptions, journal: Journal, there: Existing | None) -> Attempt:
    """The version that is to be made; `there` is a version of this bundle with other content."""
    before = journal.attempt
    if before and not before.finished and (there is None or there.version < before.version):
        return before
    version = later(there.version) if there and options.bundle else create_version()
    attempt = Attempt(options.bundle or str(uuid4()), version, str(uuid4()))
    journal.begin(attempt)
    return attempt


def later(version: str) -> str:
    """Now, or just after a version whose maker's clock is ahead."""
    after = parse_version(version) + timedelta(microseconds=1)
    return create_version(max(after, datetime.now(UTC)))
