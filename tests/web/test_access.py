"""Every page and form with every kind of caller: the policies of its API operation decide."""

import re
import time
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from flask import Flask

import web.app  # noqa: F401  registers the pages
from api.authz.app import build_auth_services
from auth import builtin_roles
from auth.account_operations import ACCOUNT_ACTIONS
from auth.accounts import AuditContext, NewAccount, create_account
from auth.policies.grammar import parse_policy
from config import Settings
from storage.catalog import accounts
from storage.catalog.accounts import AccountKey
from storage.stores import Stores
from tests.api.builders import VERSION
from tests.api.conftest import verify
from tests.conftest import Outbox
from tests.least_roles import ROLES, least_role, least_role_over_accounts
from tests.web.conftest import Visit, Visitor
from web.app import create_site_app
from web.pages import Page, list_pages

UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
STREAM = "text/event-stream"
VALUES = {"from": "2026-01-01T000000.000000Z", "to": "2026-01-02T000000.000000Z"}
"""Of required query parameters; others are a letter."""
ROLE_OF = {
    "reader": builtin_roles.USER_DEFAULT,
    "ingest": builtin_roles.STORE_INGEST,
    "admin": builtin_roles.STORE_ADMIN,
}
PAGES = sorted(list_pages(), key=lambda one: (one.path, one.method))


def path_of(one: Page, uuid: str) -> str:
    """A page's path with this uuid for its parameters, and a version where it wants one."""
    query = {"version": "2026-01-01T000000.000000Z", "uuid": uuid}
    required = [name for name, field in one.query.load_fields.items() if field.required]
    query |= {name: VALUES.get(name, "x") for name in required if name not in query}
    return re.sub(r"<[^>]+>", uuid, one.path) + "?" + urlencode(query)


def least_role_of(one: Page) -> str | None:
    """The least role whose policies allow the page's operation; None if it is open."""
    if not one.access:
        return None
    if one.access in ACCOUNT_ACTIONS:
        return least_role_over_accounts(one.access)
    return least_role(one.access)


def open_page(visitor: Visitor, one: Page, uuid: str) -> int:
    path = path_of(one, uuid)
    return (visitor.get(path) if one.method == "GET" else visitor.post(path)).status_code


@pytest.mark.parametrize("one", PAGES, ids=lambda one: f"{one.method} {one.path}")
def test_anonymous_callers_get_open_pages_only(visit: Visit, depositor, one: Page) -> None:
    uuid = depositor.bundle(1)
    status = open_page(visit(), one, uuid)
    if one.method == "POST":
        assert status == 401
    elif one.login or least_role_of(one):
        assert status == 303
        assert visit().get(path_of(one, uuid)).headers["Location"].startswith("/login?next=")
    else:
        assert status < 500


@pytest.mark.parametrize("one", PAGES, ids=lambda one: f"{one.method} {one.path}")
@pytest.mark.parametrize("person", sorted(ROLE_OF))
def test_page_needs_the_permission_of_its_operation(
    visit: Visit, depositor, one: Page, person: str
) -> None:
    uuid = depositor.bundle(1)
    status = open_page(visit(person), one, uuid)
    needed = least_role_of(one)
    if needed and ROLES.index(ROLE_OF[person]) < ROLES.index(needed):
        assert status == 403
    else:
        # Objects of others are 403 or 404, empty forms 400; a logged-in caller is never sent away.
        assert status not in (401, 500)


@pytest.mark.parametrize("person", ["", *sorted(ROLE_OF)])
def test_streams_of_pages_are_for_those_who_may_see_the_pages(
    visit: Visit, depositor, person: str
) -> None:
    """The URL of a page that renews itself answers a stream, too."""
    uuid = depositor.bundle(1)
    for one in PAGES:
        if one.method == "GET" and not one.acts:
            path = path_of(one, uuid)
            page, stream = visit(person).get(path), visit(person).get(path, Accept=STREAM)
            expected = 401 if page.location and "/login?" in page.location else page.status_code
            if stream.mimetype == STREAM:
                assert page.status_code == 200, one.path
            else:
                assert stream.status_code == expected, one.path
            stream.close()


@pytest.mark.parametrize("one", PAGES, ids=lambda one: f"{one.method} {one.path}")
def test_closed_operations_need_a_login_at_their_pages(
    keyed_settings: Settings, stores: Stores, job_queue: Outbox, one: Page
) -> None:
    """A store that closes all operations shows nothing of what it holds to anonymous callers."""
    settings = replace(keyed_settings, closed_operations=("*",))
    app = build_closed_app(settings, stores, job_queue)
    page = Visitor(app).get(path_of(one, UUID)) if one.method == "GET" else None
    if page is not None and one.access and one.access != "get_health":
        assert page.status_code == 303
        assert page.headers["Location"].startswith("/login?next=")


def test_pages_of_a_closed_store_answer_readers(
    keyed_settings: Settings, stores: Stores, job_queue: Outbox, depositor
) -> None:
    """Policies resolve the version of each page; none of them fails at that."""
    uuid = depositor.bundle(1)
    settings = replace(keyed_settings, closed_operations=("*",))
    reader = Visitor(build_closed_app(settings, stores, job_queue), "reader")
    for one in PAGES:
        if one.method == "GET":
            assert reader.get(path_of(one, uuid)).status_code != 500, one.path
    versions = f"from={VERSION}&to={VERSION}"
    assert reader.get(f"/bundles/{uuid}/diff?{versions}").status_code == 200


def test_collection_of_results_needs_the_permission_to_search(
    keyed_settings: Settings, stores: Stores, job_queue: Outbox, depositor
) -> None:
    uuid = depositor.bundle(1)
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Deny", "Action": ["store:PostSearch"], "Resource": ["*"]}],
    }
    key = AccountKey("user", "ingest@example.org")
    by = AuditContext("test", "test")
    create_account(stores.catalog, NewAccount(key, parse_policy(policy)), by)
    settings = replace(keyed_settings, closed_operations=("*",))
    visitor = Visitor(build_closed_app(settings, stores, job_queue), "ingest")
    assert visitor.get("/search").status_code == 403
    for form in ({"name": "all"}, {}):
        refused = visitor.post("/search/collection", **form)
        assert refused.status_code == 403
        assert uuid not in refused.text


def build_closed_app(settings: Settings, stores: Stores, job_queue: Outbox) -> Flask:
    auth = build_auth_services(settings, stores.catalog, verify, None, time.time)

    def refuse(_path, _form):
        raise AssertionError("no login in this test")

    return create_site_app(
        settings, stores, job_queue=job_queue, verify=verify, auth=auth, post_form=refuse
    )


def test_home_of_a_closed_store_names_no_bundle(
    keyed_settings: Settings, stores: Stores, job_queue: Outbox, depositor
) -> None:
    uuid = depositor.bundle(1)
    settings = replace(keyed_settings, closed_operations=("*",))
    app = build_closed_app(settings, stores, job_queue)
    for path in ("/", "/status"):
        page = Visitor(app).get(path)
        assert page.status_code == 200
        assert uuid not in page.text
        assert "Bundles" not in page.text
    assert uuid in Visitor(app, "reader").get("/").text


def test_disabled_user_gets_no_page_that_needs_a_login(visit: Visit, stores: Stores) -> None:
    with stores.catalog.write() as tx:
        accounts.lock_all(tx)
        key = accounts.AccountKey("user", "admin@example.org")
        accounts.insert(tx, key, None)
        accounts.set_status(tx, key, "disabled")
        accounts.count_change(tx)
    for one in PAGES:
        if one.login and one.access:
            assert open_page(visit("admin"), one, UUID) in (401, 403), one.path
