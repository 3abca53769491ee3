"""Upload areas: create, lock and delete areas, and receive files through the API.

The files of an area and their checks are in `area_files`, uploads directly to the bucket and the
removal of deleted areas in `area_uploads`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from pipelines import area_files, checksums, formats, quotas
from pipelines.area_files import UploadedAreaFile
from pipelines.checksums import ChecksumHasher
from pipelines.copies import INLINE_BYTES, upload_parts
from pipelines.flow import Step
from pipelines.job_batches import run_in_own_threads
from pipelines.limits import AREA_NAME_MAX_BYTES
from storage import keys
from storage.catalog import Tx, areas, jobs
from storage.catalog.areas import Area, AreaFile, AreaLock, AreaSummary
from storage.catalog.quotas import NO_AMOUNT, Amount, QuotaUsage
from storage.errors import ConflictError, Forbidden, Invalid, NotFoundError, TooLarge
from storage.model import REPLICAS, Checksums, Job
from storage.protocols import BlobInfo
from storage.stores import Stores

UNLOCKED, LOCKED = "UNLOCKED", "LOCKED"
"""States that the owner of an area may set."""
DELETING, DELETED = "DELETING", "DELETED"
STORE_THREADS = 8
"""How many files of one request are stored at a time."""


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that is being uploaded; `length` is its Content-Length, if any."""

    area: str
    name: str
    content_type: str
    blocks: Iterable[bytes]
    length: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that is stored, and the jobs that check it."""

    key: str
    size: int
    checksums: Checksums
    jobs: tuple[Job, ...] = ()


def create(stores: Stores, uuid: str, owner: str) -> bool:
    """Create an area; return False if the owner created it before.

    Raise ConflictError if another user did, or if it was deleted: late uploads into it are removed.
    """
    with stores.catalog.write() as tx:
        if areas.insert_area(tx, Area(uuid, owner, UNLOCKED)):
            return True
        area = areas.find(tx, uuid)
    if area is None or area.owner != owner:
        raise ConflictError(f"Area {uuid} exists already.", code="already_exists")
    if area.state in (DELETING, DELETED):
        raise ConflictError(f"Area {uuid} was deleted.", code="already_exists")
    return False


def find(stores: Stores, uuid: str) -> Area:
    """Return an area; raise NotFoundError."""
    return _require_existing(stores.catalog.run_query(lambda tx: areas.find(tx, uuid)), uuid)


def list_owned(
    stores: Stores, owner: str, *, before: tuple[int, str] | None = None, limit: int
) -> list[AreaSummary]:
    """List a user's areas, latest first, before (created_us, uuid)."""
    with stores.catalog.read() as tx:
        return areas.list_by_owner(tx, owner, before=before, limit=limit)


def find_owned(stores: Stores, uuid: str, caller: str) -> Area:
    """Return the caller's area; raise NotFoundError, Forbidden."""
    return _require_owner(find(stores, uuid), caller)


def find_writable(stores: Stores, uuid: str, caller: str) -> Area:
    """Return the caller's unlocked area.

    Raise NotFoundError, Forbidden, ConflictError (`area_locked`).
    """
    return stores.catalog.run_query(lambda tx: require_writable(tx, uuid, caller))


def require_writable(tx: Tx, uuid: str, caller: str, *, lock: AreaLock | None = None) -> Area:
    """Return the caller's unlocked area within a transaction, with a lock of its row."""
    area = _require_owner(_require_existing(areas.find(tx, uuid, lock=lock), uuid), caller)
    if area.state != UNLOCKED:
        raise ConflictError(f"Area {area.uuid} is {area.state}.", code="area_locked")
    return area


def _require_existing(area: Area | None, uuid: str) -> Area:
    if area is None or area.state == DELETED:
        raise NotFoundError(f"There is no area {uuid}.")
    return area


def _require_owner(area: Area, caller: str) -> Area:
    if area.owner != caller:
        raise Forbidden("This area belongs to another user.")
    return area


def set_state(stores: Stores, uuid: str, state: str, caller: str) -> None:
    """Lock or unlock an area.

    Raise NotFoundError, Forbidden, ConflictError while it is being deleted.
    """
    with stores.catalog.write() as tx:
        area = _lock_owned(tx, uuid, caller)
        if area.state == DELETING:
            raise ConflictError(f"Area {uuid} is {DELETING}.", code="area_locked")
        if area.state != state:
            areas.set_state(tx, uuid, state)


