"""Download a bundle into a directory: `<download_dir>/<bundle_uuid>.<version>/<name>`."""

from pathlib import Path

from store_client.download import entries
from store_client.download.entries import Listed, Store
from store_client.download.job import Job, job
from store_client.download.options import Filters, Options, checked_uuid
from store_client.download.parallel import Task
from store_client.download.reports import BundleReport
from store_client.names import safe_path
from store_client.versions import parse_version

ALL = Filters()


def download(
    store: Store,
    bundle_uuid: str,
    *,
    options: Options,
    version: str = "",
    filters: Filters = ALL,
) -> BundleReport:
    """Bring the files of a bundle, of its latest version when none is named.

    Each comes into the cache and is linked into the bundle's directory. What is there already is
    not fetched again; what a run that was stopped has left is gone on with. Damaged when bytes are
    not what they should be, Unreachable when the failure quota of a file is used up.
    """
    filters.check()
    uuid = checked_uuid(bundle_uuid, "bundle's uuid")
    if version:
        parse_version(version)
    with job(store, options) as running:
        listed = entries.bundle(store, options.replica, uuid, version=version or None)
        running.run(tasks(running, listed, filters, under=options.directory))
        return BundleReport(
            bundle_uuid=listed.uuid,
            version=listed.version,
            directory=str(options.directory / listed.fqid),
            counts=running.tally.counts(),
            dry_run=options.dry_run,
        )


def tasks(running: Job, listed: Listed, filters: Filters, *, under: Path) -> list[Task]:
    """A task for each file of the bundle that passes, laid out in a directory of its own."""
    wanted = [one for one in listed.files if filters.want(one.name, indexed=one.indexed)]
    return running.files(wanted, safe_path(under, listed.fqid))
