"""How often one address may ask for pages and tokens: counted in the catalog, for all processes."""

import math

from storage.catalog import Catalog, tries
from storage.errors import TooMany
from storage.rates import Rate


def limit(catalog: Catalog, who: str, rate: Rate, now: float) -> None:
    """Count a request; TooMany, which says when to come again, beyond the rate. 0 is no limit."""
    if rate.per_minute <= 0:
        return
    now_us, step_us = int(now * 1e6), 60_000_000 // rate.per_minute
    with catalog.write(durable=False) as tx:
        tries.forget_rates(tx, now_us)
        wait_us = tries.take(tx, who, now_us=now_us, step_us=step_us, burst=max(1, rate.burst))
    if wait_us:
        said = f"More than {rate.per_minute} requests a minute, and {rate.burst} at once."
        raise TooMany(said, retry_after_s=math.ceil(wait_us / 1e6))
