"""Pages of the administration: users, groups, roles, policies, evaluation, audit, applications."""

import html
import json
import re
from dataclasses import replace

import pytest
from flask import Flask
from joserfc.jwk import RSAKey

from auth import accounts
from auth.accounts import AuditContext, MembershipEdit, NewAccount
from auth.policies.grammar import parse_policy
from config import Settings
from storage.catalog.accounts import AccountKey
from storage.catalog.audit import AuditFilter
from storage.stores import Stores
from tests.web.conftest import Visit, text_of
from web.pages import SITE_KEY

ADA = "ada@example.org"
BY = AuditContext("test@example.org", "test")
POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Sid": "Deposits", "Effect": "Allow", "Action": ["store:PutBundle"], "Resource": ["*"]}
    ],
}
PAGES = [
    "/admin",
    "/admin/users",
    f"/admin/users/{ADA}",
    f"/admin/users/{ADA}/policy",
    "/admin/groups",
    "/admin/groups/team",
    "/admin/groups/team/policy",
    "/admin/groups/team/delete",
    "/admin/roles",
    "/admin/roles/reviewer",
    "/admin/roles/reviewer/policy",
    "/admin/roles/reviewer/delete",
    "/admin/new-role",
    "/admin/why",
    f"/admin/why?who={ADA}&action=store:PutBundle",
    "/admin/audit",
    "/admin/service-accounts",
    "/admin/service-accounts/remove?email=p@example.org&kid=1",
    "/admin/applications",
    "/admin/applications/remove?id=portal",
]
FORMS = [
    ("/admin/users", {"id": "new@example.org"}),
    (f"/admin/users/{ADA}/status", {"status": "disabled"}),
    (f"/admin/users/{ADA}/members", {"kind": "role", "name": "reviewer", "action": "add"}),
    (f"/admin/users/{ADA}/policy", {"policy": json.dumps(POLICY)}),
    ("/admin/groups", {"id": "new"}),
    ("/admin/groups/team/members", {"kind": "user", "name": ADA, "action": "add"}),
    ("/admin/groups/team/policy", {"policy": json.dumps(POLICY)}),
    ("/admin/groups/team/delete", {}),
    ("/admin/new-role", {"id": "new", "policy": json.dumps(POLICY)}),
    ("/admin/roles/reviewer/policy", {"policy": json.dumps({**POLICY, "Statement": []})}),
    ("/admin/roles/reviewer/delete", {}),
    ("/admin/service-accounts", {"email": "p@example.org", "key": "x"}),
    ("/admin/service-accounts/remove", {"email": "p@example.org", "kid": "1"}),
    ("/admin/applications", {"id": "portal", "name": "Portal"}),
    ("/admin/applications/remove", {"id": "portal"}),
]


@pytest.fixture(autouse=True)
def records(stores: Stores) -> None:
    """A user, a group and a role."""
    made = (
        NewAccount(AccountKey("user", ADA)),
        NewAccount(AccountKey("group", "team")),
        NewAccount(AccountKey("role", "reviewer"), parse_policy(POLICY)),
    )
    for new in made:
        accounts.create_account(stores.catalog, new, BY)


def changes(stores: Stores) -> int:
    """How many audit entries there are."""
    found = accounts.list_changes(stores.catalog, AuditFilter(), before_id=None, limit=1_000)
    return len(found)


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_for_administrators(visit: Visit, path: str) -> None:
    anonymous = visit().get(path)
    assert (anonymous.status_code, anonymous.headers["Location"][:12]) == (303, "/login?next=")
    for person in ("reader", "ingest"):
        refused = visit(person).get(path)
        assert refused.status_code == 403
        assert "You need the role store_admin: no policy allows auth:" in text_of(refused)
        assert "Ask an administrator" in text_of(refused)
    assert visit("admin").get(path).status_code == 200


@pytest.mark.parametrize(("path", "form"), FORMS)
def test_forms_are_for_administrators(
    visit: Visit, stores: Stores, path: str, form: dict[str, str]
) -> None:
    before = changes(stores)
    assert visit().post(path, **form).status_code == 401
    assert visit("ingest").post(path, **form).status_code == 403
    assert visit("admin").post(path, csrf="forged", **form).status_code == 403
    assert changes(stores) == before


