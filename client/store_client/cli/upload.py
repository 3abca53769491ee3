"""The command upload."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import replica_option
from store_client.cli.progress import open_progress
from store_client.cli.summaries import show_upload
from store_client.errors import Misused
from store_client.uploads.options import JOBS, MAX_JOBS, METADATA, TIMEOUT_SECONDS, UploadOptions

if TYPE_CHECKING:
    from store_client.uploads.plan import UploadReport

AGAIN = "interrupted: run the same command again to resume"
ANOTHER = (
    "This directory was uploaded before, as bundle {0}, and has changed since: this is another"
    " bundle. For a new version of that one: --bundle-uuid {0}"
)
ABOUT = """Upload a directory of files to the store as a bundle.

Names in the bundle are relative to the directory. Names that end with .json are metadata, unless
--indexed says otherwise. Links to files are followed, links to directories are not. An interrupted
run resumes when you give the same command again; nothing is sent if the store has the same content.
"""
MORE = """\b
Examples:
  store upload sample
  store upload sample --dry-run
  store upload sample --replica gcp --bundle-uuid UUID     (a new version of a bundle)
  store upload sample --staging-bucket s3://my-bucket/staging
Without a staging bucket, files are staged in an upload area of the store. Buckets on S3 need
consortium-store-client[s3], those of Google consortium-store-client[gcs]; what was staged in a
bucket of your own stays there. At most 512 MiB of files are held in memory.
"""


@command("upload", help=ABOUT, epilog=MORE)
@click.argument(
    "directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "--src-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory, as without this option.",
)
@replica_option
@click.option(
    "--staging-bucket",
    default="",
    metavar="BUCKET",
    help="Your bucket, where files stay until they are verified: s3://bucket/prefix,"
    " gs://bucket/prefix, or a name in the replica's cloud. Default: an upload area.",
)
@click.option(
    "--timeout-seconds",
    type=click.FloatRange(min=0),
    default=TIMEOUT_SECONDS,
    show_default=True,
    help="How long to wait for the store's verification.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option(
    "--bundle-uuid", metavar="UUID", help="Add a version to this bundle. Default: a new bundle."
)
@click.option(
    "--creator-uid",
    type=int,
    default=0,
    show_default=True,
    help="The creator's number, stored with files and bundle.",
)
@click.option(
    "--indexed",
    multiple=True,
    metavar="PATTERN",
    default=METADATA,
    show_default=True,
    help="Names of metadata files, which search indexes; may be repeated.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    default=JOBS,
    show_default=True,
    help="Files, and parts of large files, uploaded at once.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option(
    "--allow-invalid-json", is_flag=True, help="Upload metadata files even if they are not JSON."
)
def upload(
    here: CommandContext,
    directory: Path | None,
    src_dir: Path | None,
    replica: str | None,
    no_progress: bool,
    **given: Any,
) -> None:
    """Upload a directory, and show the bundle."""
    if (directory is None) == (src_dir is None):
        raise Misused("name one directory", hint="store upload DIRECTORY")
    chosen = here.replica(replica)
    options = UploadOptions(src_dir=directory or src_dir or Path(), replica=chosen, **given)
    running: Any = importlib.import_module("store_client.uploads.job")
    try:
        with open_progress(enabled=not (no_progress or here.quiet), what="upload") as progress:
            done = running.upload(here.client, options, progress)
    except KeyboardInterrupt:
        here.note(AGAIN)
        raise
    if done.earlier_uuid:
        here.note(ANOTHER.format(done.earlier_uuid))
    if here.output == "table" and not here.format_chosen and done.bundle_uuid and done.version:
        show_upload(here, done, chosen)
    else:
        here.show(done.as_json(), title=_result_title(done))


def _result_title(done: "UploadReport") -> str:
    """The title of a table of files: bundle and state."""
    name = f"{done.bundle_uuid or 'a new one'} {done.version or ''}".strip()
    return f"bundle {name}: {done.state}"
