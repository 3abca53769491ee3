"""Dask, pandas and xarray read files of the store in place."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.local_store import running_store
from ops.procfile import ROOT
from tests.client.end_to_end.people import Person, a_person
from tests.engines.versions import ANALYSIS_VARIABLE

pytestmark = pytest.mark.skipif(
    ANALYSIS_VARIABLE not in os.environ, reason=f"{ANALYSIS_VARIABLE} is not set"
)
ROWS = 300_000
MAKE_FILES = """
import sys
import h5py, numpy, pandas

folder, rows = sys.argv[1], int(sys.argv[2])
frame = pandas.DataFrame({"gene": numpy.arange(rows) % 7, "count": numpy.arange(rows)})
frame.to_csv(f"{folder}/counts.csv", index=False)
frame.to_parquet(f"{folder}/counts.parquet", row_group_size=10_000)
with h5py.File(f"{folder}/image.h5", "w") as image:
    made = image.create_dataset("signal", data=numpy.random.default_rng(1).random((1000, 1000)))
    made.dims[0].label, made.dims[1].label = "y", "x"
"""
READ_FILES = """
import json, sys
import dask, dask.dataframe, fsspec, pandas, xarray
from store_client.remote.filesystem import StoreFileSystem

fsspec.register_implementation("store", StoreFileSystem)
dask.config.set(scheduler="threads")
bundle = sys.argv[1]
table = dask.dataframe.read_csv(f"{bundle}/counts.csv", blocksize="1MB")
columns = dask.dataframe.read_parquet(f"{bundle}/counts.parquet", columns=["count"])
one = pandas.read_csv(f"{bundle}/counts.csv")
with fsspec.open(f"{bundle}/image.h5").open() as file:
    image = xarray.open_dataset(file, engine="h5netcdf", phony_dims="access")
    corner = float(image["signal"][:10, :10].sum())
    whole = float(image["signal"].sum())
print(json.dumps({
    "parts": table.npartitions,
    "sums": {str(gene): int(value) for gene, value in
             table.groupby("gene")["count"].sum().compute().items()},
    "parquet": int(columns["count"].sum().compute()),
    "pandas": int(one["count"].sum()),
    "part of the image": corner < whole,
    "image": round(whole),
}), flush=True)
"""


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """An analyst with a store."""
    (tmp_path / "store").mkdir()
    with running_store(tmp_path / "store", {}) as store:
        found = a_person(tmp_path / "person", store.api)
        assert found.types("login", "--access-token", "-", given=store.token).returncode == 0
        yield found


def run(person: Person, program: str, *words: str) -> str:
    """Run a program in the analysts' environment."""
    python = Path(os.environ[ANALYSIS_VARIABLE]).resolve().with_name("python")
    done = subprocess.run(
        [python, "-c", program, *words],
        cwd=person.folder,
        env={**person.environ, "PYTHONPATH": str(ROOT / "client")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.spec("DOC-05")
def test_tables_and_arrays_are_read_from_the_store(person: Person) -> None:
    data = person.folder / "data"
    data.mkdir()
    run(person, MAKE_FILES, str(data), str(ROWS))
    bundle = person.gets("upload", str(data))["bundle_uuid"]
    told = json.loads(run(person, READ_FILES, f"store://bundle/{bundle}"))
    assert told.pop("parts") > 1, "read in parts"
    assert told.pop("image") == pytest.approx(500_000, rel=0.01)
    total = ROWS * (ROWS - 1) // 2
    assert told == {
        "sums": {str(gene): sum(range(gene, ROWS, 7)) for gene in range(7)},
        "parquet": total,
        "pandas": total,
        "part of the image": True,
    }
