"""Pages while the store is read-only, or while another service manages the accounts."""

from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import select

from storage.catalog.tables.base import metadata
from storage.stores import Stores
from tests.api.builders import INGEST, Depositor
from tests.subscription_builders import subscribe, tell
from tests.web.conftest import Visit, text_of
from tests.web.test_access import PAGES, path_of
from web.pages import SITE_KEY, Page

FORMS = [one for one in PAGES if one.method == "POST" and not one.while_read_only]
REASON = "The store is read-only"


def close_writes(app: Flask) -> None:
    app.extensions[SITE_KEY].services.read_only.always = True


def list_rows(stores: Stores) -> dict[str, list[str]]:
    """Return what is in the catalog, except for counters of requests."""
    with stores.catalog.read() as tx:
        return {
            table.name: sorted(map(str, tx.execute(select(table)).all()))
            for table in metadata.sorted_tables
            if table.name not in ("rates", "meta")
        }


@pytest.mark.parametrize("one", FORMS, ids=lambda one: one.path)
def test_forms_refuse_and_change_nothing(
    app: Flask, visit: Visit, stores: Stores, depositor: Depositor, one: Page
) -> None:
    uuid = depositor.bundle(1)
    depositor.client.post(f"/v1/area/{uuid}", headers=INGEST)
    own = subscribe(stores.catalog, "https://receiver.example/", owner="ingest@example.org")
    tell(stores.catalog, [own])
    close_writes(app)
    path = path_of(one, own.uuid if one.path.startswith("/subscriptions") else uuid)
    before = list_rows(stores)
    for person in ("ingest", "admin"):
        page = visit(person).post(path, name="n", reason="r", state="LOCKED", days="1", id="x")
        assert page.status_code in (503, 403)
        assert person != "admin" or page.status_code == 503
        assert page.status_code == 403 or REASON in text_of(page)
        assert page.status_code == 403 or page.headers["Retry-After"]
    assert list_rows(stores) == before


def test_a_mirror_names_the_store_to_write_to(
    app: Flask, visit: Visit, stores: Stores, depositor: Depositor
) -> None:
    uuid = depositor.bundle(1)
    app.extensions[SITE_KEY].services.read_only.mirror_of = "https://source.example.org"
    before = list_rows(stores)
    form = next(one for one in FORMS if one.path.startswith("/bundles/"))
    page = visit("admin").post(path_of(form, uuid), name="n", reason="r")
    assert page.status_code == 403
    assert "https://source.example.org" in text_of(page)
    assert list_rows(stores) == before


def test_pages_are_shown_while_read_only(
    app: Flask, visit: Visit, stores: Stores, depositor: Depositor
) -> None:
    uuid = depositor.bundle(1)
    close_writes(app)
    before = list_rows(stores)
    for one in PAGES:
        if one.method == "GET" and not one.acts:
            for person in ("ingest", "admin"):
                page = visit(person).get(path_of(one, uuid))
                assert page.status_code < 500, one.path
    assert list_rows(stores) == before


@pytest.mark.parametrize("one", PAGES, ids=lambda one: f"{one.method} {one.path}")
def test_pages_answer_while_accounts_are_managed_elsewhere(
    app: Flask, visit: Visit, stores: Stores, depositor: Depositor, one: Page
) -> None:
    site = app.extensions[SITE_KEY]
    object.__setattr__(site, "auth", replace(site, auth=None).auth)
    uuid, kind = depositor.bundle(1), "role" if "/users/" in one.path else "user"
    form = {"name": "n@example.org", "days": "1", "kind": kind, "action": "add"}
    for person in ("", "ingest", "admin"):
        visitor, path = visit(person), path_of(one, uuid)
        page = visitor.get(path) if one.method == "GET" else visitor.post(path, **form)
        assert page.status_code != 500
        if one.path.startswith(("/admin", "/account/")) and person == "admin":
            assert page.status_code in (403, 503)
            assert site.services.settings.auth_url in page.text
