"""How many modules and functions a request passes through; limits that may only shrink.

The numbers are those that the code reached; whoever makes a path shorter lowers them. They rose
when metrics began to count each call to a bucket or index.
"""

from collections.abc import Iterator
from dataclasses import fields

import pytest

from bench import requests
from bench.requests import Site, Trail

MOST = {
    "put_bundle": Trail(37, 145, 202, 14, reads=1, writes=2, syncs=2),
    "put_bundle_again": Trail(28, 106, 128, 4, reads=2, writes=1, syncs=0),
    "put_file": Trail(40, 163, 247, 10, reads=3, writes=1, syncs=0),
    "get_file": Trail(32, 99, 122, 5, reads=2, writes=0, syncs=0),
    "get_file_bytes": Trail(14, 48, 57, 0, reads=0, writes=0, syncs=0),
    "get_bundle": Trail(26, 75, 87, 4, reads=2, writes=0, syncs=0),
    "post_search": Trail(34, 153, 293, 2, reads=2, writes=0, syncs=0),
}
"""Modules, functions and their calls, SQL statements, units of work, syncs."""
WARM, LOOKS = 2, 3
"""Requests that fill caches, and those that are looked at: some of them ask again for what is
looked up once a second."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with requests.site() as found:
        yield found


@pytest.mark.spec("BUN-31")
@pytest.mark.parametrize("operation", requests.OPERATIONS)
def test_a_request_goes_through_no_more_than_it_did(site: Site, operation: str) -> None:
    made = requests.requests_of(site, operation)
    for _ in range(WARM):
        requests.answer(site, next(made))
    seen = [requests.trail_of(site, next(made)) for _ in range(LOOKS)]
    least = {one.name: min(getattr(trail, one.name) for trail in seen) for one in fields(Trail)}
    most = MOST[operation]
    grown = {name: (count, getattr(most, name)) for name, count in least.items()}
    assert not {name: pair for name, pair in grown.items() if pair[0] > pair[1]}, least
