"""Upload areas: create, lock and delete areas, and receive files through the API.

The files of an area and their checks are in `area_files`, uploads directly to the bucket and the
removal of deleted areas in `area_uploads`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from storage.catalog import quotas as quota_rows
from storage.catalog.areas import Area, AreaFile, AreaLock, AreaSummary
from storage.catalog.quotas import NO_AMOUNT, Amount, QuotaUsage, Reservation
from storage.errors import ConflictError, Forbidden, Invalid, NotFoundError, TooLarge
from storage.model import REPLICAS, Checksums, Job
from storage.protocols import BlobInfo, MultipartUpload
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

    Raise Invalid if two have one name, or for the name of any of them, TooLarge for a length, and
    QuotaExceeded without room for all, before one is stored. If storing one fails, the others are
    recorded.
    """
    _check_file_names([one.name for one in incoming])
    area = incoming[0].area
    with stores.catalog.read() as tx:
        require_writable(tx, area, caller)
        generations = areas.find_generations(tx, area, [one.name for one in incoming])
    for one in incoming:
        if one.length is not None and one.length > one.limit:
            raise TooLarge(f"A file has at most {one.limit} bytes.")
    with _reserve_room(stores, incoming, caller) as reservation:
        arrived = _receive_bytes(stores, incoming, caller, reservation)
        stored = run_in_own_threads(
            lambda one: _try_store_file(stores, one), arrived, threads=STORE_THREADS
        )
        # What is stored is recorded also if others failed: the former file is gone.
        uploads = [
            UploadedAreaFile(_checksummed_file(one, info), generations.get(one.incoming.name, 0))
            for one, info in zip(arrived, stored, strict=True)
            if isinstance(info, BlobInfo)
        ]
        follow = (
            area_files.record_uploads(
                stores, area, uploads, reservation=reservation.id, request_id=request_id
            )
            if uploads
            else []
        )
        for outcome in stored:
            if isinstance(outcome, Exception):
                raise outcome
    return [
        ReceivedFile(_file_key(one.incoming), one.size, one.checksums, jobs)
        for one, jobs in zip(arrived, follow, strict=True)
    ]


class _Reservation(NamedTuple):
    """Room of a quota for files on their way; `tightest` limits those of unknown length."""

    id: str | None = None
    tightest: QuotaUsage | None = None


@contextmanager
def _reserve_room(
    stores: Stores, incoming: Sequence[IncomingFile], owner: str
) -> Iterator[_Reservation]:
    """Reserve what files will add at most; give it back if they are not recorded.

    A smaller file frees nothing before it has replaced the larger one.
    """
    if stores.quotas is None:
        yield _Reservation()
        return
    area, lengths = incoming[0].area, {one.name: one.length or 0 for one in incoming}
    with stores.catalog.write() as tx:
        sizes = areas.find_sizes(tx, area, lengths)
        ident = quotas.insert_reservation(tx, stores, owner, _sum_growth(lengths, sizes))
        unsized = [one.name for one in incoming if one.length is None]
        replaced = Amount(sum(sizes.get(name, 0) for name in unsized), len(unsized))
        tightest = quotas.find_tightest(tx, stores, owner, replaced) if unsized else None
    try:
        yield _Reservation(ident, tightest)
    except BaseException:
        with stores.catalog.write() as tx:
            quotas.release_reservation(tx, stores, ident, owner)
        raise


def _sum_growth(lengths: Mapping[str, int], sizes: Mapping[str, int]) -> Amount:
    """Return what files add at most to those of their names, whose `sizes` are given."""
    growth = sum(max(0, length - sizes.get(name, 0)) for name, length in lengths.items())
    return Amount(growth, len(lengths) - len(sizes))