def test_navigation_shows_administration_to_administrators_only(visit: Visit) -> None:
    link = 'href="/admin"'
    assert link in visit("admin").get("/").text
    for person in ("", "reader", "ingest"):
        assert link not in visit(person).get("/").text


def test_lists_users_by_prefix_and_page(visit: Visit, stores: Stores) -> None:
    for number in range(60):
        new = NewAccount(AccountKey("user", f"user{number:02}@example.org"))
        accounts.create_account(stores.catalog, new, BY)
    admin = visit("admin")
    first = admin.get("/admin/users?prefix=user")
    assert ADA not in first.text
    assert "user49@example.org" in first.text
    assert "user50@example.org" not in first.text
    onward = html.unescape(re.findall(r'href="([^"]*)" rel="next"', first.text)[0])
    second = admin.get(onward)
    assert "user59@example.org" in second.text
    assert "user49@example.org" not in second.text
    assert 'rel="next"' not in second.text


def test_creates_a_user_and_says_what_is_wrong_with_the_address(
    visit: Visit, stores: Stores
) -> None:
    admin = visit("admin")
    done = admin.post("/admin/users", id="New@Example.org")
    assert (done.status_code, done.headers["Location"]) == (303, "/admin/users/new@example.org")
    assert "The user new@example.org is created." in text_of(admin.get("/admin/users"))
    before = changes(stores)
    for bad, told in (("nobody", "e-mail"), ("new@example.org", "already exists"), ("", "")):
        page = admin.post("/admin/users", id=bad)
        assert page.status_code == 400
        assert 'aria-invalid="true"' in page.text
        assert told in page.text
    assert changes(stores) == before


def test_finds_out_why_a_user_may_not_write_and_grants_it(visit: Visit) -> None:
    admin, question = visit("admin"), f"/admin/why?who={ADA}&action=store:PutBundle"
    page = text_of(admin.get(question))
    assert page.index("reviewer") < page.index("store_admin")
    assert "denied store:PutBundle" in page
    assert "No statement allows it here" in page
    assert "Give ada@example.org this role" in page
    form = {"kind": "role", "name": "reviewer", "action": "add"}
    done = admin.post(f"/admin/users/{ADA}/members", **form)
    assert (done.status_code, done.headers["Location"]) == (303, f"/admin/users/{ADA}")
    page = text_of(admin.get(question))
    assert "allowed store:PutBundle" in page
    assert "Deposits in the policy of role reviewer" in page


def test_shows_the_statement_that_denies(visit: Visit, stores: Stores) -> None:
    denies = {**POLICY, "Statement": [{**POLICY["Statement"][0], "Effect": "Deny", "Sid": "Never"}]}
    accounts.set_account_policy(
        stores.catalog, AccountKey("group", "team"), parse_policy(denies), BY
    )
    edit = MembershipEdit(AccountKey("group", "team"), "users", [AccountKey("user", ADA)], "add")
    accounts.edit_memberships(stores.catalog, edit, BY)
    page = visit("admin").get(f"/admin/why?who={ADA}&action=store:PutBundle")
    assert "Never in the policy of group team" in text_of(page)
    assert 'href="/admin/groups/team"' in page.text


def at_night(stores: Stores) -> None:
    """Let Ada deposit from one network, with TLS, before a date."""
    conditions = {
        "IpAddress": {"store:SourceIp": "192.0.2.0/24"},
        "Bool": {"store:SecureTransport": "true"},
        "DateLessThan": {"store:CurrentTime": "2026-06-01T00:00:00Z"},
    }
    allows = {**POLICY["Statement"][0], "Condition": conditions}
    policy = parse_policy({**POLICY, "Statement": [allows]})
    accounts.set_account_policy(stores.catalog, AccountKey("user", ADA), policy, BY)


