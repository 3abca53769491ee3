"""Fixtures of the operator commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import bundles
from pipelines.bundles import BundleDraft, NewEntry
from storage.model import FQID
from tests.builders import make_file, new_uuid, version
from tests.catalogs import Spares
from tests.ops.commands import opened, run

AUTHOR = "writer@example.org"


@pytest.fixture
def put_catalog(spares: Spares) -> Callable[[Path], None]:
    """Copies a migrated, empty catalog into a home, where `migrate` then has little to do."""

    def put(home: Path) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with spares.lend("sqlite", home):
            pass

    return put


@pytest.fixture
def home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put_catalog: Callable[[Path], None]
) -> Path:
    """The home of the commands, with an empty catalog."""
    monkeypatch.setenv("STORE_HOME", str(tmp_path))
    put_catalog(tmp_path)
    run("migrate")
    return tmp_path


@pytest.fixture
def bundle(home: Path) -> FQID:
    """A bundle of a file of its own, in both replicas."""
    stores = opened(home)
    file = make_file(stores, b"content", everywhere=True)
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry("a.txt", file, False)]), AUTHOR)
    stores.catalog.close()
    return fqid
