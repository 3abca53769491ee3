"""RO-Crates of bundles, checked by the validator of the RO-Crate community."""

import io
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from config import Settings
from pipelines import archives
from pipelines.bundles import NewEntry
from pipelines.linked_data import Publisher
from storage.connect import connect
from storage.model import FQID
from storage.pubsub import MemoryPubSub
from tests.api.servers import migrated
from tests.builders import make_file, new_uuid, version
from tests.engines.versions import ROC_VALIDATOR_VARIABLE
from tests.pipelines.test_bundle_versions import put_entries
from tests.real.engines import unless_installed

pytestmark = unless_installed(ROC_VALIDATOR_VARIABLE)
NAMES = ("a.json", "raw/ä.txt", "ro-crate-metadata.json", "a b#100%.txt", "con.txt", "x'\".html")
FILL_CACHE = """
import io, sys
from importlib.resources import files
from requests import Request
from requests_cache import CachedSession
from urllib3 import HTTPResponse

session = CachedSession(sys.argv[1], backend="sqlite", expire_after=-1)
headers = {"Accept": "application/ld+json, application/json, */*;q=0.1"}
url = "https://w3id.org/ro/crate/1.1/context"
request = session.prepare_request(Request("GET", url, headers=headers))
context = files("rocrate").joinpath("data/ro-crate.jsonld").read_bytes()
assert b'"@id": "%s"' % url.encode() in context
kind = {"Content-Type": "application/ld+json"}
answer = HTTPResponse(io.BytesIO(context), kind, 200, preload_content=False)
session.cache.save_response(session.get_adapter(url).build_response(request, answer))
"""
"""The validator reads the context from its cache, so that it works without the Internet."""


LICENSES = ("", "https://creativecommons.org/licenses/by/4.0/")


@pytest.mark.spec("BUN-75")
def test_crates_meet_what_is_required(tmp_path: Path) -> None:
    home = migrated(tmp_path)
    stores = connect(Settings(home=home, secret_key="s" * 32), notices=MemoryPubSub())
    entries = [NewEntry(name, make_file(stores, name.encode()), False) for name in NAMES]
    fqid = put_entries(stores, FQID(new_uuid(), version()), entries)
    command, cache = Path(os.environ[ROC_VALIDATOR_VARIABLE]), tmp_path / "cache"
    python = command.resolve().with_name("python")
    subprocess.run([python, "-c", FILL_CACHE, cache], check=True, timeout=60)
    for number, license_ in enumerate(LICENSES):
        publisher = Publisher("Atlas", "https://store.example", license_)
        archive = archives.prepare_archive(stores, "aws", *fqid, "ro-crate", publisher)
        data = b"".join(archives.stream_archive(stores, archive))
        folder = tmp_path / str(number)
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            zipped.extractall(folder)
        assert validate(command, cache, folder / str(fqid)) == (True, []), license_
    stores.catalog.close()


def validate(command: Path, cache: Path, crate: Path) -> tuple[bool, list[str]]:
    """Return whether a crate passed, and what it lacks."""
    report = crate.with_name("report.json")
    options = ("--offline", "--cache-path", cache, "-f", "json", "-o", report, "--no-paging")
    words = (command, "-y", "--disable-color", "validate", *options, "-l", "required", crate)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert report.exists(), f"{done.stdout}\n{done.stderr}"
    read = json.loads(report.read_text())
    return read["passed"], [issue["message"] for issue in read["issues"]]
