"""File permissions of an SQLite catalog."""

import os
import stat
from pathlib import Path

import pytest

from storage.catalog import Catalog, now_us

pytestmark = pytest.mark.spec("OPS-25")


def used(path: Path) -> set[int]:
    """The modes of all files of a catalog that is in use."""
    catalog = Catalog(f"sqlite:///{path}")
    with catalog.write() as tx:
        tx.exec_driver_sql("CREATE TABLE IF NOT EXISTS t (a)")
        assert now_us(tx)
    found = {stat.S_IMODE(one.stat().st_mode) for one in path.parent.glob(f"{path.name}*")}
    catalog.engine.dispose()
    return found


@pytest.fixture
def _open_to_all() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_to_all")
def test_new_catalog_is_private(tmp_path: Path) -> None:
    assert used(tmp_path / "catalog.sqlite") == {0o600}


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o640), (0o664, 0o660), (0o600, 0o600)])
@pytest.mark.usefixtures("_open_to_all")
def test_readable_catalog_is_made_private(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "catalog.sqlite"
    used(path)
    path.chmod(before)
    used(path)
    assert stat.S_IMODE(path.stat().st_mode) == after
