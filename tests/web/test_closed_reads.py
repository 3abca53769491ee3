"""Pages of a store whose reads need a permission: the policies of the API apply."""

from dataclasses import replace
from typing import Any

import pytest
from werkzeug.test import TestResponse

from auth import accounts
from auth.accounts import NewAccount
from auth.policies.grammar import parse_policy
from config import Settings
from storage.catalog.accounts import AccountKey
from storage.stores import Stores
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import PEOPLE
from tests.auth.accounts.builders import BY
from tests.auth.policies.builders import document, statement
from tests.web.conftest import Visit


@pytest.fixture
def keyed_settings(keyed_settings: Settings) -> Settings:
    """Settings that close all reads."""
    return replace(keyed_settings, closed_operations=("*",))


def test_pages_of_data_need_login(visit: Visit, depositor: Depositor) -> None:
    bundle, file = depositor.bundle(1), uuid_of(0x100)
    paths = [
        f"/bundles/{bundle}",
        f"/bundles/{bundle}/versions",
        f"/bundles/{bundle}/diff?from={VERSION}&to={VERSION}",
        f"/bundles/{bundle}/archive",
        f"/bundles/{bundle}/manifest",
        f"/bundles/{bundle}/metadata?version={VERSION}",
        f"/files/{file}",
        f"/files/{file}/download",
        f"/preview/files/{file}",
    ]
    for path in paths:
        anonymous = visit().get(path)
        assert anonymous.status_code == 303, path
        assert anonymous.headers["Location"].startswith("/login?next=")
        assert visit("reader").get(path).status_code in (200, 303), path
        assert not visit("reader").get(path).headers.get("Location", "").startswith("/login")


def test_withdrawn_bundle_is_404_like_in_the_api(visit: Visit, depositor: Depositor) -> None:
    bundle = depositor.bundle(1)
    depositor.client.delete(
        f"/v1/bundles/{bundle}?replica=aws", json={"reason": "secret reason"}, headers=INGEST
    )
    page = visit("reader").get(f"/bundles/{bundle}")
    assert page.status_code == 404
    assert "secret reason" not in page.text


def test_exports_are_shown_to_those_who_may(
    visit: Visit, depositor: Depositor, stores: Stores
) -> None:
    bundle = depositor.bundle(1)
    shown = visit("reader").get(f"/bundles/{bundle}").text
    assert f"/bundles/{bundle}/archive?" in shown
    assert f"/bundles/{bundle}/metadata?" in shown
    denied = statement("Deny", Action=["store:GetBundleArchive", "store:GetEvent"])
    set_policy(stores, denied)
    hidden = visit("reader").get(f"/bundles/{bundle}").text
    assert f"/bundles/{bundle}/archive?" not in hidden
    assert f"/bundles/{bundle}/metadata?" not in hidden
    assert f"/bundles/{bundle}/manifest?" in hidden
    for path in ("archive?", f"metadata?version={VERSION}"):
        assert visit("reader").get(f"/bundles/{bundle}/{path}").status_code == 403


FEEDS = pytest.mark.parametrize("path", ["/feed.atom", "/catalog.jsonld"])


@FEEDS
def test_feed_has_the_bundles_that_the_caller_may_read(
    visit: Visit, depositor: Depositor, stores: Stores, path: str
) -> None:
    hidden, shown = depositor.bundle(1), depositor.bundle(2)
    everything = visit("reader").get(path).text
    assert (hidden in everything, shown in everything) == (True, True)
    arn = f"arn:store:*:*:bundles/{hidden}.*"
    set_policy(stores, statement("Deny", Action="store:GetBundle", Resource=arn))
    readable = visit("reader").get(path).text
    assert (hidden in readable, shown in readable) == (False, True)


@FEEDS
def test_feed_needs_the_permission_to_list_bundles(visit: Visit, stores: Stores, path: str) -> None:
    assert visit("reader").get(path).status_code == 200
    set_policy(stores, statement("Deny", Action="store:GetBundlesAll"))
    assert visit("reader").get(path).status_code == 403
    assert visit().get(path).status_code == 303


def test_history_has_the_versions_that_the_caller_may_read(
    visit: Visit, depositor: Depositor, stores: Stores
) -> None:
    versions = [f"2026-0{month}-01T000000.000000Z" for month in (1, 2, 3, 4)]
    for version in versions:
        bundle = depositor.bundle(1, version=version)
    everything = visit("admin").get(f"/bundles/{bundle}/versions").text
    assert all(f"version={version}" in everything for version in versions)
    arns = [f"arn:store:*:*:bundles/{bundle}.{version}" for version in versions[1::2]]
    set_policy(stores, statement("Deny", Action="store:GetBundle", Resource=arns))
    reader = visit("reader")
    for page in ("/versions", f"?version={versions[2]}"):
        shown = reader.get(f"/bundles/{bundle}{page}")
        assert shown.status_code == 200
        assert [version in shown.text for version in versions] == [True, False, True, False]
    assert visit().get(f"/bundles/{bundle}/versions").status_code == 303


