"""The example workflows, run by Nextflow and Snakemake over a cohort that a search found."""

import gzip
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from ops.local_store import running_store
from ops.procfile import ROOT
from tests.client.end_to_end.people import STORE, Person, a_person
from tests.engines import nextflow
from tests.engines.versions import SNAKEMAKE_VARIABLE
from tests.real.engines import unless_installed
from tests.waiting import until

WORKFLOWS = ROOT / "examples" / "workflows"
READS = {
    "lane1.fastq.gz": 3,
    "x'; touch pwned; '.fastq.gz": 5,
    "$(touch pwned).fastq.gz": 1,
    '"lane" 2.fastq.gz': 2,
}
"""Reads by file name: depositors choose names, and a shell must not interpret them."""
HEADER = "bundle_uuid\tbundle_version\tfile_uuid\treads"
PATIENCE_S = 240.0


@dataclass(frozen=True)
class Cohort:
    """Two bundles, the manifest of them, and who wrote it."""

    person: Person
    counts: dict[str, str]
    """Expected reads by file."""

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a workflow in the folder of the manifest."""
        path = f"{STORE.parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            command,
            cwd=self.person.folder,
            env={**self.person.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )

    def written(self) -> dict[str, str]:
        """What the workflow counted, by file."""
        header, *rows = (self.person.folder / "results" / "reads.tsv").read_text().splitlines()
        assert header == HEADER
        cells = [row.split("\t") for row in rows]
        assert len(cells) == len(self.counts)
        return {file: reads for _bundle, _version, file, reads in cells}


def a_sequencing_run(folder: Path) -> Path:
    """A directory of metadata, reads, and a file that no workflow wants."""
    folder.mkdir(parents=True)
    (folder / "sample.json").write_text(json.dumps({"organism": "Danio rerio"}))
    (folder / "notes.txt").write_text("not reads\n")
    for name, reads in READS.items():
        record = f"@{folder.name}\nACGT\n+\nFFFF\n"
        (folder / name).write_bytes(gzip.compress((record * reads).encode(), mtime=0))
    return folder


@pytest.fixture
def cohort(tmp_path: Path) -> Iterator[Cohort]:
    """The manifest of a search, as a scientist would have it."""
    (tmp_path / "store").mkdir()
    with running_store(tmp_path / "store", {}) as store:
        person = a_person(tmp_path / "person", store.api)
        assert person.types("login", "--access-token", "-", given=store.token).returncode == 0
        bundles = [
            person.gets("upload", str(a_sequencing_run(tmp_path / name)))["bundle_uuid"]
            for name in ("run1", "run2")
        ]
        until(lambda: len(person.types("search", "danio").stdout.splitlines()) == len(bundles))
        assert person.types("search", "danio", "--manifest", "cohort.tsv").returncode == 0
        counts = {
            file["uuid"]: str(READS[file["name"]])
            for bundle in bundles
            for file in person.gets("bundle", "files", bundle)
            if file["name"] in READS
        }
        assert len(counts) == len(bundles) * len(READS)
        yield Cohort(person, counts)


def by_nextflow(cohort: Cohort, manifest: str) -> tuple[str, ...]:
    """The command line of the page, with a Nextflow that asks nobody for updates."""
    home = cohort.person.home / "nextflow"
    return (
        *("env", "NXF_OFFLINE=true", f"NXF_HOME={home}"),
        *(*nextflow.JAVA, "-cp", os.environ[nextflow.VARIABLE], "nextflow.cli.Launcher"),
        *("run", str(WORKFLOWS / "count_reads.nf"), "--manifest", manifest, "-resume"),
        *("-ansi-log", "false"),
    )


def by_snakemake(_cohort: Cohort, manifest: str) -> tuple[str, ...]:
    """The command line of the page."""
    return (
        *(os.environ[SNAKEMAKE_VARIABLE], "--snakefile", str(WORKFLOWS / "Snakefile")),
        *("--cores", "4", "--config", f"manifest={manifest}"),
    )


@pytest.mark.parametrize(
    ("command", "goes_on"),
    [
        pytest.param(
            by_nextflow, "Cached process > FETCH", marks=unless_installed(nextflow.VARIABLE)
        ),
        pytest.param(
            by_snakemake, "Nothing to be done", marks=unless_installed(SNAKEMAKE_VARIABLE)
        ),
    ],
    ids=["nextflow", "snakemake"],
)
def test_workflow_counts_the_reads_of_a_manifest(
    cohort: Cohort, command: Callable[[Cohort, str], tuple[str, ...]], goes_on: str
) -> None:
    rows = (cohort.person.folder / "cohort.tsv").read_text()
    bundle = rows.splitlines()[1].split("\t")[0]
    (cohort.person.folder / "wrong.tsv").write_text(rows.replace(bundle, str(UUID(int=1))))
    failed = cohort.run(*command(cohort, "wrong.tsv"))
    assert failed.returncode != 0, "files that could not be fetched are no result"
    assert str(UUID(int=1)) in failed.stdout
    assert not (cohort.person.folder / "results" / "reads.tsv").exists()
    done = cohort.run(*command(cohort, "cohort.tsv"))
    assert done.returncode == 0, done.stdout
    assert cohort.written() == cohort.counts
    assert not list(cohort.person.folder.rglob("pwned"))
    again = cohort.run(*command(cohort, "cohort.tsv"))
    assert again.returncode == 0, again.stdout
    assert goes_on in again.stdout
    assert cohort.written() == cohort.counts
