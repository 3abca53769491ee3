"""Quotas of owners and groups: what counts, what is refused, and what is given back."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from auth.accounts import AuditContext, MembershipEdit, NewAccount, create_account, edit_memberships
from config import Settings
from pipelines import area_files, area_uploads, areas, bundles, checksums, ingest, purges, quotas
from pipelines.area_uploads import AreaUploadRef, AreaWriteRequest, IncomingPart
from pipelines.areas import IncomingFile
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.ingest import AcceptedIngest, IngestRequest
from storage import keys
from storage.catalog import Tx, store_state
from storage.catalog import quotas as quota_rows
from storage.catalog.accounts import AccountKey
from storage.catalog.areas import AreaUploadRow
from storage.catalog.quotas import NO_LIMIT, Amount, DefaultQuotas, Limits, Quota
from storage.errors import DomainError, QuotaExceeded, Unavailable
from storage.model import CHECKSUM_NAMES, FQID
from storage.protocols import BlobInfo
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.pipelines.purge_runs import finish

pytestmark = pytest.mark.spec("OPS-45")

ADA, BEN = "ada@example.org", "ben@example.org"
BY = AuditContext("test", "test")
Drain = Callable[[], int]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    secret = "a secret for tests only"
    return Settings(home=tmp_path / "home", secret_key=secret, quota_bytes=100, quota_files=5)


def make_area(stores: Stores, owner: str = ADA) -> str:
    uuid = new_uuid()
    areas.create(stores, uuid, owner)
    return uuid


def stage(stores: Stores, area: str, content: bytes, *, sha1: str = "") -> str:
    """An object that the catalog does not know, which counts nothing, as a source."""
    hashed = checksums.compute_checksums([content], len(content)).checksums
    declared = {f"store-{field}": getattr(hashed, field) for field in CHECKSUM_NAMES}
    key = keys.area_file_key(area, new_uuid())
    stores.areas.put(key, content, metadata=declared | ({"store-sha1": sha1} if sha1 else {}))
    return stores.areas.direct_url(key)


def deposit(
    stores: Stores, area: str, *contents: bytes, owner: str = ADA, **more: str
) -> list[AcceptedIngest | DomainError]:
    new = [
        IngestRequest(FQID(new_uuid(), version()), "aws", stage(stores, area, one, **more), 1)
        for one in contents
    ]
    return ingest.start_tasks(stores, new, owner)


def put(stores: Stores, area: str, name: str, content: bytes, owner: str = ADA) -> None:
    file = IncomingFile(area, name, "text/plain", iter((content,)), len(content), 1000)
    areas.receive_file(stores, file, owner)


def used(stores: Stores, owner: str = ADA, kind: quota_rows.OwnerKind = "user") -> Amount:
    defaults = DefaultQuotas(Limits(1, 1), Limits(1, 1))
    found = {one.name: one.used for one in quotas.list_usage(stores.catalog, defaults, kind=kind)}
    return found.get(owner, Amount())


def is_exact(stores: Stores) -> bool:
    """Whether the counters are what a count finds, which corrects them."""
    assert stores.quotas is not None
    return quotas.count_usage(stores.catalog, stores.quotas) == 0


def set_limits(stores: Stores, quota: Quota) -> None:
    with stores.catalog.write() as tx:
        quota_rows.set_quota(tx, quota)


def test_takes_the_files_of_a_request_that_fit(stores: Stores, drain: Drain) -> None:
    area = make_area(stores)
    results = deposit(stores, area, *(bytes(size) for size in (60, 50, 40, 1, 0)))
    refused = [one if isinstance(one, QuotaExceeded) else None for one in results]
    assert [error is not None for error in refused] == [False, True, False, True, False]
    assert refused[1] is not None
    assert refused[1].quota == {
        "kind": "user",
        "name": ADA,
        "unit": "bytes",
        "limit": 100,
        "used": 60,
        "left": 40,
        "requested": 50,
    }
    assert refused[1].detail == (
        "The quota of user ada@example.org is 100 bytes: 40 are left, and this needs 50."
    )
    assert used(stores) == Amount(100, 3)
    drain()
    assert used(stores) == Amount(100, 3)
    assert is_exact(stores)


def test_limits_the_number_of_files(stores: Stores) -> None:
    results = deposit(stores, make_area(stores), *[b""] * 6)
    assert isinstance(results[5], QuotaExceeded)
    assert results[5].quota["unit"] == "files"
    assert used(stores) == Amount(0, 5)


def test_counts_a_repeated_deposit_once(stores: Stores, drain: Drain) -> None:
    area = make_area(stores)
    new = IngestRequest(FQID(new_uuid(), version()), "aws", stage(stores, area, bytes(60)), 1)
    first = ingest.start_task(stores, new, ADA)
    assert ingest.start_task(stores, new, ADA).task_id == first.task_id
    drain()
    assert ingest.start_task(stores, new, ADA).task_id is None
    assert used(stores) == Amount(60, 1)
    assert is_exact(stores)


def test_gives_back_what_verification_refused(stores: Stores, drain: Drain) -> None:
    deposit(stores, make_area(stores), bytes(60), sha1="0" * 40)
    assert used(stores) == Amount(60, 1)
    drain()
    assert used(stores) == Amount()
    assert is_exact(stores)


def test_gives_back_what_was_purged(stores: Stores, drain: Drain) -> None:
    area = make_area(stores)
    (accepted,) = deposit(stores, area, bytes(60))
    drain()
    assert isinstance(accepted, AcceptedIngest)
    fqid = FQID(new_uuid(), version())
    draft = BundleDraft(fqid, "aws", 1, [NewEntry("a", accepted.fqid, False)])
    bundles.put(stores, draft, ADA)
    bundles.delete(stores, "aws", fqid.uuid, fqid.version, reason="r", author=ADA)
    purges.order_purge(stores, fqid.uuid, fqid.version, reason="r", author=ADA)
    finish(stores, drain)
    assert used(stores) == Amount()
    assert is_exact(stores)


def test_counts_files_of_areas_until_their_area_is_deleted(stores: Stores, drain: Drain) -> None:
    area = make_area(stores)
    put(stores, area, "a", bytes(60))
    put(stores, area, "b", bytes(10))
    put(stores, area, "a", bytes(90))
    assert used(stores) == Amount(100, 2)
    # The same again, as after an answer that was lost.
    put(stores, area, "a", bytes(90))
    with pytest.raises(QuotaExceeded):
        put(stores, area, "b", bytes(11))
    with pytest.raises(QuotaExceeded):
        put(stores, area, "c", b"x")
    assert [file.size for file in area_files.list_files(stores, area, "", 9)] == [90, 10]
    put(stores, area, "a", b"")
    assert used(stores) == Amount(10, 2)
    assert is_exact(stores)
    areas.delete(stores, area, ADA)
    drain()
    assert used(stores) == Amount()
    assert is_exact(stores)


def test_an_upload_that_breaks_off_counts_nothing(stores: Stores) -> None:
    area = make_area(stores)

    def break_off() -> Iterator[bytes]:
        yield b"x"
        raise ConnectionResetError

    file = IncomingFile(area, "a", "text/plain", break_off(), 60, 1000)
    with pytest.raises(ConnectionResetError):
        areas.receive_file(stores, file, ADA)
    assert used(stores) == Amount()


def test_stops_an_upload_of_unknown_length_at_what_is_left(stores: Stores) -> None:
    area = make_area(stores)
    put(stores, area, "a", bytes(60))
    for size in (40, 41):
        file = IncomingFile(area, "b", "text/plain", iter((bytes(size),)), None, 1000)
        if size == 40:
            areas.receive_file(stores, file, ADA)
            put(stores, area, "b", b"")
        else:
            with pytest.raises(QuotaExceeded):
                areas.receive_file(stores, file, ADA)
    assert used(stores) == Amount(60, 2)
    assert is_exact(stores)


@pytest.mark.parametrize("length", [1, None])
def test_a_smaller_file_frees_room_once_it_is_stored(stores: Stores, length: int | None) -> None:
    area = make_area(stores)
    put(stores, area, "a", bytes(100))

    def send() -> Iterator[bytes]:
        with pytest.raises(QuotaExceeded):
            put(stores, area, "b", b"x")
        yield b"x"

    areas.receive_file(stores, IncomingFile(area, "a", "text/plain", send(), length, 1000), ADA)
    assert used(stores) == Amount(1, 1)
    assert is_exact(stores)


@pytest.mark.parametrize("length", [100, None])
def test_refused_replacement_leaves_the_former_file(stores: Stores, length: int | None) -> None:
    area = make_area(stores)
    put(stores, area, "a", bytes(100))

    def send() -> Iterator[bytes]:
        put(stores, area, "a", b"small")
        put(stores, area, "b", bytes(90))
        yield bytes(100)

    with pytest.raises(QuotaExceeded):
        areas.receive_file(stores, IncomingFile(area, "a", "text/plain", send(), length, 1000), ADA)
    assert read(stores, area, "a") == b"small"
    assert [file.size for file in area_files.list_files(stores, area, "", 9)] == [5, 90]
    assert used(stores) == Amount(95, 2)
    assert is_exact(stores)


@pytest.mark.parametrize(
    ("length", "kept"), [(100, b"x" * 100), (None, b"former")], ids=["announced", "unknown"]
)
def test_quota_that_shrinks_during_a_replacement_loses_no_file(
    stores: Stores, length: int | None, kept: bytes
) -> None:
    area = make_area(stores)
    put(stores, area, "a", b"former")

    def send() -> Iterator[bytes]:
        with stores.catalog.write() as tx:
            quota_rows.set_quota(tx, Quota("user", ADA, 80, None))
        yield b"x" * 100

    file = IncomingFile(area, "a", "text/plain", send(), length, 1000)
    # Room that was reserved before stays reserved.
    with nullcontext() if length else pytest.raises(QuotaExceeded):
        areas.receive_file(stores, file, ADA)
    assert read(stores, area, "a") == kept
    assert used(stores) == Amount(len(kept), 1)
    assert is_exact(stores)


def test_a_count_during_an_upload_keeps_its_room(stores: Stores) -> None:
    area = make_area(stores)

    def send() -> Iterator[bytes]:
        yield bytes(50)
        assert is_exact(stores)
        assert used(stores) == Amount(100, 1)
        with pytest.raises(QuotaExceeded):
            put(stores, area, "b", b"x")
        yield bytes(50)

    areas.receive_file(stores, IncomingFile(area, "a", "text/plain", send(), 100, 1000), ADA)
    assert used(stores) == Amount(100, 1)
    with pytest.raises(QuotaExceeded):
        put(stores, area, "b", b"x")
    assert is_exact(stores)


def test_a_count_before_an_upload_breaks_off_gives_nothing_back_twice(stores: Stores) -> None:
    area = make_area(stores)

    def break_off() -> Iterator[bytes]:
        yield b"x"
        assert is_exact(stores)
        raise ConnectionResetError

    file = IncomingFile(area, "a", "text/plain", break_off(), 60, 1000)
    with pytest.raises(ConnectionResetError):
        areas.receive_file(stores, file, ADA)
    assert used(stores) == Amount()
    assert is_exact(stores)


def test_a_reservation_of_a_killed_process_expires(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lease_s in (quotas.RESERVATION_S, -1):
        monkeypatch.setattr(quotas, "RESERVATION_S", lease_s)
        with stores.catalog.write() as tx:
            quotas.insert_reservation(tx, stores, ADA, Amount(30, 1))
    assert not quotas.count_if_due(stores)
    assert used(stores) == Amount(30, 1)
    with stores.catalog.write() as tx:
        quotas.insert_reservation(tx, stores, ADA, Amount(40, 1))
    assert not quotas.count_if_due(stores)
    assert used(stores) == Amount(30, 1)
    assert is_exact(stores)


@pytest.mark.parametrize("left", [60, 59])
def test_an_upload_whose_reservation_expired_reserves_again(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    area = make_area(stores)
    put(stores, area, "a", b"")

    def send() -> Iterator[bytes]:
        monkeypatch.setattr(quotas, "RESERVATION_S", 86_400)
        yield bytes(30)
        assert is_exact(stores)
        assert used(stores) == Amount(0, 1)
        put(stores, area, "b", bytes(100 - left))
        yield bytes(30)

    monkeypatch.setattr(quotas, "RESERVATION_S", -1)
    file = IncomingFile(area, "a", "text/plain", send(), 60, 1000)
    with nullcontext() if left == 60 else pytest.raises(QuotaExceeded):
        areas.receive_file(stores, file, ADA)
    kept = 60 if left == 60 else 0
    assert len(read(stores, area, "a")) == kept
    assert used(stores) == Amount(100 - left + kept, 2)
    assert is_exact(stores)


def test_a_refused_request_replaces_none_of_its_files(stores: Stores) -> None:
    area = make_area(stores)
    put(stores, area, "a", b"former")
    put(stores, area, "b", bytes(60))

    def send() -> Iterator[bytes]:
        put(stores, area, "b", b"")
        put(stores, area, "c", bytes(60))
        yield bytes(60)

    files = [
        IncomingFile(area, "a", "text/plain", iter((bytes(30),)), 30, 1000),
        IncomingFile(area, "b", "text/plain", send(), 60, 1000),
    ]
    with pytest.raises(QuotaExceeded):
        areas.receive_files(stores, files, ADA)
    assert (read(stores, area, "a"), read(stores, area, "b")) == (b"former", b"")
    assert used(stores) == Amount(66, 3)
    assert is_exact(stores)


def test_records_what_a_broken_request_has_stored(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    area = make_area(stores)
    for name in ("a", "b"):
        put(stores, area, name, b"former")
    store_object = stores.areas.put

    def put_all_but_b(key: str, *args: Any, **kwargs: Any) -> BlobInfo:
        if key == keys.area_file_key(area, "b"):
            raise Unavailable("The bucket does not answer.")
        return store_object(key, *args, **kwargs)

    files = [IncomingFile(area, name, "text/plain", iter((bytes(30),)), 30, 1000) for name in "abc"]
    monkeypatch.setattr(stores.areas, "put", put_all_but_b)
    with pytest.raises(Unavailable):
        areas.receive_files(stores, files, ADA)
    found = area_files.list_files(stores, area, "", 9)
    assert [(file.name, file.size) for file in found] == [("a", 30), ("b", 6), ("c", 30)]
    assert [len(read(stores, area, name)) for name in "abc"] == [30, 6, 30]
    assert used(stores) == Amount(66, 3)
    assert is_exact(stores)


def test_files_of_one_request_lock_the_counters_together(stores: Stores) -> None:
    area = make_area(stores)
    numbers = []
    for names in ("a", "bcde"):
        files = [IncomingFile(area, name, "text/plain", iter((b"x",)), 1, 1000) for name in names]
        with counted_statements(stores) as seen:
            areas.receive_files(stores, files, ADA)
        numbers.append(sum("INTO quota_usage" in statement for statement in seen))
    assert numbers == [3, 3]


def read(stores: Stores, area: str, name: str) -> bytes:
    return b"".join(stores.areas.read(keys.area_file_key(area, name)))


def test_takes_the_last_file_of_a_quota_without_a_length(stores: Stores) -> None:
    area = make_area(stores)

    def send(name: str, content: bytes) -> None:
        file = IncomingFile(area, name, "text/plain", iter((content,)), None, 1000)
        areas.receive_file(stores, file, ADA)

    for number in range(4):
        put(stores, area, f"{number}", b"")
    send("4", bytes(100))
    send("4", bytes(99))
    with pytest.raises(QuotaExceeded):
        send("5", b"x")
    with pytest.raises(QuotaExceeded):
        send("4", bytes(101))
    assert used(stores) == Amount(99, 5)
    assert is_exact(stores)


def begin(stores: Stores, area: str, size: int) -> AreaUploadRef:
    row = AreaUploadRow(new_uuid(), area, "a", "", size, "text/plain", 0)
    area_uploads.begin(stores, row, ADA, limit=1000)
    return AreaUploadRef(area, "a", row.id)


def test_counts_an_upload_in_parts_from_its_beginning(stores: Stores) -> None:
    area = make_area(stores)
    upload = begin(stores, area, 60)
    assert used(stores) == Amount(60, 1)
    with pytest.raises(QuotaExceeded):
        begin(stores, area, 50)
    assert is_exact(stores)
    area_uploads.abort(stores, upload, ADA)
    area_uploads.abort(stores, upload, ADA)
    assert used(stores) == Amount()
    upload = begin(stores, area, 100)
    row = area_uploads.find(stores, upload, ADA)
    area_uploads.receive_part(stores, row, IncomingPart(1, 100, iter((bytes(100),))))
    for _ in range(2):
        area_uploads.complete(stores, upload, ADA)
        assert used(stores) == Amount(100, 1)
    assert is_exact(stores)


def test_an_upload_that_is_aborted_while_it_completes_keeps_no_room(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    area = make_area(stores)
    upload = begin(stores, area, 100)
    row = area_uploads.find(stores, upload, ADA)
    area_uploads.receive_part(stores, row, IncomingPart(1, 100, iter((bytes(100),))))
    register = area_files.register_upload

    def abort_and_register(*args: Any, **kwargs: Any) -> area_files.RegisteredUpload:
        area_uploads.abort(stores, upload, ADA)
        put(stores, area, "b", bytes(100))
        return register(*args, **kwargs)

    monkeypatch.setattr(area_files, "register_upload", abort_and_register)
    with pytest.raises(QuotaExceeded):
        area_uploads.complete(stores, upload, ADA)
    assert [file.name for file in area_files.list_files(stores, area, "", 9)] == ["b"]
    assert used(stores) == Amount(100, 1)
    assert is_exact(stores)


def test_counts_direct_uploads_when_they_are_registered(stores: Stores) -> None:
    area = make_area(stores)
    for name, size in (("a", 90), ("b", 20)):
        stores.areas.put(keys.area_file_key(area, name), bytes(size))
    for _ in range(2):
        area_files.register_upload(stores, area, "a")
        assert used(stores) == Amount(90, 1)
    with pytest.raises(QuotaExceeded):
        area_files.register_upload(stores, area, "b")
    granted = area_uploads.grant_write_access(stores, AreaWriteRequest(area, ADA, ("c",), 60, 1000))
    assert [*granted.urls] == ["c"]
    put(stores, area, "c", bytes(10))
    with pytest.raises(QuotaExceeded):
        area_uploads.grant_write_access(stores, AreaWriteRequest(area, ADA, ("d",), 60, 1000))
    assert is_exact(stores)


def test_an_own_quota_replaces_the_default(stores: Stores) -> None:
    area = make_area(stores)
    set_limits(stores, Quota("user", ADA, 150, None))
    results = deposit(stores, area, bytes(110), *[b""] * 5)
    assert [isinstance(one, QuotaExceeded) for one in results] == [False] * 5 + [True]
    set_limits(stores, Quota("user", ADA, 10, NO_LIMIT))
    results = deposit(stores, area, *[b""] * 9, b"x")
    assert [isinstance(one, QuotaExceeded) for one in results] == [False] * 9 + [True]
    assert is_exact(stores)


def make_group(stores: Stores, *members: str) -> None:
    create_account(stores.catalog, NewAccount(AccountKey("group", "lab")), BY)
    for member in members:
        account = NewAccount(AccountKey("user", member), groups=("lab",))
        create_account(stores.catalog, account, BY)


def test_a_group_shares_a_quota(stores: Stores) -> None:
    make_group(stores, ADA, BEN)
    set_limits(stores, Quota("group", "lab", 100, None))
    assert isinstance(deposit(stores, make_area(stores), bytes(60))[0], AcceptedIngest)
    area = make_area(stores, BEN)
    too_much, fits = deposit(stores, area, bytes(50), bytes(40), owner=BEN)
    assert isinstance(too_much, QuotaExceeded)
    assert (too_much.quota["kind"], too_much.quota["name"]) == ("group", "lab")
    assert isinstance(fits, AcceptedIngest)
    assert used(stores, "lab", "group") == Amount(100, 2)
    assert is_exact(stores)
    assert used(stores, "lab", "group") == Amount(100, 2)


def test_a_default_of_groups_does_not_limit_everybody(stores: Stores) -> None:
    make_group(stores, ADA)
    create_account(stores.catalog, NewAccount(AccountKey("user", BEN)), BY)
    limits = DefaultQuotas(Limits(), Limits(50, None))
    grouped = replace(stores, quotas=limits)
    assert isinstance(deposit(grouped, make_area(stores), bytes(60))[0], QuotaExceeded)
    area = make_area(stores, BEN)
    assert isinstance(deposit(grouped, area, bytes(60), owner=BEN)[0], AcceptedIngest)


def test_a_member_brings_and_takes_what_they_use(stores: Stores) -> None:
    make_group(stores)
    create_account(stores.catalog, NewAccount(AccountKey("user", ADA)), BY)
    set_limits(stores, Quota("group", "lab", 1000, None))
    deposit(stores, make_area(stores), bytes(60))
    lab, users = AccountKey("group", "lab"), [AccountKey("user", ADA)]
    edit_memberships(stores.catalog, MembershipEdit(lab, "users", users, "add"), BY)
    assert used(stores, "lab", "group") == Amount(60, 1)
    edit_memberships(stores.catalog, MembershipEdit(lab, "users", users, "remove"), BY)
    assert used(stores, "lab", "group") == Amount()


def test_a_count_finds_what_came_before_quotas(stores: Stores) -> None:
    make_group(stores, ADA)
    unlimited = replace(stores, quotas=None)
    area = make_area(stores)
    deposit(unlimited, area, bytes(60))
    put(unlimited, area, "a", bytes(10))
    begin(unlimited, area, 5)
    make_file(stores, bytes(7))
    assert used(stores) == Amount()
    set_limits(stores, Quota("group", "lab", 1000, None))
    assert not is_exact(stores)
    assert used(stores) == Amount(75, 3)
    assert used(stores, "depositor@example.org") == Amount(7, 1)
    assert used(stores, "lab", "group") == Amount(75, 3)
    assert is_exact(stores)


def test_concurrent_counts_correct_once(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    make_group(stores, ADA)
    deposit(replace(stores, quotas=None), make_area(stores), bytes(60))
    set_limits(stores, Quota("group", "lab", 1000, None))
    limits = stores.quotas
    assert limits is not None
    read_counters, corrected = quota_rows.read_counters, list[int]()

    def count_meanwhile(tx: Tx) -> dict[str, Amount]:
        counters = read_counters(tx)
        if not corrected:
            corrected.append(0)
            corrected.append(quotas.count_usage(stores.catalog, limits))
        return counters

    monkeypatch.setattr(quota_rows, "read_counters", count_meanwhile)
    assert quotas.count_usage(stores.catalog, limits) == 0
    assert corrected == [0, 1]
    assert used(stores) == Amount(60, 1)
    assert used(stores, "lab", "group") == Amount(60, 1)
    assert is_exact(stores)


def test_counts_again_once_a_day(stores: Stores) -> None:
    assert not quotas.count_if_due(stores)
    assert not quotas.count_if_due(replace(stores, quotas=None))
    assert quotas.count_if_due(stores)
    assert not quotas.count_if_due(stores)
    with stores.catalog.write() as tx:
        store_state.write_value(tx, quotas.LAST_COUNT_KEY, "1")
    assert quotas.count_if_due(stores)


def test_counts_again_after_quotas_were_switched_off(stores: Stores) -> None:
    off = replace(stores, quotas=None)
    deposit(off, make_area(stores), bytes(60))
    assert not quotas.count_if_due(off)
    assert quotas.count_if_due(stores)
    assert used(stores) == Amount(60, 1)
    assert not quotas.count_if_due(stores)


@contextmanager
def counted_statements(stores: Stores) -> Iterator[list[str]]:
    seen: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(stores.catalog.engine, "before_cursor_execute", record)
    try:
        yield seen
    finally:
        event.remove(stores.catalog.engine, "before_cursor_execute", record)


def test_costs_two_statements_only_where_quotas_are_enforced(stores: Stores) -> None:
    area = make_area(stores)
    make_group(stores, ADA)
    set_limits(stores, Quota("group", "lab", 1000, None))
    numbers = []
    for one in (replace(stores, quotas=None), stores):
        with counted_statements(one) as seen:
            assert isinstance(deposit(one, area, b"x")[0], AcceptedIngest)
        numbers.append((len(seen), sum("quota" in statement for statement in seen)))
    (without, none), (limited, own) = numbers
    assert (none, own, limited - without) == (0, 1, 2)


@pytest.mark.parametrize("shared", [False, True])
def test_concurrent_deposits_do_not_exceed_a_quota(stores: Stores, shared: bool) -> None:
    people = [ADA, BEN] if shared else [ADA]
    own = Limits(None, None) if shared else Limits(45, None)
    make_group(stores, *people)
    set_limits(stores, Quota("group", "lab", 45 if shared else None, None))
    limited = replace(stores, quotas=DefaultQuotas(own, Limits()))
    places = {person: make_area(stores, person) for person in people}
    turns = [(places[person], person) for person in people] * (8 // len(people))
    requests = [
        (IngestRequest(FQID(new_uuid(), version()), "aws", stage(stores, area, bytes(10)), 1), who)
        for area, who in turns
    ]

    def try_deposit(request: tuple[IngestRequest, str]) -> bool:
        try:
            ingest.start_task(limited, *request)
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(try_deposit, requests)) == 4
    counted = used(stores, "lab", "group") if shared else used(stores)
    assert counted == Amount(40, 4)
    assert is_exact(limited)


def test_concurrent_uploads_to_an_area_do_not_exceed_a_quota(stores: Stores) -> None:
    area = make_area(stores)

    def try_put(number: int) -> bool:
        try:
            # Two of each name: the second one replaces the first.
            put(stores, area, f"{number % 4}", bytes(30))
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert any(pool.map(try_put, range(8)))
    files = area_files.list_files(stores, area, "", 9)
    assert used(stores) == Amount(30 * len(files), len(files))
    assert len(files) <= 3
    assert is_exact(stores)


def test_counts_among_concurrent_uploads_change_nothing(stores: Stores) -> None:
    area = make_area(stores)
    limits = stores.quotas
    assert limits is not None

    def put_or_count(number: int) -> int:
        if number % 2:
            return quotas.count_usage(stores.catalog, limits)
        with suppress(QuotaExceeded):
            put(stores, area, f"{number % 3}", bytes(10 + number))
        return 0

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(put_or_count, range(16))) == 0
    # Of two uploads of one name at once, the bucket may keep one and the catalog record the other.
    assert used(stores).files == len(area_files.list_files(stores, area, "", 9))
    assert is_exact(stores)
