"""Leases of claimed jobs, renewed while workers run them."""

import time
from collections.abc import Sequence

from pipelines.flow import Heartbeat
from storage.catalog import jobs
from storage.errors import ClaimLost
from storage.model import JobClaim
from storage.stores import Stores


def make_heartbeat(stores: Stores, claims: Sequence[JobClaim], lease_s: float) -> Heartbeat:
    """Return a heartbeat that renews leases, at most three times per lease.

    It raises ClaimLost once no claim is ours.
    """
    due = time.monotonic() + lease_s / 3
    # In the lock order of `jobs.finish_all`, so that two transactions never deadlock.
    in_order = sorted(claims, key=lambda claim: claim.job)

    def heartbeat(_moved: int) -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        # Set first, so that other threads of the batch do not renew, too.
        due = time.monotonic() + lease_s / 3
        with stores.catalog.write(durable=False) as tx:
            renewed = [claim for claim in in_order if jobs.renew(tx, claim, lease_s=lease_s)]
        if not renewed:
            raise ClaimLost("The claim was lost.")

    return heartbeat