def _reserve_rest(
    stores: Stores, arrived: Sequence["_ArrivedFile"], owner: str, reservation: _Reservation
) -> None:
    """Reserve what files need beyond their reservation; raise QuotaExceeded before one is stored.

    A length was unknown, a file that is replaced has become smaller or was deleted, or the
    reservation has expired. Counters are locked only then.
    """
    if reservation.id is None:
        return
    area, lengths = arrived[0].incoming.area, {one.incoming.name: one.size for one in arrived}

    def find_rest(tx: Tx, reserved: Amount) -> Amount:
        rest = _sum_growth(lengths, areas.find_sizes(tx, area, lengths)) - reserved
        return Amount(max(0, rest.bytes), max(0, rest.files))

    with stores.catalog.read() as tx:
        if find_rest(tx, quota_rows.find_reservation(tx, reservation.id)) == NO_AMOUNT:
            return
    with stores.catalog.write() as tx:
        reserved = quota_rows.delete_reservation(tx, reservation.id)
        # Locks the counters: no other upload changes the sizes meanwhile.
        quotas.count_change(tx, stores, {owner: NO_AMOUNT})
        rest = find_rest(tx, reserved)
        quotas.reserve_room(tx, stores, owner, rest)
        extended = Reservation(reservation.id, owner, reserved + rest)
        quota_rows.insert_reservation(tx, extended, lease_s=quotas.RESERVATION_S)


def _check_file_names(names: Sequence[str]) -> None:
    """Raise Invalid for the first name that cannot be in an area, or that comes twice."""
    seen: set[str] = set()
    for name in names:
        check_file_name(name)
        if name in seen:
            message = f"Two files are called {name!r}."
            raise Invalid(message, errors={"filename": [message]})
        seen.add(name)


def _checksummed_file(arrived: "_ArrivedFile", info: BlobInfo) -> AreaFile:
    incoming = arrived.incoming
    is_json = area_files.is_json_file(incoming.name, incoming.content_type)
    return AreaFile(
        area=incoming.area,
        name=incoming.name,
        pin=info.pin,
        size=info.size,
        content_type=incoming.content_type,
        status="CHECKSUMMED",
        validation="VALIDATING" if is_json else "VALIDATED",
        checksums=arrived.checksums,
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


@dataclass(frozen=True, slots=True)
class _ArrivedFile:
    """A file whose bytes have all arrived, in memory or in parts; its name has the former file."""

    incoming: IncomingFile
    size: int
    checksums: Checksums
    content: bytes | MultipartUpload


def _receive_bytes(
    stores: Stores, incoming: Sequence[IncomingFile], owner: str, reservation: _Reservation
) -> list[_ArrivedFile]:
    """Receive files, and reserve room for all, before the first one is stored under its name."""
    begun: list[MultipartUpload] = []

    def receive(one: IncomingFile) -> _ArrivedFile:
        hasher = ChecksumHasher(one.length)
        blocks = hasher.hash_blocks(_limit_blocks(one, reservation.tightest))
        content: bytes | MultipartUpload
        if one.length is not None and one.length <= INLINE_BYTES:
            content = b"".join(blocks)
        else:
            part_size = checksums.part_size(one.length or 0)
            content = stores.areas.upload(
                _file_key(one), part_size=part_size, content_type=one.content_type
            )
            begun.append(content)
            upload_parts(content, blocks, part_size, stored=lambda _: None)
        computed = hasher.result()
        return _ArrivedFile(one, computed.size, computed.checksums, content)

    try:
        arrived = run_in_own_threads(receive, incoming, threads=STORE_THREADS)
        _reserve_rest(stores, arrived, owner, reservation)
    except BaseException:
        for upload in begun:
            upload.abort()
        raise
    return arrived


def _file_key(incoming: IncomingFile) -> str:
    return keys.area_file_key(incoming.area, incoming.name)


def _try_store_file(stores: Stores, arrived: _ArrivedFile) -> BlobInfo | Exception:
    """Store a file under its name, or return the error."""
    try:
        return _store_file(stores, arrived)
    except Exception as error:
        return error


def _store_file(stores: Stores, arrived: _ArrivedFile) -> BlobInfo:
    """Store a file under its name, with its checksums as metadata."""
    metadata = area_files.checksum_metadata(arrived.checksums)
    content, incoming = arrived.content, arrived.incoming
    if isinstance(content, bytes):
        return stores.areas.put(
            _file_key(incoming),
            content,
            content_type=incoming.content_type,
            metadata=metadata,
            replace=True,
        )
    try:
        return content.complete(metadata=metadata, replace=True)
    except BaseException:
        content.abort()
        raise