def delete(stores: Stores, uuid: str, caller: str, *, request_id: str = "") -> tuple[Job, ...]:
    """Delete an area with all of its files, locked or not; raise NotFoundError, Forbidden."""
    follow = (Job(Step.AREA_REMOVE, REPLICAS[0], uuid),)
    with stores.catalog.write() as tx:
        area = _lock_owned(tx, uuid, caller)
        if area.state == DELETING:
            return follow if jobs.revive(tx, follow[0]) else ()
        areas.set_state(tx, uuid, DELETING)
        jobs.insert(tx, follow, request_id=request_id)
    return follow


def _lock_owned(tx: Tx, uuid: str, caller: str) -> Area:
    return _require_owner(_require_existing(areas.find(tx, uuid, lock="exclusive"), uuid), caller)


def check_file_name(name: str) -> None:
    """Raise Invalid if a name cannot be the name of a file in an area."""
    fault = find_area_name_fault(name)
    if fault is not None:
        raise Invalid(fault, errors={"filename": [fault]})


def find_area_name_fault(name: str) -> str | None:
    """Return what is wrong with the name of a file in an area, or None."""
    fault = formats.find_name_fault(name)
    if fault is None and len(name.encode()) > AREA_NAME_MAX_BYTES:
        return f"In an upload area a name has at most {AREA_NAME_MAX_BYTES} bytes."
    return fault


def receive_file(
    stores: Stores, incoming: IncomingFile, caller: str, *, request_id: str = ""
) -> ReceivedFile:
    """Store a file, with the checksums computed during the upload as its metadata.

    The same name again replaces the file. Raise NotFoundError, Forbidden (another user's area),
    ConflictError (`area_locked`), Invalid (name, or fewer bytes than announced), TooLarge,
    QuotaExceeded.
    """
    (received,) = receive_files(stores, [incoming], caller, request_id=request_id)
    return received


def receive_files(
    stores: Stores, incoming: Sequence[IncomingFile], caller: str, *, request_id: str = ""
) -> list[ReceivedFile]:
    """Store several files of one area, as `receive_file` does; their rows share a transaction.

    Raise Invalid if two have one name, or for the name of any of them, TooLarge for an announced
    length, and QuotaExceeded without room for all, before one is stored.
    """
    _check_file_names([one.name for one in incoming])
    area = incoming[0].area
    with stores.catalog.read() as tx:
        require_writable(tx, area, caller)
        generations = areas.find_generations(tx, area, [one.name for one in incoming])
    for one in incoming:
        if one.length is not None and one.length > one.limit:
            raise TooLarge(f"A file has at most {one.limit} bytes.")
    with _reserve_room(stores, incoming, caller) as reserved:
        stored = run_in_own_threads(
            lambda one: _store_file(stores, one, caller, reserved),
            incoming,
            threads=STORE_THREADS,
        )
        uploads = [
            UploadedAreaFile(_checksummed_file(one, info, sums), generations.get(one.name, 0))
            for one, (info, sums) in zip(incoming, stored, strict=True)
        ]
        follow = area_files.record_uploads(
            stores, area, uploads, reserved=reserved.sum_amounts(), request_id=request_id
        )
    return [
        ReceivedFile(info.key, info.size, sums, jobs)
        for (info, sums), jobs in zip(stored, follow, strict=True)
    ]


class _Reservation(NamedTuple):
    """Room of a quota for files on their way, by name; `tightest` limits unknown lengths."""

    amounts: dict[str, Amount]
    tightest: QuotaUsage | None = None

    def sum_amounts(self) -> Amount:
        """Return what is reserved in all."""
        return sum(self.amounts.values(), NO_AMOUNT)


@contextmanager
def _reserve_room(
    stores: Stores, incoming: Sequence[IncomingFile], owner: str
) -> Iterator[_Reservation]:
    """Reserve what each file will add at most; give it back if the files are not recorded.

    A smaller file frees nothing before it has replaced the larger one.
    """
    if stores.quotas is None:
        yield _Reservation({})
        return
    area, names = incoming[0].area, [one.name for one in incoming]
    with stores.catalog.write() as tx:
        sizes = areas.find_sizes(tx, area, names)
        amounts = {one.name: _find_growth(one.length or 0, sizes.get(one.name)) for one in incoming}
        quotas.reserve_room(tx, stores, owner, sum(amounts.values(), NO_AMOUNT))
        unsized = [one.name for one in incoming if one.length is None]
        replaced = Amount(sum(sizes.get(name, 0) for name in unsized), len(unsized))
        tightest = quotas.find_tightest(tx, stores, owner, replaced) if unsized else None
    reservation = _Reservation(amounts, tightest)
    try:
        yield reservation
    except BaseException:
        with stores.catalog.write() as tx:
            quotas.count_change(tx, stores, {owner: NO_AMOUNT - reservation.sum_amounts()})
        raise