def test_evaluation_names_what_it_does_not_know_of_the_request(
    visit: Visit, stores: Stores
) -> None:
    at_night(stores)
    question = f"/admin/why?who={ADA}&action=store:PutBundle"
    page = text_of(visit("admin").get(question))
    assert "denied store:PutBundle" in page
    told = "store:CurrentTime, store:SecureTransport, store:SourceIp: conditions ask for it"
    assert told in page
    page = text_of(visit("admin").get(f"{question}&source_ip=192.0.2.7&secure=yes"))
    assert "denied store:PutBundle" in page
    assert "store:SourceIp = 192.0.2.7, store:SecureTransport = True" in page
    assert "Depends on store:CurrentTime: conditions ask for it" in page


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("source_ip=192.0.2.7&secure=yes&time=2026-05-31T23:59", "allowed"),
        ("source_ip=192.0.2.7&secure=yes&time=2026-06-01T00:00", "denied"),
        ("source_ip=192.0.2.7&secure=no&time=2026-05-31T23:59", "denied"),
        ("source_ip=198.51.100.7&secure=yes&time=2026-05-31T23:59", "denied"),
    ],
)
def test_evaluation_takes_what_the_request_is_like(
    visit: Visit, stores: Stores, given: str, answer: str
) -> None:
    at_night(stores)
    page = visit("admin").get(f"/admin/why?who={ADA}&action=store:PutBundle&{given}")
    assert f"{answer} store:PutBundle" in text_of(page)
    assert "conditions ask for it" not in page.text


def test_evaluation_counts_groups_that_the_token_claims(visit: Visit, stores: Stores) -> None:
    policy = parse_policy(POLICY)
    accounts.set_account_policy(stores.catalog, AccountKey("group", "team"), policy, BY)
    question = f"/admin/why?who={ADA}&action=store:PutBundle"
    assert "denied store:PutBundle" in text_of(visit("admin").get(question))
    claimed = text_of(visit("admin").get(f"{question}&groups=team,%20absent"))
    assert "allowed store:PutBundle" in claimed
    assert "in the policy of group team" in claimed


@pytest.mark.parametrize("given", ["source_ip=nowhere", "time=tomorrow", "token_time=2026-02-30"])
def test_evaluation_shows_errors_at_the_fields(visit: Visit, given: str) -> None:
    page = visit("admin").get(f"/admin/why?who={ADA}&action=store:PutBundle&{given}")
    assert page.status_code == 400
    assert 'aria-invalid="true"' in page.text
    assert "denied" not in text_of(page)


def test_user_may_evaluate_only_themselves(visit: Visit) -> None:
    reader = visit("reader")
    assert reader.get("/admin/why?who=reader@example.org").status_code == 200
    own = reader.get("/admin/why?who=reader@example.org&action=store:PutBundle")
    assert "Roles that would allow it" not in own.text
    assert reader.get(f"/admin/why?who={ADA}").status_code == 403


def test_adds_and_removes_users_of_a_group(visit: Visit) -> None:
    admin, path = visit("admin"), "/admin/groups/team/members"
    admin.post(path, kind="user", name=ADA, action="add")
    assert f'href="/admin/users/{ADA.replace("@", "%40")}"' in admin.get("/admin/groups/team").text
    admin.post(path, kind="user", name=ADA, action="remove")
    assert f'value="{ADA}"' not in admin.get("/admin/groups/team").text


@pytest.mark.parametrize("name", ["absent", "<script>alert(1)</script>"])
def test_shows_error_at_the_field_of_an_unknown_member(
    visit: Visit, stores: Stores, name: str
) -> None:
    before = changes(stores)
    page = visit("admin").post(f"/admin/users/{ADA}/members", kind="role", name=name, action="add")
    assert page.status_code == 400
    assert "Not found: role" in page.text
    assert "<script>alert" not in page.text
    assert changes(stores) == before


def test_offers_no_removal_of_what_everyone_has(visit: Visit) -> None:
    page = visit("admin").get(f"/admin/users/{ADA}").text
    assert "user_default</a>" in page
    assert 'value="user_default"' not in page


def test_disables_and_enables_a_user(visit: Visit) -> None:
    admin, path = visit("admin"), f"/admin/users/{ADA}"
    admin.post(f"{path}/status", status="disabled")
    assert "Enable this user" in admin.get(path).text
    assert "The user is disabled." in text_of(
        admin.get(f"/admin/why?who={ADA}&action=store:GetBundle")
    )
    admin.post(f"{path}/status", status="enabled")
    assert "Disable this user" in admin.get(path).text


