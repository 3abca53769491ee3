"""The account page: permissions, sessions, applications and personal tokens of the visitor."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask

from api.app import build_verifier
from auth.login.sessions import SessionLifetimes, create_session
from auth.oauth.clients import CLI_CLIENT
from auth.oauth.personal_tokens import list_personal_tokens
from auth.tokens.verification import GrantChecker
from config import Settings
from storage.catalog import oauth
from storage.catalog.audit import AuditFilter, list_records
from storage.catalog.oauth import GrantRow
from storage.errors import Unauthorized
from storage.stores import Stores
from tests.web.conftest import Visit, text_of
from web.pages import SITE_KEY

READER = "reader@example.org"
SCRIPT_NAME = '"><script>alert(1)</script>'


def granted(stores: Stores, email: str = READER, name: str = "grant 1") -> str:
    """An application that has access to someone's account."""
    now_us = int(time.time() * 1e6)
    row = GrantRow(name, CLI_CLIENT, email, "openid", now_us, now_us, now_us + 10**12)
    with stores.catalog.write() as tx:
        oauth.insert_grant(tx, replace(row, redeemed_us=now_us))
    return name


def logged_in(stores: Stores, email: str = READER) -> str:
    """A browser session; its id."""
    lifetimes = SessionLifetimes(3_600, 3_600)
    with stores.catalog.write() as tx:
        return create_session(tx, email, "local", now=time.time(), lifetimes=lifetimes)[1].id


@pytest.mark.parametrize("path", ["/account", "/account/permissions"])
def test_sends_anonymous_visitors_to_the_login(visit: Visit, path: str) -> None:
    answer = visit().get(path)
    assert (answer.status_code, answer.headers["Location"][:12]) == (303, "/login?next=")


@pytest.mark.parametrize(
    "path", ["/account/tokens", "/account/sessions/end", "/account/access/revoke"]
)
def test_forms_need_login_and_their_own_csrf_token(visit: Visit, path: str) -> None:
    form = {"name": "x", "days": "1", "session": "x", "grant": "x"}
    assert visit().post(path, **form).status_code == 401
    assert visit("reader").post(path, csrf="forged", **form).status_code == 403


def test_shows_who_is_logged_in_with_groups_and_roles(visit: Visit) -> None:
    text = text_of(visit("ingest").get("/account"))
    assert "You are logged in as ingest@example.org" in text
    assert "Groups store_ingest, user_default" in text
    assert "store_ingest, user_default (from group user_default)" in text


def test_says_what_the_roles_allow_and_why(visit: Visit) -> None:
    def row(person: str, action: str) -> str:
        page = visit(person).get("/account/permissions")
        assert page.status_code == 200
        found = next(r for r in re.findall(r"<tr>.*?</tr>", page.text, re.S) if action in r)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found)).strip()

    about = "store:PutBundle Write a bundle version."
    assert row("reader", "store:PutBundle<") == f"{about} no no statement allows it"
    allowed = f"{about} yes allowed by role store_ingest, statement Writes"
    assert row("ingest", "store:PutBundle<") == allowed
    assert "yes, to everyone" in row("reader", "store:GetBundle<")
    assert visit("reader").get("/account/permissions").text.count("store:PutFile<") == 1


def test_creates_token_that_the_store_accepts_until_it_is_revoked(
    visit: Visit, stores: Stores, keyed_settings: Settings
) -> None:
    reader = visit("reader")
    page = reader.post("/account/tokens", name="weekly export", days="30")
    assert page.status_code == 200
    token = re.findall(r"<code>(ey[\w.-]+)</code>", page.text)[0]
    verifier = build_verifier(
        keyed_settings, time.time, grants=GrantChecker(stores.catalog, time.time)
    )
    assert verifier.verify(token).email == READER
    again = reader.get("/account")
    assert token not in again.text
    assert "weekly export" in again.text
    (row,) = list_personal_tokens(stores.catalog, READER, time.time())
    assert visit("other").post("/account/access/revoke", grant=row.id).status_code == 303
    assert verifier.verify(token).email == READER
    assert reader.post("/account/access/revoke", grant=row.id).status_code == 303
    with pytest.raises(Unauthorized):
        verifier.verify(token)
    assert "weekly export" not in reader.get("/account").text


@pytest.mark.parametrize(
    ("form", "field", "message"),
    [
        ({"name": "", "days": "3"}, "name", ""),
        ({"name": "x" * 101, "days": "3"}, "name", ""),
        ({"name": "backup", "days": "0"}, "days", "from 1"),
        ({"name": "backup", "days": "many"}, "days", "whole number"),
        ({"name": "backup", "days": "366"}, "days", "must be 1 to 365 days"),
        ({"name": "\u202eevil", "days": "3"}, "name", "printable"),
    ],
)
def test_shows_errors_at_the_field_and_creates_nothing(
    visit: Visit, stores: Stores, form: dict[str, str], field: str, message: str
) -> None:
    page = visit("reader").post("/account/tokens", **form)
    assert page.status_code == 400
    described = re.findall(rf'id="h-{field}">(.*?)</small>', page.text)[0]
    assert 'class="message"' in described
    assert message in described
    assert list_personal_tokens(stores.catalog, READER, time.time()) == []


def test_rejects_second_token_of_same_name(visit: Visit) -> None:
    reader = visit("reader")
    reader.post("/account/tokens", name="backup", days="3")
    page = reader.post("/account/tokens", name="backup", days="3")
    assert page.status_code == 400
    assert "taken by another of your tokens" in page.text


def test_names_are_shown_as_text(visit: Visit) -> None:
    page = visit("reader").post("/account/tokens", name=SCRIPT_NAME, days="3")
    assert page.status_code == 200
    assert "<script>alert" not in page.text


def test_lists_and_ends_own_browser_sessions_only(visit: Visit, stores: Stores) -> None:
    mine, foreign = logged_in(stores), logged_in(stores, "other@example.org")
    reader = visit("reader")
    page = reader.get("/account")
    assert mine in page.text
    assert foreign not in page.text
    for session in (mine, foreign):
        assert reader.post("/account/sessions/end", session=session).status_code == 303
    assert mine not in reader.get("/account").text
    assert foreign in visit("other").get("/account").text


def test_lists_and_revokes_applications(visit: Visit, stores: Stores) -> None:
    grant, foreign = granted(stores), granted(stores, "other@example.org", "grant 2")
    reader = visit("reader")
    page = reader.get("/account")
    assert "command-line client" in text_of(page)
    assert foreign not in page.text
    reader.post("/account/access/revoke", grant=grant)
    assert "No application has access" in text_of(reader.get("/account"))
    with stores.catalog.read() as tx:
        (record,) = list_records(tx, AuditFilter(who=READER), before_id=None, limit=9)
    assert record.what == "end_grant"


def test_remote_accounts_are_named(app: Flask, visit: Visit, keyed_settings: Settings) -> None:
    site = app.extensions[SITE_KEY]
    remote: Any = replace(site, auth=None)
    object.__setattr__(site, "auth", remote.auth)
    reader = visit("reader")
    page = reader.get("/account")
    assert page.status_code == 200
    assert f"managed at {keyed_settings.auth_url}" in text_of(page)
    refused = reader.get("/account/permissions")
    assert refused.status_code == 403
    assert f"managed at {keyed_settings.auth_url}" in text_of(refused)
    assert reader.post("/account/tokens", name="x", days="1").status_code == 403
