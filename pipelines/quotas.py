"""Quotas: refuse deposits for which an owner, or a group of theirs, has no room left.

Counted are published files, files that are being verified, files of upload areas, and uploads to
areas that are under way. A counter changes in the transaction that changes what it counts. What
bypasses these transactions, such as a rebuilt catalog, enters at the next count.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

from storage.catalog import Catalog, Tx, now_us, quotas, statistics, store_state
from storage.catalog.quotas import (
    NO_AMOUNT,
    Amount,
    DefaultQuotas,
    Limits,
    OwnerKind,
    QuotaUsage,
    Reservation,
)
from storage.catalog.statistics import OwnerTotal
from storage.errors import NotReady, QuotaExceeded
from storage.stores import Stores

COUNT_S = 86_400
"""Age of the last count at which the scheduler counts again."""
COUNT_RETRY_S = 5
"""Seconds to wait before a retry while there is no count."""
RESERVATION_S = 86_400
"""After how long the reservation of an upload expires, unless the upload ends."""
LAST_COUNT_KEY = "last_quota_count_us"
IDS_PER_QUERY = 50_000
NAMES_PER_PAGE = 500


def reserve_amounts(
    tx: Tx, stores: Stores, owner: str, amounts: Sequence[Amount]
) -> list[QuotaExceeded | None]:
    """Reserve room for items of an owner, in their order; return the error of each without room.

    What is reserved counts from then on. The counters stay locked until the transaction ends.
    Raise NotReady before the first count.
    """
    accepted: list[QuotaExceeded | None] = [None] * len(amounts)
    if stores.quotas is None or not amounts:
        return accepted
    _require_count(tx)
    total = sum(amounts, NO_AMOUNT)
    counters = [
        one._replace(used=one.used - total)
        for one in quotas.add_usage(tx, {owner: total}, stores.quotas)
    ]
    if _find_excess(counters, total) is None:
        return accepted
    errors: list[QuotaExceeded | None] = []
    for amount in amounts:
        error = _find_excess(counters, amount)
        errors.append(error)
        if error is None:
            total -= amount
            counters = [one._replace(used=one.used + amount) for one in counters]
    quotas.add_usage(tx, {owner: NO_AMOUNT - total}, stores.quotas)
    return errors


def _require_count(tx: Tx) -> None:
    """Raise NotReady before the first count: what is stored would not count."""
    if store_state.read_value(tx, LAST_COUNT_KEY) is None:
        raise NotReady(
            "Usage is being counted, as quotas are new: try again later. The scheduler counts when"
            " it starts with quotas; `ops quotas count` counts at once.",
            retry_after_s=COUNT_RETRY_S,
        )


def reserve_room(tx: Tx, stores: Stores, owner: str, amount: Amount) -> None:
    """Reserve room for an amount, also a negative one, which counts; raise QuotaExceeded."""
    (error,) = reserve_amounts(tx, stores, owner, [amount])
    if error is not None:
        raise error


def insert_reservation(tx: Tx, stores: Stores, owner: str, amount: Amount) -> str:
    """Reserve room for an upload until it ends; return the reservation's id.

    Raise QuotaExceeded.
    """
    reserve_room(tx, stores, owner, amount)
    reservation = Reservation(uuid4().hex, owner, amount)
    quotas.insert_reservation(tx, reservation, lease_s=RESERVATION_S)
    return reservation.id


def release_reservation(tx: Tx, stores: Stores, ident: str, owner: str) -> None:
    """Give back what is reserved for an upload, unless it was recorded or has expired."""
    reserved = quotas.delete_reservation(tx, ident)
    if reserved != NO_AMOUNT:
        count_change(tx, stores, {owner: NO_AMOUNT - reserved})


def count_change(tx: Tx, stores: Stores, changes: Mapping[str, Amount]) -> None:
    """Count what owners gained or gave back, whatever their quotas are."""
    if stores.quotas is not None:
        quotas.add_usage(tx, changes, stores.quotas)


def find_tightest(
    tx: Tx, stores: Stores, owner: str, replaced: Amount = NO_AMOUNT
) -> QuotaUsage | None:
    """Return the counter with the fewest bytes left for an owner; None without a limit of bytes.

    It does not have what is `replaced`. Raise QuotaExceeded if a quota has no room at all, and
    NotReady before the first count. The counters are inserted if they lack, and stay locked until
    the transaction ends.
    """
    if stores.quotas is None:
        return None
    _require_count(tx)
    counters = [
        one._replace(used=one.used - replaced)
        for one in quotas.add_usage(tx, {owner: NO_AMOUNT}, stores.quotas)
    ]
    error = _find_excess(counters, Amount(1, 1))
    if error is not None:
        raise error
    limited = [one for one in counters if one.limits.bytes is not None]
    return min(limited, key=lambda one: compute_left(one).bytes or 0, default=None)


def require_bytes(counter: QuotaUsage | None, size: int) -> None:
    """Raise QuotaExceeded if there were fewer bytes left when the counter was read."""
    error = None if counter is None else _find_excess([counter], Amount(size, 0))
    if error is not None:
        raise error


def compute_left(counter: QuotaUsage) -> Limits:
    """Return the bytes and files that are left, at least 0; None where there is no limit."""
    used, limits = counter.used, counter.limits
    return Limits(
        None if limits.bytes is None else max(0, limits.bytes - used.bytes),
        None if limits.files is None else max(0, limits.files - used.files),
    )


def _find_excess(counters: Sequence[QuotaUsage], amount: Amount) -> QuotaExceeded | None:
    """Return the error of the first quota that has no room for an amount."""
    for one in counters:
        left = compute_left(one)
        if left.bytes is not None and amount.bytes > left.bytes:
            return _make_error(one, "bytes", amount.bytes)
        if left.files is not None and amount.files > left.files:
            return _make_error(one, "files", amount.files)
    return None


def _make_error(counter: QuotaUsage, unit: str, requested: int) -> QuotaExceeded:
    limit, used = getattr(counter.limits, unit), getattr(counter.used, unit)
    left = getattr(compute_left(counter), unit)
    return QuotaExceeded(
        f"The quota of {counter.kind} {counter.name} is {limit:,} {unit}: {left:,} are left, and"
        f" this needs {requested:,}.",
        {
            "kind": counter.kind,
            "name": counter.name,
            "unit": unit,
            "limit": limit,
            "used": used,
            "left": left,
            "requested": requested,
        },
    )


def list_usage(
    catalog: Catalog, defaults: DefaultQuotas, *, kind: OwnerKind
) -> Iterator[QuotaUsage]:
    """Yield what users or groups with a limit or a quota of their own use, by name."""
    after = ""
    while True:
        with catalog.read() as tx:
            page = quotas.list_usage(tx, defaults, kind=kind, after=after, limit=NAMES_PER_PAGE)
        yield from (one for one in page if one.quota or one.limits != Limits())
        if len(page) < NAMES_PER_PAGE:
            return
        after = page[-1].name


def count_if_due(stores: Stores) -> bool:
    """Count again if quotas are enforced and the last count is old; return whether it was.

    Reservations that have expired are given back each time.
    While they are not enforced, the last count is forgotten: it misses what is deposited.
    """
    with stores.catalog.read() as tx:
        last = store_state.read_value(tx, LAST_COUNT_KEY)
        is_due = now_us(tx) - int(last or 0) >= COUNT_S * 1_000_000
    if stores.quotas is None:
        if last is not None:
            with stores.catalog.write() as tx:
                store_state.write_value(tx, LAST_COUNT_KEY, None)
        return False
    _expire_reservations(stores.catalog, stores.quotas)
    if is_due:
        count_usage(stores.catalog, stores.quotas)
    return is_due


def count_usage(catalog: Catalog, defaults: DefaultQuotas) -> int:
    """Correct the counters by what is stored; return how many owners' were wrong.

    One snapshot has both the counters and what they count, so deposits meanwhile do not matter:
    only the differences in it are added. If another count ended meanwhile, which has added them,
    nothing is.
    """
    _expire_reservations(catalog, defaults)
    with catalog.read() as tx:
        former = store_state.read_value(tx, LAST_COUNT_KEY)
        measured = _measure(tx)
        counters = quotas.read_counters(tx)
        groups = quotas.list_counted_groups(tx, has_default=defaults.group != Limits())
    differences = {
        owner: difference
        for owner in measured.keys() | counters.keys()
        if (difference := measured.get(owner, NO_AMOUNT) - counters.get(owner, NO_AMOUNT))
        != NO_AMOUNT
    }
    with catalog.write() as tx:
        at_us = max(now_us(tx), int(former or 0) + 1)
        if not store_state.replace_value(tx, LAST_COUNT_KEY, former, str(at_us)):
            return 0
        # Groups first, as deposits lock them before users.
        quotas.count_groups(tx, groups)
        quotas.add_usage(tx, differences, defaults)
    return len(differences)


def _expire_reservations(catalog: Catalog, defaults: DefaultQuotas) -> None:
    """Give back reservations that have expired: their processes were killed, or are very slow.

    A slow upload reserves room again before it is stored.
    """
    with catalog.read() as tx:
        now = now_us(tx)
        expired = quotas.list_expired_reservations(tx, now)
    for ident, owner in expired:
        with catalog.write() as tx:
            reserved = quotas.delete_reservation(tx, ident, expired_us=now)
            if reserved != NO_AMOUNT:
                quotas.add_usage(tx, {owner: NO_AMOUNT - reserved}, defaults)


def _measure(tx: Tx) -> dict[str, Amount]:
    """Return what each owner uses."""
    found: dict[str, Amount] = defaultdict(Amount)
    for one in _iterate_totals(tx):
        found[one.owner] += Amount(one.size, one.number)
    for owner, reserved in quotas.sum_reservations(tx).items():
        found[owner] += reserved
    return found


def _iterate_totals(tx: Tx) -> Iterator[OwnerTotal]:
    for after in range(0, statistics.find_last_version_id(tx, "file"), IDS_PER_QUERY):
        yield from statistics.count_versions(tx, "file", after, after + IDS_PER_QUERY)
    yield from statistics.count_open_tasks(tx)
    yield from statistics.count_area_uploads(tx)
    after_area = ""
    while page := statistics.list_areas(tx, after=after_area, limit=NAMES_PER_PAGE):
        yield from statistics.count_area_files(tx, [uuid for uuid, _ in page])
        after_area = page[-1][0]
