"""What the clock does for upload areas."""

from config.settings import Settings
from storage.catalog import area_uploads
from storage.catalog.area_uploads import AreaUpload
from storage.catalog.engine import sql
from storage.errors import NotFound
from storage.stores import Stores
from tests.workers.test_clock import MemoryBroker, clock

KEY = "areas/6ba7b810-9dad-11d1-80b4-00c04fd430c8/a"


def test_an_upload_by_parts_that_nobody_goes_on_with_for_a_day_is_aborted(
    settings: Settings, stores: Stores
) -> None:
    begun = {
        ident: stores.areas.upload(KEY, part_size=5, content_type="text/plain")
        for ident in ("old", "new")
    }
    with stores.catalog.write() as tx:
        for ident, one in begun.items():
            row = AreaUpload(ident, KEY.split("/")[1], "a", one.token, 5, "text/plain", 5)
            area_uploads.opened(tx, row)
        day = "UPDATE area_uploads SET at_us = at_us - 86401000000 WHERE id = 'old'"
        tx.execute(sql(day))
    clock(settings, stores, MemoryBroker()).tidy()
    with stores.catalog.read() as tx:
        assert area_uploads.get(tx, "old") is None
        assert area_uploads.get(tx, "new") is not None
    for ident, gone in (("old", True), ("new", False)):
        try:
            stores.areas.upload(KEY, part_size=5, content_type="", token=begun[ident].token)
            there = True
        except NotFound:
            there = False
        assert there is not gone