def _find_growth(size: int, former: int | None) -> Amount:
    """Return what a file adds at most to the file of its name, if there is one."""
    return Amount(max(0, size - (former or 0)), 1 if former is None else 0)


def _reserve_rest(
    stores: Stores, incoming: IncomingFile, size: int, owner: str, reserved: _Reservation
) -> None:
    """Reserve what a file needs beyond its reservation; raise QuotaExceeded before it is stored.

    Its length was unknown, or the file that it replaces has become smaller or was deleted.
    """
    if stores.quotas is None:
        return
    with stores.catalog.write() as tx:
        # Locks the counters first: no other upload changes the size meanwhile.
        quotas.count_change(tx, stores, {owner: NO_AMOUNT})
        sizes = areas.find_sizes(tx, incoming.area, [incoming.name])
        rest = _find_growth(size, sizes.get(incoming.name)) - reserved.amounts[incoming.name]
        rest = Amount(max(0, rest.bytes), max(0, rest.files))
        quotas.reserve_room(tx, stores, owner, rest)
    reserved.amounts[incoming.name] += rest


def _check_file_names(names: Sequence[str]) -> None:
    """Raise Invalid for the first name that cannot be in an area, or that comes twice."""
    seen: set[str] = set()
    for name in names:
        check_file_name(name)
        if name in seen:
            message = f"Two files are called {name!r}."
            raise Invalid(message, errors={"filename": [message]})
        seen.add(name)


def _checksummed_file(incoming: IncomingFile, info: BlobInfo, sums: Checksums) -> AreaFile:
    is_json = area_files.is_json_file(incoming.name, incoming.content_type)
    return AreaFile(
        area=incoming.area,
        name=incoming.name,
        pin=info.pin,
        size=info.size,
        content_type=incoming.content_type,
        status="CHECKSUMMED",
        validation="VALIDATING" if is_json else "VALIDATED",
        checksums=sums,
    )


def _limit_blocks(incoming: IncomingFile, tightest: QuotaUsage | None) -> Iterator[bytes]:
    """Yield the blocks; raise TooLarge above a limit, Invalid if some announced bytes lack."""
    size = 0
    for block in incoming.blocks:
        size += len(block)
        if size > incoming.limit:
            raise TooLarge(f"A file has at most {incoming.limit} bytes.")
        quotas.require_bytes(tightest, size)
        yield block
    if incoming.length is not None and size != incoming.length:
        raise Invalid(f"{size} bytes arrived of {incoming.length}.")


def _store_file(
    stores: Stores, incoming: IncomingFile, owner: str, reserved: _Reservation
) -> tuple[BlobInfo, Checksums]:
    """Store a file, at once or in parts, with its checksums as metadata.

    The file of its name is replaced only once there is room for the new one.
    """
    key = keys.area_file_key(incoming.area, incoming.name)
    announced = incoming.length
    hasher = ChecksumHasher(announced)
    blocks = hasher.hash_blocks(_limit_blocks(incoming, reserved.tightest))
    if announced is not None and announced <= INLINE_BYTES:
        data = b"".join(blocks)
        sums = hasher.result().checksums
        _reserve_rest(stores, incoming, len(data), owner, reserved)
        info = stores.areas.put(
            key,
            data,
            content_type=incoming.content_type,
            metadata=area_files.checksum_metadata(sums),
            replace=True,
        )
        return info, sums
    part_size = checksums.part_size(announced or 0)
    upload = stores.areas.upload(key, part_size=part_size, content_type=incoming.content_type)
    try:
        upload_parts(upload, blocks, part_size, stored=lambda _: None)
        computed = hasher.result()
        sums = computed.checksums
        _reserve_rest(stores, incoming, computed.size, owner, reserved)
        info = upload.complete(metadata=area_files.checksum_metadata(sums), replace=True)
    except BaseException:
        upload.abort()
        raise
    return info, sums
