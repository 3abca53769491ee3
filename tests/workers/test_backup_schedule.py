"""Scheduled backups."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from config import Settings
from config.settings import SettingsError
from pipelines.recovery import backups
from storage.backup_targets import FolderTarget, derive_backup_keys
from storage.catalog import store_state
from storage.stores import Stores
from workers.broker import MemoryBroker
from workers.messages import MessageSender
from workers.scheduler import Scheduler

pytestmark = pytest.mark.spec("OPS-44")


@pytest.fixture
def scheduled(settings: Settings, tmp_path: Path) -> Settings:
    return replace(settings, backup_target=f"file://{tmp_path}/kept", backup_keep=2)


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    (tmp_path / "kept").mkdir()
    return FolderTarget(tmp_path / "kept")


def clock(settings: Settings, stores: Stores) -> Scheduler:
    return Scheduler(settings, stores, MessageSender(MemoryBroker()))


def make_due(stores: Stores) -> None:
    """Make the last backup old, and forget the last attempt."""
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.LAST_BACKUP_KEY, "1")
        tx.exec_driver_sql("DELETE FROM leases WHERE name = 'backup'")


def find_last_backup_us(stores: Stores) -> int | None:
    with stores.catalog.read() as tx:
        return store_state.find_last_backup_us(tx)


def test_makes_a_backup_when_one_is_due(
    scheduled: Settings, stores: Stores, target: FolderTarget
) -> None:
    due = clock(scheduled, stores)
    due.back_up()
    due.back_up()
    (name,) = target.list_names()
    assert find_last_backup_us(stores) is not None
    with target.open(name) as file:
        (key,) = derive_backup_keys(scheduled.secret_keys)
        assert backups.check_backup(file, key=key).key == key


def test_keeps_the_latest_backups(
    scheduled: Settings, stores: Stores, target: FolderTarget
) -> None:
    made = []
    for _ in range(3):
        make_due(stores)
        clock(scheduled, stores).back_up()
        made.append(target.list_names()[-1])
    assert target.list_names() == made[1:]


def test_of_two_clocks_one_makes_the_backup(
    scheduled: Settings, stores: Stores, target: FolderTarget
) -> None:
    together = Barrier(2)

    def back_up() -> None:
        each = clock(scheduled, stores)
        together.wait(60)
        each.back_up()

    with ThreadPoolExecutor(2) as pool:
        for racing in [pool.submit(back_up) for _ in range(2)]:
            racing.result(60)
    assert len(target.list_names()) == 1


def test_a_failure_is_logged_and_tried_again_later(
    scheduled: Settings, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    due = clock(scheduled, stores)
    due.back_up()
    due.back_up()
    assert [one.message for one in caplog.records if "backup" in one.message] == [
        "backup: STORE_BACKUP_TARGET cannot be written: No such file or directory"
    ]
    assert find_last_backup_us(stores) is None


def test_without_a_target_none_is_made(settings: Settings, stores: Stores) -> None:
    clock(settings, stores).back_up()
    assert find_last_backup_us(stores) is None


def test_a_bucket_of_the_store_is_no_target(settings: Settings, stores: Stores) -> None:
    with pytest.raises(SettingsError, match=r"STORE_BACKUP_TARGET: .* is a bucket of the store"):
        clock(replace(settings, backup_target=settings.bucket("aws")), stores)
