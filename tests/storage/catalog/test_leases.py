from storage.catalog import Catalog, leases


def test_one_holder_at_a_time(catalog: Catalog) -> None:
    with catalog.write() as tx:
        assert leases.hold(tx, "clock", token="a", lease_s=30)
        assert leases.hold(tx, "clock", token="a", lease_s=30)
        assert not leases.hold(tx, "clock", token="b", lease_s=30)
        leases.release(tx, "clock", token="b")
        assert not leases.hold(tx, "clock", token="b", lease_s=30)
        leases.release(tx, "clock", token="a")
        assert leases.hold(tx, "clock", token="b", lease_s=30)


def test_a_lease_that_ran_out_is_free(catalog: Catalog) -> None:
    with catalog.write() as tx:
        assert leases.hold(tx, "clock", token="a", lease_s=-1)
        assert leases.hold(tx, "clock", token="b", lease_s=30)