def test_history_of_a_bundle_that_nobody_may_read_is_refused(
    visit: Visit, depositor: Depositor, stores: Stores
) -> None:
    bundle = depositor.bundle(1)
    set_policy(stores, statement("Deny", Action="store:GetBundle"))
    for path in (f"/bundles/{bundle}/versions", f"/bundles/{uuid_of(77)}/versions"):
        assert visit("reader").get(path).status_code == 403
        assert visit("reader").get(f"{path}?before={VERSION}").status_code == 403


def set_policy(stores: Stores, *statements: Any) -> None:
    """Give the reader a policy of its own."""
    user = AccountKey("user", PEOPLE["reader"].email)
    policy = parse_policy(document(*statements))
    accounts.create_account(stores.catalog, NewAccount(user, policy), BY)


def read_as(visit: Visit, path: str, token: str, **headers: str) -> TestResponse:
    """Read a document as a program does: with a token, and without cookies."""
    return visit().client.get(path, headers={"Authorization": f"Bearer {token}", **headers})


EXPORTS = pytest.mark.parametrize(
    "path", ["/feed.atom", "/catalog.jsonld", f"/bundles/{uuid_of(1)}/datacite"]
)


@pytest.mark.spec("WHO-30")
@EXPORTS
def test_programs_read_exports_with_a_token(visit: Visit, depositor: Depositor, path: str) -> None:
    depositor.bundle(1)
    answer = read_as(visit, path, "reader")
    assert (answer.status_code, answer.data) == (200, visit("reader").get(path).data)
    head = visit().client.head(path, headers={"Authorization": "Bearer reader"})
    assert (head.status_code, head.data) == (200, b"")
    tag = answer.headers["ETag"]
    assert head.headers["ETag"] == tag
    same = read_as(visit, path, "reader", **{"If-None-Match": tag})
    assert (same.status_code, same.data) == (304, b"")
    assert answer.headers["Cache-Control"] == "private, no-cache"
    assert {"Authorization", "Cookie"} <= {*answer.vary}


@pytest.mark.spec("WHO-30")
@EXPORTS
def test_bad_token_is_a_problem_and_leads_to_no_login(visit: Visit, path: str) -> None:
    for authorization in ("Bearer nobody", "bearer nobody", "Bearer "):
        # Not even a session replaces it.
        client = visit("reader").client
        refused = client.get(path, headers={"Authorization": authorization})
        assert refused.status_code == 401
        assert refused.content_type == "application/problem+json"
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert visit().get(path).status_code == 303


@pytest.mark.spec("WHO-30")
@EXPORTS
def test_other_schemes_count_as_no_header(visit: Visit, depositor: Depositor, path: str) -> None:
    depositor.bundle(1)
    proxied = {"Authorization": "Basic cmVhZGVyOg=="}
    answer = visit("reader").get(path, **proxied)
    assert (answer.status_code, answer.data) == (200, visit("reader").get(path).data)
    assert visit().get(path, **proxied).status_code == 303


@pytest.mark.spec("WHO-30")
def test_browsers_do_not_store_datacite_of_a_session(visit: Visit, depositor: Depositor) -> None:
    answer = visit("reader").get(f"/bundles/{depositor.bundle(1)}/datacite")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")


@pytest.mark.spec("WHO-30")
@EXPORTS
def test_token_without_the_permission_is_refused(
    visit: Visit, depositor: Depositor, stores: Stores, path: str
) -> None:
    depositor.bundle(1)
    set_policy(stores, statement("Deny", Action=["store:GetBundle", "store:GetBundlesAll"]))
    refused = read_as(visit, path, "reader")
    assert (refused.status_code, refused.content_type) == (403, "application/problem+json")


@pytest.mark.spec("WHO-30")
@FEEDS
def test_token_sees_the_bundles_that_it_may_read(
    visit: Visit, depositor: Depositor, stores: Stores, path: str
) -> None:
    hidden, shown = depositor.bundle(1), depositor.bundle(2)
    arn = f"arn:store:*:*:bundles/{hidden}.*"
    set_policy(stores, statement("Deny", Action="store:GetBundle", Resource=arn))
    readable = read_as(visit, path, "reader").text
    assert (hidden in readable, shown in readable) == (False, True)


@pytest.mark.spec("WHO-30")
def test_other_pages_take_no_token(visit: Visit, depositor: Depositor) -> None:
    bundle = depositor.bundle(1)
    assert read_as(visit, f"/bundles/{bundle}", "reader").status_code == 303


def test_own_permissions_do_not_call_closed_reads_open(visit: Visit) -> None:
    page = visit("reader").get("/account/permissions")
    row = next(one for one in page.text.split("<tr>") if "store:GetBundle<" in one)
    assert "yes, to everyone" not in row
