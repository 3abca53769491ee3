"""Endpoint rows: found by index, leased and released."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from storage.catalog import Catalog, Tx, endpoints, now_us, subscriptions
from storage.catalog.endpoints import Endpoint, EndpointVisit, LeaseHolder
from storage.catalog.subscriptions import Subscription
from storage.catalog.tables.event_log import subscriptions as subscription_rows
from storage.errors import Unavailable
from tests.storage.catalog.query_cost import work_of
from tests.subscription_builders import backlog, subscribe, tell
from workers.delivery_turns import DeliveryRules

URL = "https://receiver.example"


def waiting(catalog: Catalog, limit: int = 100) -> list[int]:
    with catalog.read() as tx:
        return endpoints.list_waiting(tx, limit=limit)


def claim(catalog: Catalog, ids: list[int], token: str, lease_s: float = 60) -> list[Endpoint]:
    with catalog.write() as tx:
        endpoints.lock(tx, ids)
        probes = dict.fromkeys(ids, True)
        return endpoints.claim(tx, probes, token=token, lease_s=lease_s, patience=5)


def test_an_endpoint_is_found_when_something_is_due_for_it(catalog: Catalog) -> None:
    one, other, later = (subscribe(catalog, f"{URL}/{n}") for n in range(3))
    assert waiting(catalog) == []
    tell(catalog, [one, later])
    with catalog.write() as tx:
        tx.execute(
            text("UPDATE deliveries SET due_us = due_us + 60000000 WHERE endpoint_id = :id"),
            {"id": later.endpoint_id},
        )
    assert waiting(catalog) == [one.endpoint_id]
    tell(catalog, [other])
    assert set(waiting(catalog)) == {one.endpoint_id, other.endpoint_id}
    assert len(waiting(catalog, limit=1)) == 1


def test_one_token_holds_lease_until_expiry(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    ident = subscription.endpoint_id
    assert claim(catalog, [ident], "a", lease_s=1.5) == [Endpoint(ident, 0, 4.0, 0)]
    assert claim(catalog, [ident], "b") == []
    assert waiting(catalog) == []
    with catalog.write() as tx:
        assert endpoints.renew(tx, [ident], token="a", lease_s=1.5) == {ident}
        assert endpoints.renew(tx, [ident], token="b", lease_s=1.5) == set()
    time.sleep(1.6)
    assert waiting(catalog) == [ident]
    assert [row.id for row in claim(catalog, [ident], "b")] == [ident]
    with catalog.write() as tx:
        assert endpoints.renew(tx, [ident], token="a", lease_s=1.5) == set()
        endpoints.release(tx, [Endpoint(ident, 9, 1.0, 0)], token="a")
    assert claim(catalog, [ident], "c") == []


def test_racing_claims_share_without_overlap(catalog: Catalog) -> None:
    ids = [subscribe(catalog, f"{URL}/{n}").endpoint_id for n in range(30)]
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda token: claim(catalog, ids, token), "abcdef"))
    got = [row.id for rows in claims for row in rows]
    assert sorted(got) == ids


def test_release_stores_window_and_resting_endpoint_is_not_claimed(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    ident = subscription.endpoint_id
    claim(catalog, [ident], "a")
    with catalog.write() as tx:
        resume = now_us(tx) + 60_000_000
        endpoints.release(tx, [Endpoint(ident, 6, 1.5, resume)], token="a")
    assert waiting(catalog) == []
    with catalog.write() as tx:
        endpoints.wake(tx, ident)
    assert waiting(catalog) == [ident]
    assert claim(catalog, [ident], "b") == [Endpoint(ident, 6, 1.5, 0)]


def test_longest_unserved_endpoint_comes_first(catalog: Catalog) -> None:
    one, two = (subscribe(catalog, f"{URL}/{n}") for n in range(2))
    tell(catalog, [one, two])
    for subscription in (two, one):
        (held,) = claim(catalog, [subscription.endpoint_id], "a")
        with catalog.write() as tx:
            endpoints.release(tx, [held], token="a")
        time.sleep(0.002)
    assert waiting(catalog) == [two.endpoint_id, one.endpoint_id]


@pytest.mark.parametrize("known", ["nothing", "next to nothing"])
def test_a_long_backlog_is_one_step_of_the_walk(catalog: Catalog, known: str) -> None:
    dead, alive = subscribe(catalog, f"{URL}/dead"), subscribe(catalog, f"{URL}/alive")
    tell(catalog, [dead, alive])
    if known == "next to nothing":
        # As a store at rest does every night, before the receiver dies.
        with catalog.write() as tx:
            tx.execute(text("ANALYZE"))
    short = work_of(catalog, lambda tx: endpoints.list_waiting(tx, limit=100))
    backlog(catalog, dead, 50_000)
    long = work_of(catalog, lambda tx: endpoints.list_waiting(tx, limit=100))
    assert set(waiting(catalog)) == {dead.endpoint_id, alive.endpoint_id}
    assert 0 < long < short + 100, (short, long)


def test_empty_claim_does_nothing(catalog: Catalog) -> None:
    assert claim(catalog, [], "a") == []
    with catalog.write() as tx:
        assert endpoints.renew(tx, [], token="a", lease_s=1) == set()
        endpoints.release(tx, [], token="a")


def addresses(catalog: Catalog) -> list[str]:
    with catalog.read() as tx:
        return list(tx.execute(text("SELECT address FROM endpoints ORDER BY address")).scalars())


def forgotten(catalog: Catalog) -> int:
    with catalog.read() as tx:
        unnamed, after = endpoints.list_unreferenced(tx, limit=100)
    assert after is None
    with catalog.write() as tx:
        return endpoints.delete_unreferenced(tx, unnamed)


def withdraw(catalog: Catalog, gone: Subscription) -> None:
    with catalog.write() as tx:
        subscriptions.mark_deleted(tx, gone)
        assert subscriptions.delete(tx, gone.id)


@pytest.mark.spec("NOT-23")
def test_an_endpoint_goes_with_the_last_subscription_that_names_it(catalog: Catalog) -> None:
    one, twin, deleted, other = (
        subscribe(catalog, f"{URL}/{name}") for name in ("a", "a", "b", "c")
    )
    with catalog.write() as tx:
        subscriptions.mark_deleted(tx, deleted)
    withdraw(catalog, one)
    withdraw(catalog, other)
    assert forgotten(catalog) == 1
    assert [address[-2:] for address in addresses(catalog)] == ["/a", "/b"]
    withdraw(catalog, twin)
    assert forgotten(catalog) == 1
    assert forgotten(catalog) == 0
    again = subscribe(catalog, f"{URL}/a")
    tell(catalog, [again])
    assert waiting(catalog) == [again.endpoint_id]


@pytest.mark.spec("NOT-23")
def test_lists_unreferenced_endpoints_in_pages(catalog: Catalog) -> None:
    every = [subscribe(catalog, f"{URL}/{number}") for number in range(5)]
    for gone in every[1:4]:
        withdraw(catalog, gone)
    pages: list[list[int]] = []
    after: int | None = 0
    while after is not None:
        with catalog.read() as tx:
            page, after = endpoints.list_unreferenced(tx, after=after, limit=2)
        pages.append(page)
    first, second, third = (one.endpoint_id for one in every[1:4])
    assert pages == [[first], [second, third], []]


def add_idle_receivers(catalog: Catalog, like: Subscription, count: int) -> None:
    """Insert endpoints with a subscription like the given one, but nothing to send."""
    differing = ("id", "uuid", "endpoint_id")
    same = ", ".join(one.name for one in subscription_rows.c if one.name not in differing)
    numbers = (
        "WITH RECURSIVE numbers (n) AS"
        " (SELECT 1000 UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)"
    )
    with catalog.write() as tx:
        for statement in (
            f"INSERT INTO endpoints (id, address) {numbers}"
            " SELECT n, 'https://idle.example/' || n FROM numbers",
            f"INSERT INTO subscriptions (id, uuid, endpoint_id, {same}) {numbers}"
            f" SELECT n, 'idle ' || n, n, {same} FROM numbers JOIN subscriptions ON id = {like.id}",
        ):
            tx.execute(text(statement), {"last": 999 + count})
        tx.execute(text("ANALYZE"))


@pytest.mark.parametrize("act", ["active", "unreferenced"])
def test_idle_receivers_are_not_read(catalog: Catalog, act: str) -> None:
    busy = [subscribe(catalog, f"{URL}/{number}") for number in range(3)]
    for one in busy:
        tell(catalog, [one])

    def read(tx: Tx) -> object:
        if act == "active":
            return endpoints.list_active(tx, limit=100)
        return endpoints.list_unreferenced(tx, limit=3)

    few = work_of(catalog, read)
    add_idle_receivers(catalog, busy[0], 3_000)
    assert 0 < work_of(catalog, read) < few + 100


def test_lists_failing_receivers_before_waiting_ones(catalog: Catalog) -> None:
    waits, _, fails, both = (subscribe(catalog, f"{URL}/{number}") for number in range(4))
    tell(catalog, [waits, both], times=2)
    with catalog.write() as tx:
        tx.execute(
            text("UPDATE endpoints SET failures = id WHERE id IN (:fails, :both)"),
            {"fails": fails.endpoint_id, "both": both.endpoint_id},
        )

    def list_active(limit: int) -> list[tuple[str, int]]:
        with catalog.read() as tx:
            found = endpoints.list_active(tx, limit=limit)
        return [(one.address[-1], one.waiting) for one in found]

    assert list_active(9) == [("3", 2), ("2", 0), ("0", 2)]
    assert list_active(2) == [("3", 2), ("2", 0)]


@pytest.mark.spec("NOT-23")
def test_window_survives_while_a_subscription_remains(catalog: Catalog) -> None:
    held, wanted = subscribe(catalog, f"{URL}/a"), subscribe(catalog, f"{URL}/b")
    claim(catalog, [held.endpoint_id], "a")
    for each in (held, wanted):
        withdraw(catalog, each)
    with catalog.read() as tx:
        unnamed, _ = endpoints.list_unreferenced(tx, limit=100)
    assert unnamed == [held.endpoint_id, wanted.endpoint_id]
    # A new subscription refers to it before it is deleted.
    assert subscribe(catalog, f"{URL}/b").endpoint_id == wanted.endpoint_id
    with catalog.write() as tx:
        assert endpoints.delete_unreferenced(tx, unnamed) == 0
        assert endpoints.delete_unreferenced(tx, []) == 0


@pytest.mark.spec("NOT-23")
def test_subscriptions_are_made_while_endpoints_are_forgotten(catalog: Catalog) -> None:
    def subscribe_and_withdraw(name: int) -> None:
        for _ in range(15):
            withdraw(catalog, subscribe(catalog, f"{URL}/{name % 2}", owner=f"{name}@x.org"))

    def forget(_name: int) -> None:
        for _ in range(30):
            forgotten(catalog)

    with ThreadPoolExecutor(6) as pool:
        for work in (subscribe_and_withdraw, forget):
            done = [pool.submit(work, name) for name in range(3)]
            others = [pool.submit(subscribe_and_withdraw, name) for name in range(3, 6)]
            for each in (*done, *others):
                each.result()
    forgotten(catalog)
    assert addresses(catalog) == []


def test_a_host_that_is_cut_off_does_not_block_other_hosts(
    server: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds its locks until PostgreSQL ends its transaction, within half a lease."""
    assert DeliveryRules(()).lease_s >= 2 * endpoints.SETTLE_IDLE_S
    subscription = subscribe(server, URL)
    visit = EndpointVisit(subscription.endpoint_id, claim=True)

    def settle(tx: Tx, token: str) -> bool:
        settled = endpoints.settle_turns(tx, LeaseHolder(token, 60.0, 5), [], [visit])
        return settled.visited[visit.endpoint_id].is_leased

    def settle_after_a_silent_host() -> None:
        with server.write() as silent:
            assert settle(silent, "silent")
            monkeypatch.setattr(endpoints, "SETTLE_IDLE_S", 60.0)
            # With the limit of the session, this would wait longer than for any lock.
            with server.write() as tx:
                assert settle(tx, "other")
            now_us(silent)

    with pytest.raises(Unavailable):
        settle_after_a_silent_host()
    with server.read() as tx:
        assert tx.execute(text("SELECT token FROM endpoints")).scalar_one() == "other"