def test_second_editor_of_a_policy_changes_nothing(visit: Visit) -> None:
    admin, path = visit("admin"), "/admin/groups/team/policy"
    base = re.findall(r'name="base" value="([0-9a-f]{64})"', admin.get(path).text)[0]
    assert f'value="{base}"' in admin.post(path, policy="{}", action="check", base=base).text
    assert admin.post(path, policy=json.dumps(POLICY), base=base).status_code == 303
    other = json.dumps(POLICY).replace("PutBundle", "PutFile")
    late = admin.post(path, policy=other, base=base)
    assert late.status_code == 409
    assert "was changed meanwhile" in text_of(late)
    assert "store:PutBundle" in admin.get("/admin/groups/team").text


def test_policy_editor_checks_without_saving_and_saves(visit: Visit, stores: Stores) -> None:
    admin, path, before = visit("admin"), "/admin/groups/team/policy", changes(stores)
    assert "Statement" in admin.get(path).text
    checked = admin.post(path, policy=json.dumps(POLICY), action="check")
    assert "This policy is valid. It is not saved yet." in text_of(checked)
    assert "No operation" not in text_of(checked)
    typo = json.dumps(POLICY).replace("PutBundle", "PutBundel")
    assert "No operation has an action of" in text_of(admin.post(path, policy=typo, action="check"))
    assert changes(stores) == before
    assert admin.post(path, policy=json.dumps(POLICY), action="save").status_code == 303
    assert "store:PutBundle" in admin.get("/admin/groups/team").text
    assert admin.post(path, policy="", action="save").status_code == 303
    assert "store:PutBundle" not in admin.get("/admin/groups/team").text


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("{", "Line 1, column 2"),
        ("[" * 20_000, "not JSON that can be read"),
        ('{"Version": "2012-10-17", "Statement": [{"Effect": "Maybe"}]}', "/Statement/0/Effect"),
        ("9" * 5_000, "not JSON that can be read"),
        ('"<script>alert(1)</script>"', "policy"),
        ("", "Required of a role."),
    ],
)
def test_policy_editor_shows_where_the_error_is(
    visit: Visit, stores: Stores, policy: str, told: str
) -> None:
    before = changes(stores)
    page = visit("admin").post("/admin/roles/reviewer/policy", policy=policy, action="save")
    assert page.status_code == 400
    message = re.findall(r'id="h-policy">(.*?)</small>', page.text, re.S)[0]
    assert told in html.unescape(message)
    assert html.escape(policy[:40]) in page.text.replace("&#34;", "&quot;")
    assert "<script>alert" not in page.text
    assert changes(stores) == before


def test_creates_and_deletes_a_role(visit: Visit) -> None:
    admin = visit("admin")
    made = admin.post("/admin/new-role", id="curator", policy=json.dumps(POLICY), action="save")
    assert (made.status_code, made.headers["Location"]) == (303, "/admin/roles/curator")
    assert "cannot be undone" in admin.get("/admin/roles/curator/delete").text
    assert admin.post("/admin/roles/curator/delete").status_code == 303
    assert admin.get("/admin/roles/curator").status_code == 404
    taken = admin.post("/admin/new-role", id="reviewer", policy=json.dumps(POLICY), action="save")
    assert taken.status_code == 400
    assert "already exists" in taken.text


def test_built_in_role_cannot_be_changed_or_deleted(visit: Visit) -> None:
    admin = visit("admin")
    page = admin.get("/admin/roles/store_ingest")
    assert "Built in" in page.text
    assert "/delete" not in page.text
    assert admin.get("/admin/roles/store_ingest/policy").status_code == 403
    policy = json.dumps(POLICY)
    assert admin.post("/admin/roles/store_ingest/policy", policy=policy).status_code == 409
    assert admin.post("/admin/roles/store_ingest/delete").status_code == 409


def test_audit_log_has_filters(visit: Visit) -> None:
    admin = visit("admin")
    admin.post("/admin/users", id="new@example.org")

    def targets(query: str) -> list[str]:
        page = admin.get(f"/admin/audit?{query}")
        assert page.status_code == 200
        text = page.text.replace("<wbr>", "")
        return re.findall(r'<a href="/admin/\w+s/[^"]*">((?:user|group|role)/[^<]*)</a>', text)

    assert targets("who=Admin@example.org") == ["user/new@example.org"]
    assert targets("what=post_v1_user") == ["user/new@example.org"]
    assert targets("target=group/team") == ["group/team"]
    assert targets("since=2000-01-01&until=2000-01-31") == []
    assert len(targets("since=2000-01-01")) == 4


