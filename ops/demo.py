"""`python -m ops demo`: run the tour of `examples/tour.py` against a new store."""

import csv
import itertools
import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ops import local_store
from ops.local_store import LocalStore
from ops.procfile import ROOT

TOUR = ROOT / "examples" / "tour.py"
USERS = ("reader@example.org", "ingester@example.org")
ROW_BYTES = 512
"""Size of the data file of a bundle that is made of a row."""

SAMPLES = """\
pancreas-islets-healthy   | Homo sapiens            | beta cell            | 5.1.0
pancreas-islets-diabetic  | Homo sapiens            | alpha cell           | 5.1.0
blood-mononuclear-cells   | Homo sapiens            | mononuclear cell     | 5.2.0
bone-marrow-atlas         | Homo sapiens            | stem cell            | 5.2.0
cord-blood-atlas          | Homo sapiens            | stem cell            | 5.2.0
kidney-tumour-margins     | Homo sapiens            | epithelial cell      | 6.0.0
tonsil-germinal-centre    | Homo sapiens            | B cell               | 6.0.0
cortex-organoids          | Homo sapiens            | neural progenitor    | 5.1.0
fibroblast-imaging        | Homo sapiens            | fibroblast           | 6.0.0
retina-bipolar-cells      | Mus musculus            | bipolar neuron       | 5.1.0
mouse-lung-development    | Mus musculus            | alveolar type 2 cell | 5.2.0
mouse-spleen-dissociation | Mus musculus            | dendritic cell       | 4.6.1
mouse-embryo-gastrulation | Mus musculus            | epiblast cell        | 5.2.0
mouse-tibia-transcripts   | Mus musculus            | chondrocyte          | 6.0.0
zebrafish-heart-repair    | Danio rerio             | cardiomyocyte        | 5.2.0
zebrafish-lineages        | Danio rerio             | blastomere           | 5.1.0
fly-midgut-stem-cells     | Drosophila melanogaster | stem cell            | 6.0.0
macaque-visual-cortex     | Macaca mulatta          | excitatory neuron    | 6.0.0
rat-liver-zonation        | Rattus norvegicus       | hepatocyte           | 5.2.0
arabidopsis-root-tip      | Arabidopsis thaliana    | trichoblast          | 4.6.1
"""
MANY_FILES_IN, EMPTY_FILE_IN = "cortex-organoids", "mouse-spleen-dissociation"
LARGE_FILE_IN, LARGE_MIB = "fibroblast-imaging", 200


@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Deposit the bundles of this folder instead of samples.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Deposit at most this many bundles.")
@click.option("--keep", is_flag=True, help="Leave the store open until Ctrl-C; keep its folder.")
def demo(source: Path | None, limit: int | None, keep: bool) -> None:
    """Run a tour of the store, in a temporary store.

    The tour (examples/tour.py) deposits, searches, checks out, collects, withdraws, sends bad
    input and logs two users in. The exit code is 0 if every expectation holds.
    """
    if not run(source, limit, keep=keep):
        raise SystemExit(1)


def run(
    source: Path | None = None,
    limit: int | None = None,
    *,
    keep: bool = False,
    settings: Mapping[str, str] | None = None,
) -> bool:
    """Run the demonstration, with these settings; return whether all expectations hold."""
    if not TOUR.exists():
        raise click.ClickException(
            "the demonstration needs a checkout: examples/tour.py is missing"
        )
    began = time.monotonic()
    with local_store.temporary_home(keep=keep) as home, tempfile.TemporaryDirectory() as folder:
        count = write_bundles(Path(folder), source, limit)
        click.echo("Starting a store ...")
        try:
            with local_store.running_store(home, settings or {}) as store:
                click.echo(f"It is ready after {store.started_in_s:.1f} s, at {store.api}")
                holds = run_tour(store, Path(folder))
                if keep:
                    _wait_at_open_store(store)
                if not holds:
                    click.echo(f"\nThe end of the store's log:\n{store.read_warnings()}")
        except local_store.StartError as error:
            raise click.ClickException(str(error)) from error
        if keep:
            click.echo(f"Run it again: STORE_HOME={home} make run. Remove it: rm -r {home}")
    click.echo(f"{count:,} bundles in {time.monotonic() - began:.1f} s.")
    return holds


def _wait_at_open_store(store: LocalStore) -> None:
    """Say how to look at the store in a browser, and wait for Ctrl-C."""
    link = store.run_command("login-link").strip().splitlines()[-1]
    click.echo(f"\nThe store is open at {store.api}")
    click.echo(f"Log in once as administrator: {link}")
    click.echo("Ctrl-C stops it.")
    with suppress(KeyboardInterrupt):
        signal.pause()


