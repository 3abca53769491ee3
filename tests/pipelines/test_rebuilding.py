"""A catalog that was lost is the same again, made from either bucket alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import rebuilding
from pipelines.rebuild_reading import Tally
from storage.model import REPLICAS, Replica
from storage.stores import Stores
from tests.builders import new_uuid
from tests.catalogs import Spares
from tests.pipelines.filled import fill, lost, parts


def rebuild(stores: Stores, replica: Replica) -> dict[str, Tally]:
    return {one.kind: one for one in rebuilding.catalog(stores, replica, token=new_uuid())}


@pytest.mark.parametrize("replica", REPLICAS)
def test_either_bucket_alone_gives_the_catalog_back(
    replica: Replica,
    stores: Stores,
    drain: Callable[[], int],
    spares: Spares,
    tmp_path: Path,
) -> None:
    fill(stores, drain)
    before = parts(stores, replica)
    assert all(part.rows for part in before.values())
    with lost(stores, spares, tmp_path / "lost") as fresh:
        done = rebuild(fresh, replica)
        assert all(one.refused == 0 for one in done.values()), done
        assert parts(fresh, replica) == before
