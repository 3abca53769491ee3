"""Leases of background processes in the catalog."""

from storage.catalog import Catalog, store_state


def test_one_holder_at_a_time(catalog: Catalog) -> None:
    with catalog.write() as tx:
        assert store_state.acquire_lease(tx, "clock", token="a", lease_s=30)
        assert store_state.acquire_lease(tx, "clock", token="a", lease_s=30)
        assert not store_state.acquire_lease(tx, "clock", token="b", lease_s=30)
        store_state.release_lease(tx, "clock", token="b")
        assert not store_state.acquire_lease(tx, "clock", token="b", lease_s=30)
        store_state.release_lease(tx, "clock", token="a")
        assert store_state.acquire_lease(tx, "clock", token="b", lease_s=30)


def test_a_lease_that_ran_out_is_free(catalog: Catalog) -> None:
    with catalog.write() as tx:
        assert store_state.acquire_lease(tx, "clock", token="a", lease_s=-1)
        assert store_state.acquire_lease(tx, "clock", token="b", lease_s=30)
