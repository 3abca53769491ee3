"""Leave to write into an upload area past the API: credentials of its engine's own, which reach no
further than the area, or URLs that are signed for one file each.

What was given cannot be taken back: it ends by itself, and until then an area that is locked may
still be written to where the engine takes it. A URL that the API serves is judged at each use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.depositing.areas import name_fault, writable_in
from storage import keys
from storage.catalog import areas, now_us
from storage.errors import Invalid
from storage.protocols import Loan, SignedUpload
from storage.stores import Stores

REPORTED = 20
"""Faulty names that an answer tells."""
SKEW_S = 60
"""Seconds that an engine's clock may be behind the catalog's."""


@dataclass(frozen=True, slots=True)
class Request:
    """Who wants to write which files of which area, for how long, and how large they may be."""

    area: str
    caller: str
    filenames: Sequence[str]
    seconds: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Either a loan, or a signed URL for each file that was named."""

    expires_us: int
    loan: Loan | None = None
    urls: Mapping[str, SignedUpload] = field(default_factory=dict)


def give(stores: Stores, request: Request) -> Leave:
    """Leave to write; NotFound, Forbidden, Conflict (`area_locked`), Invalid (names), Unavailable.

    The area's row tells of it before anybody has it, unless the API itself will look at each use:
    what is deleted afterwards is looked at again when the last leave has ended.
    """
    _check_names(request.filenames)
    with stores.catalog.read() as tx:
        writable_in(tx, request.area, request.caller)
        now = now_us(tx)
    leave = _lent(stores, request) or _signed(stores, request, now)
    past_us = leave.loan or any(not one.url.startswith("/") for one in leave.urls.values())
    if past_us:
        with stores.catalog.write() as tx:
            writable_in(tx, request.area, request.caller, of=areas.locked)
            areas.granted(tx, request.area, request.seconds + SKEW_S)
    return leave


def _lent(stores: Stores, request: Request) -> Leave | None:
    if stores.lender is None:
        return None
    prefix, name = keys.area(request.area), f"area-{request.area}"
    loan = stores.lender.lend(prefix, name=name, expires_s=request.seconds)
    return Leave(int(loan.expires * 1_000_000), loan)


def _signed(stores: Stores, request: Request, now: int) -> Leave:
    def sign(name: str) -> SignedUpload:
        key = keys.area_file(request.area, name)
        seconds, most = request.seconds, request.max_bytes
        return stores.areas.sign_upload(key, expires_s=seconds, max_bytes=most)

    urls = {name: sign(name) for name in dict.fromkeys(request.filenames)}
    return Leave(now + request.seconds * 1_000_000, None, urls)


def _check_names(filenames: Sequence[str]) -> None:
    found = ((place, name_fault(name)) for place, name in enumerate(filenames))
    faults = {f"/filenames/{place}": [wrong] for place, wrong in found if wrong is not None}
    if faults:
        shown = dict(list(faults.items())[:REPORTED])
        raise Invalid(f"{len(faults)} file names cannot be used.", errors=shown)