@pytest.mark.parametrize("day", ["yesterday", "2026-02-30", "9999-12-31", "0000-01-01"])
def test_audit_log_shows_error_of_a_day(visit: Visit, day: str) -> None:
    page = visit("admin").get(f"/admin/audit?until={day}")
    assert page.status_code == 400
    assert "Must be a date like 2026-01-31." in page.text


def test_audit_log_pages_to_older_entries(visit: Visit, stores: Stores) -> None:
    for number in range(60):
        new = NewAccount(AccountKey("group", f"group{number:02}"))
        accounts.create_account(stores.catalog, new, BY)
    admin = visit("admin")
    first = admin.get("/admin/audit")
    assert "group59" in first.text
    assert "group05" not in first.text
    onward = html.unescape(re.findall(r'href="([^"]*)" rel="next"', first.text)[0])
    second = admin.get(onward)
    assert "group05" in second.text
    assert f"user/{ADA}" in second.text


def test_registers_and_removes_service_keys(visit: Visit) -> None:
    admin, path = visit("admin"), "/admin/service-accounts"
    key = RSAKey.generate_key(2048)
    public, private = key.as_pem(private=False).decode(), key.as_pem(private=True).decode()
    wrong = admin.post(path, email="p@example.org", key=private)
    assert wrong.status_code == 400
    assert "private key" in wrong.text
    assert admin.post(path, email="nobody", key=public).status_code == 400
    assert admin.post(path, email="p@example.org", key=public).status_code == 303
    kid = re.findall(r"kid=([^\"&]+)", admin.get(path).text)[0]
    ask = admin.get(f"{path}/remove?email=p@example.org&kid={kid}")
    assert "refused from the next request on" in ask.text
    assert admin.post(f"{path}/remove", email="p@example.org", kid=kid).status_code == 303
    assert kid not in admin.get(path).text
    assert admin.post(f"{path}/remove", email="p@example.org", kid=kid).status_code == 404


def test_adds_application_and_shows_its_secret_once(visit: Visit, stores: Stores) -> None:
    admin, path = visit("admin"), "/admin/applications"
    form = {"id": "portal", "name": "The <b>portal</b>", "kind": "confidential"}
    bad = admin.post(path, **form, redirect_uris="ftp://example.org")
    assert bad.status_code == 400
    assert "redirect URI" in bad.text
    made = admin.post(path, **form, redirect_uris="https://portal.example/back\nhttps://b.example/")
    assert made.status_code == 200
    secret = re.findall(r"<code>([\w-]{43})</code>", made.text)[0]
    page = admin.get(path)
    assert secret not in page.text
    assert "<b>portal</b>" not in page.text
    assert "https://b.example/" in page.text
    assert admin.post(path, **form).status_code == 400
    (record, *_) = accounts.list_changes(stores.catalog, AuditFilter(), before_id=None, limit=1)
    assert (record.who, record.what) == ("admin@example.org", "add_client")
    assert admin.post(f"{path}/remove", id="portal").status_code == 303
    assert "portal.example" not in admin.get(path).text


def test_hostile_ids_are_refused(visit: Visit) -> None:
    admin = visit("admin")
    for path in ("/admin/users/%3Cscript%3E", "/admin/groups/a%0Ab", "/admin/roles/x%20y"):
        assert admin.get(path).status_code == 400
    assert admin.get("/admin/users/absent@example.org").status_code == 404


def test_remote_authorization_says_where_accounts_are(
    app: Flask, visit: Visit, keyed_settings: Settings
) -> None:
    site = app.extensions[SITE_KEY]
    object.__setattr__(site, "auth", replace(site, auth=None).auth)
    admin = visit("admin")
    assert 'href="/admin"' not in admin.get("/").text
    for path in ("/admin", "/admin/users", "/admin/why", "/admin/audit", "/admin/applications"):
        page = admin.get(path)
        assert page.status_code == 403
        assert f"managed at {keyed_settings.auth_url}" in text_of(page)