def run_tour(store: LocalStore, bundles: Path) -> bool:
    """Run the tour in a separate process, as users do; return whether it succeeds."""
    passwords = add_users(store, USERS)
    with tempfile.TemporaryDirectory(prefix="client-") as client_home:
        environ = {
            **{key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")},
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "client"))),
            "STORE_CLIENT_HOME": client_home,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            # Not on the command line, which every user of the machine can read.
            "TOUR_TOKEN": store.token,
            "TOUR_LOGINS": " ".join(":".join(login) for login in passwords.items()),
        }
        command = (sys.executable, "-m", "examples.tour", "--url", store.api)
        done = subprocess.run((*command, "--from", str(bundles)), cwd=ROOT, env=environ)
    return done.returncode == 0


def add_users(store: LocalStore, emails: Iterable[str]) -> dict[str, str]:
    """Add users as an operator does; return their passwords."""
    passwords = {email: secrets.token_urlsafe(12) for email in emails}
    with ThreadPoolExecutor() as pool:
        for added in [
            pool.submit(store.run_command, "users", "add", email, stdin=password)
            for email, password in passwords.items()
        ]:
            added.result()
    return passwords


# --- What is deposited: a folder for each bundle ----------------------------------------------


def write_bundles(target: Path, source: Path | None, limit: int | None) -> int:
    """Write a folder for each bundle, of samples or of a folder; return how many there are."""
    bundles = find_bundles(source) if source else sample_bundles()
    count = 0
    for label, files in itertools.islice(bundles, limit):
        for name, content in files.items():
            path = target / label.replace("/", "-") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                path.symlink_to(content.resolve())
            else:
                path.write_bytes(content)
        count += 1
    if not count:
        raise click.ClickException(f"{source} has neither folders with files nor .tsv tables")
    return count


Files = Mapping[str, Path | bytes]
"""Files of a bundle by name."""


def sample_bundles() -> Iterator[tuple[str, Files]]:
    """Samples: single-cell experiments, the same at every run.

    One has many files, one an empty file, and one a file with a multipart ETag.
    """
    for line in SAMPLES.splitlines():
        label, organism, cells, schema = (cell.strip() for cell in line.split("|"))
        files: dict[str, Path | bytes] = {
            "project.json": _to_json(project=label, organism=organism, schema_version=schema),
            "sample_0.json": _to_json(cell_type=cells, donor={"age": 20.5}, disease=None),
        }
        for number in range(48 if label == MANY_FILES_IN else 2):
            files[f"reads/lane{number}.fastq.gz"] = _noise(f"{label} {number}", 24_000)
        if label == EMPTY_FILE_IN:
            files["reads/unassigned.fastq"] = b""
        if label == LARGE_FILE_IN:
            block = _noise(label, (1 << 20) - 8)
            blocks = (number.to_bytes(8, "big") + block for number in range(LARGE_MIB))
            files["images/stack.tiff"] = b"".join(blocks)
        yield label, files


def find_bundles(source: Path) -> Iterator[tuple[str, Files]]:
    """Find bundles in a folder: each lowest folder is one, and each row of a `.tsv` table.

    Folders and tables take turns, so that a limit leaves some of each.
    """
    folders = {path.parent for path in source.rglob("*") if _is_data(path)}
    lowest = [one for one in sorted(folders) if not any(one in other.parents for other in folders)]
    kinds = [_folders(source, lowest), *(_rows(path) for path in sorted(source.rglob("*.tsv")))]
    for turn in itertools.zip_longest(*kinds):
        yield from (bundle for bundle in turn if bundle is not None)


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix != ".tsv" and not path.name.startswith(("README", "."))


def _folders(source: Path, folders: Iterable[Path]) -> Iterator[tuple[str, Files]]:
    for folder in folders:
        label = str(folder.relative_to(source)) if folder != source else source.resolve().name
        yield label, {one.name: one for one in folder.iterdir() if _is_data(one)}


def _rows(table: Path) -> Iterator[tuple[str, Files]]:
    """Bundles of the rows of a table: the row as metadata, and a small data file."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", restkey="more", quoting=csv.QUOTE_NONE))
    columns = rows[0] if rows else {}
    numeric = {column for column in columns if _is_numeric(row.get(column) for row in rows)}
    for number, row in enumerate(rows, 1):
        label = f"{table.stem}/{number:05d}"
        values = {
            column: int(cell) if cell and column in numeric else cell or None
            for column, cell in row.items()
        }
        yield label, {"run.json": _to_json(**values), "reads.fastq.gz": _noise(label, ROW_BYTES)}


def _is_numeric(cells: Iterable[Any]) -> bool:
    """Whether all cells that are given are whole numbers; a leading zero means an identifier."""
    given = [cell for cell in cells if cell]
    return bool(given) and all(re.fullmatch("0|[1-9][0-9]*", str(cell)) for cell in given)


def _to_json(**members: Any) -> bytes:
    return json.dumps(members, ensure_ascii=False).encode()


def _noise(seed: str, size: int) -> bytes:
    """Bytes that cannot be compressed, the same for the same seed."""
    return random.Random(seed).randbytes(size)
