"""Counts of large catalogs come from a sample, those of small ones from every row."""

import pytest

from bench.stores import add_bundles, add_files, new_fqids
from storage.catalog import Catalog, integrity, statistics
from storage.model import REPLICAS

MOST = statistics.SPANS * statistics.SPAN_IDS


@pytest.mark.parametrize("last_id", [0, 1, 99, 100, 12_345, 1_000_000_000])
def test_sample_covers_all_ids_evenly(last_id: int) -> None:
    sample = statistics.choose_ids(last_id)
    assert len(sample.ids) == len(set(sample.ids)) <= min(last_id, MOST)
    assert sample.scale(len(sample.ids)) == last_id
    if last_id > MOST:
        assert len(sample.ids) > 0.9 * MOST
        assert min(sample.ids) == 1
        assert last_id - max(sample.ids) <= last_id / 100
    else:
        assert list(sample.ids) == list(range(1, last_id + 1))


def test_estimates_of_a_sample_of_all_are_exact(catalog: Catalog) -> None:
    """Few ids are all in the sample, whose statements must count as the others do."""
    add_files(catalog, new_fqids(30, salt="f"), "aws")
    add_bundles(catalog, new_fqids(20, salt="b"), "aws")
    add_bundles(catalog, new_fqids(7, salt="c"), "gcp")
    with catalog.read() as tx:
        counted, estimated = statistics.count_store(tx), statistics.count_store(tx, exact_ids=0)
        assert (counted.is_estimate, estimated.is_estimate) == (False, True)
        assert (estimated.bundles, estimated.files, estimated.bytes) == (
            {"aws": 20, "gcp": 7},
            {"aws": 30, "gcp": 0},
            counted.bytes,
        )
        for replica in REPLICAS:
            every = integrity.count_objects(tx, replica, since_us=1)
            sampled = integrity.count_objects(tx, replica, since_us=1, exact_ids=0)
            assert (sampled.objects, sampled.verified) == (every.objects, every.verified)
            assert every.objects == {"aws": 80, "gcp": 7}[replica]
