"""Lists of the authorization service: pages, ownership and the audit log."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from storage.catalog import Catalog, areas, collections
from storage.catalog.areas import Area
from storage.model import FQID
from tests.api.authz.builders import Admin, of_user, policy
from tests.builders import version
from tests.subscription_builders import subscribe

ADA = "ada@example.org"
HOOK = "https://receiver.example/hook"


def numbered(count: int) -> list[str]:
    return [f"group{number:03}" for number in range(count)]


@pytest.mark.spec("ACC-10")
@pytest.mark.parametrize("size", [5, 7, 15, 30])
def test_a_walk_sees_each_once_in_byte_order(admin: Admin, size: int) -> None:
    made = sorted([*map(admin.group, numbered(30)), "user_default"])
    assert admin.all("/v1/groups", "groups", per_page=str(size)) == made


@pytest.mark.spec("ACC-10")
def test_page_has_15_items_and_has_more_flag(admin: Admin) -> None:
    for name in numbered(14):
        admin.group(name)
    whole = admin.get("/v1/groups")
    assert (whole.status_code, len(whole.json["groups"])) == (200, 15)
    assert "Link" not in whole.headers
    assert whole.headers["X-OpenAPI-Pagination"] == "false"
    admin.group("one-more")
    page = admin.get("/v1/groups")
    assert (page.status_code, len(page.json["groups"])) == (206, 15)
    assert page.headers["X-OpenAPI-Pagination"] == "true"
    assert page.headers["X-OpenAPI-Paginated-Content-Key"] == "groups"
    assert page.headers["Link"].startswith("<https://auth.example/v1/groups?next_token=")
    assert page.headers["Link"].endswith('>; rel="next"')


@pytest.mark.spec("ACC-10")
def test_the_next_page_repeats_the_parameters(admin: Admin) -> None:
    for name in numbered(12):
        admin.group(name)
    link = admin.get("/v1/groups", per_page="5", colour="green").headers["Link"]
    assert "per_page=5" in link
    assert "colour=green" in link


@pytest.mark.spec("ACC-10")
@pytest.mark.parametrize("size", ["4", "31", "0", "-5", "x", "5.0", ""])
def test_pages_have_5_to_30_items(admin: Admin, size: str) -> None:
    for path in ("/v1/users", "/v1/groups", "/v1/roles", "/v1/audit"):
        answer = admin.get(path, per_page=size)
        assert (answer.status_code, answer.json["errors"].keys()) == (400, {"per_page"})


@pytest.mark.spec("ACC-10")
def test_a_walk_stays_whole_while_others_insert_and_remove(admin: Admin) -> None:
    there = [admin.group(name) for name in numbered(40)]
    seen = []
    for place, name in enumerate(admin.walk("/v1/groups", "groups", per_page="5")):
        seen.append(name)
        if place % 5 == 0:
            admin.group(f"aaa{place:03}")
            admin.group(f"{name}x")
        if place == 12:
            admin.call("DELETE", f"/v1/group/{name}")
    assert len(seen) == len(set(seen))
    assert set(there) <= set(seen)
    assert seen == sorted(seen)


@pytest.mark.spec("ACC-10")
def test_every_list_of_names_is_walked(admin: Admin) -> None:
    roles = [admin.role(f"role{number:02}") for number in range(12)]
    groups = [admin.group(f"group{number:02}", roles=roles) for number in range(12)]
    users = [admin.user(f"user{n:02}@x.org", groups=groups, roles=roles) for n in range(12)]
    walks = {
        "/v1/users": ("users", users),
        "/v1/roles": ("roles", [*roles, "store_admin", "store_ingest", "user_default"]),
        of_user(users[0], "/groups"): ("groups", [*groups, "user_default"]),
        of_user(users[0], "/roles"): ("roles", roles),
        "/v1/group/group00/roles": ("roles", roles),
        "/v1/group/group00/users": ("users", users),
    }
    for path, (key, expected) in walks.items():
        assert admin.all(path, key, per_page="5") == expected, path


@pytest.mark.spec("ACC-10")
def test_a_pointer_belongs_to_its_list(admin: Admin) -> None:
    for name in numbered(10):
        admin.group(name, roles=["store_ingest", "store_admin"])
    link = admin.get("/v1/groups", per_page="5").headers["Link"]
    pointer = link.partition("next_token=")[2].partition("&")[0].partition(">")[0]
    assert admin.get("/v1/groups", next_token=pointer).status_code == 200
    for path, token in (
        ("/v1/users", pointer),
        ("/v1/roles", pointer),
        ("/v1/audit", pointer),
        ("/v1/groups", pointer[:-1]),
        ("/v1/groups", pointer[:-2] + ("AA" if pointer[-2:] != "AA" else "BB")),
        ("/v1/groups", "group005"),
        ("/v1/groups", ""),
        ("/v1/group/group000/users", pointer),
    ):
        answer = admin.get(path, next_token=token)
        assert (answer.status_code, answer.json["code"]) == (400, "illegal_token"), path


# What somebody owns


@pytest.fixture
def owning(catalog: Catalog, admin: Admin) -> dict[str, list[str]]:
    """A user with things of every kind, among those of others; uuids by kind."""
    uuids = {
        kind: [f"{number:08x}-0000-4000-8000-00000000000{place}" for number in range(4)]
        for place, kind in enumerate(("area", "collection", "subscription"))
    }
    admin.user(ADA)
    with catalog.write() as tx:
        for uuid in uuids["area"]:
            areas.insert_area(tx, Area(uuid, ADA, "UNLOCKED"))
        areas.insert_area(
            tx, Area("f" * 8 + "-0000-4000-8000-000000000000", "eve@example.org", "UNLOCKED")
        )
        areas.insert_area(tx, Area("e" * 8 + "-0000-4000-8000-000000000000", ADA, "DELETED"))
        for uuid in uuids["collection"]:
            for number in (1, 2):
                collections.insert_owned(tx, ADA, FQID(uuid, version(number)))
        collections.insert_owned(tx, "eve@example.org", FQID(uuids["area"][0], version(1)))
    for uuid in uuids["subscription"]:
        subscribe(catalog, HOOK, uuid=uuid, owner=ADA)
    subscribe(catalog, HOOK, owner="eve@example.org")
    return uuids


@pytest.mark.spec("ACC-11")
def test_owned_resources_are_sorted_by_type_and_uuid(
    admin: Admin, owning: dict[str, list[str]]
) -> None:
    found = admin.all(of_user(ADA, "/owns"), "resources", per_page="5")
    expected = [(kind, uuid) for kind, uuids in owning.items() for uuid in uuids]
    assert [(one["resource_type"], one["uuid"]) for one in found] == expected
    assert found[4]["arn"] == f"arn:store:local:*:collections/{owning['collection'][0]}"
    for kind, uuids in owning.items():
        only = admin.all(of_user(ADA, "/owns"), "resources", resource_type=kind)
        assert [one["uuid"] for one in only] == uuids


@pytest.mark.spec("ACC-11")
def test_lists_owned_resources_of_user_without_record(catalog: Catalog, admin: Admin) -> None:
    """A foreign issuer's token may deposit before anybody made a record of its user."""
    uuid = "c0000000-0000-4000-8000-000000000000"
    with catalog.write() as tx:
        collections.insert_owned(tx, ADA, FQID(uuid, version(1)))
    owned = admin.all(of_user(ADA, "/owns"), "resources")
    assert [one["uuid"] for one in owned] == [uuid]
    assert admin.all(of_user(ADA.upper(), "/owns"), "resources") == owned
    assert admin.all(of_user(ADA, "/owns"), "resources", resource_type="area") == []
    assert [
        one["uuid"] for one in Admin(admin.client, ADA).all(of_user(ADA, "/owns"), "resources")
    ] == [uuid]
    # A record is made at a login or by an administrator, and not by asking.
    assert admin.get(of_user(ADA)).status_code == 404
    assert Admin(admin.client, ADA).get(of_user(ADA)).status_code == 404


@pytest.mark.spec("ACC-11")
def test_owned_resources_of_unknown_user_are_404(admin: Admin) -> None:
    assert admin.get(of_user(ADA, "/owns")).status_code == 404
    admin.user(ADA)
    assert admin.all(of_user(ADA, "/owns"), "resources") == []


@pytest.mark.spec("ACC-11")
def test_a_type_that_has_no_owners_is_400(admin: Admin, owning: dict[str, list[str]]) -> None:
    for wrong in ("bundle", "", "Area"):
        answer = admin.get(of_user(ADA, "/owns"), resource_type=wrong)
        assert (answer.status_code, answer.json["errors"].keys()) == (400, {"resource_type"})


# The audit log


def entries(admin: Admin, **query: str) -> list[dict[str, Any]]:
    return admin.all("/v1/audit", "audit", **query)


@pytest.mark.spec("ACC-16")
def test_audit_log_lists_changes_newest_first(admin: Admin) -> None:
    admin.role("does")
    admin.group("team", roles=["does"])
    admin.user(ADA, groups=["team"])
    admin.put(of_user(ADA), status="disabled")
    admin.put(of_user(ADA, "/roles"), {"roles": ["does"]}, action="add")
    admin.put(of_user(ADA, "/groups"), {"groups": ["team"]}, action="remove")
    admin.put("/v1/group/team/users", {"users": [ADA]}, action="add")
    admin.put("/v1/group/team/roles", {"roles": ["does"]}, action="remove")
    for path in (of_user(ADA, "/policy"), "/v1/group/team/policy", "/v1/role/does/policy"):
        admin.put(path, {"policy": policy("a:B")})
    admin.call("DELETE", "/v1/group/team")
    admin.call("DELETE", "/v1/role/does")
    assert [one["what"] for one in reversed(entries(admin, per_page="5"))] == [
        "post_v1_role",
        "post_v1_group",
        "post_v1_user",
        "put_v1_user",
        "put_v1_user_role",
        "put_v1_user_group",
        "put_v1_group_user",
        "put_v1_group_role",
        "put_v1_user_policy",
        "put_v1_group_policy",
        "put_v1_role_policy",
        "delete_v1_group",
        "delete_v1_role",
    ]


@pytest.mark.spec("ACC-16")
def test_audit_entry_has_actor_action_target_time_and_request(admin: Admin) -> None:
    admin.user(ADA)
    changed = admin.put(of_user(ADA), status="disabled")
    first = entries(admin)[0]
    assert first.pop("at").endswith("Z")
    assert first == {
        "who": "admin@example.org",
        "what": "put_v1_user",
        "target": f"user/{ADA}",
        "before": {"status": "enabled"},
        "after": {"status": "disabled"},
        "request_id": changed.headers["X-Request-Id"],
    }


@pytest.mark.spec("ACC-16")
def test_failed_and_ineffective_changes_are_not_audited(admin: Admin) -> None:
    admin.user(ADA)
    admin.put(of_user(ADA), status="enabled")
    admin.put(of_user(ADA, "/groups"), {"groups": ["absent"]}, action="add")
    admin.call("POST", "/v1/user", {"user_id": ADA})
    Admin(admin.client, "eve@example.org").put(of_user(ADA), status="disabled")
    admin.get(of_user(ADA))
    assert [one["what"] for one in entries(admin)] == ["post_v1_user"]


@pytest.mark.spec("ACC-16")
def test_filters_audit_log_by_who_what_and_since(admin: Admin) -> None:
    other = Admin(admin.client, "named@example.org")
    for number in range(8):
        (admin if number % 2 else other).group(f"group{number}")
    since = entries(admin)[2]["at"]
    admin.role("does")
    assert len(entries(admin, who="named@example.org", per_page="5")) == 4
    assert [one["target"] for one in entries(admin, what="post_v1_role")] == ["role/does"]
    late = [one["target"] for one in entries(admin, since=since)]
    assert late == ["role/does", "group/group7", "group/group6", "group/group5"]
    early = [one["target"] for one in entries(admin, until=since, per_page="5")]
    assert early == [f"group/group{number}" for number in (4, 3, 2, 1, 0)]
    both = entries(admin, since=since, until=since)
    assert both == []
    assert entries(admin, who="nobody@example.org") == []
    for wrong in ({"since": "yesterday"}, {"until": "today"}, {"who": ""}, {"what": "x" * 255}):
        assert admin.get("/v1/audit", **wrong).status_code == 400


@pytest.mark.spec("ACC-16")
def test_filters_audit_log_by_target(admin: Admin) -> None:
    for number in range(7):
        if number:
            admin.put(of_user(ADA), status="disabled" if number % 2 else "enabled")
        else:
            admin.user(ADA)
        admin.role(f"role{number}")
    found = entries(admin, target=f"user/{ADA.upper()}", per_page="5")
    assert [one["target"] for one in found] == [f"user/{ADA}"] * 7
    assert len(entries(admin, target="role/role3")) == 1
    first = admin.get("/v1/audit", target=f"user/{ADA}", per_page="5")
    token = parse_qs(urlsplit(first.headers["Link"].split(">")[0]).query)["next_token"][0]
    assert admin.get("/v1/audit", target="role/role3", next_token=token).status_code == 400


@pytest.mark.spec("ACC-16")
def test_a_walk_over_the_log_stays_whole_while_it_grows(admin: Admin) -> None:
    for name in numbered(12):
        admin.group(name)
    seen = []
    for place, one in enumerate(admin.walk("/v1/audit", "audit", per_page="5")):
        seen.append(one["target"])
        if place in (2, 7):
            admin.group(f"late{place}")
    assert seen == [f"group/{name}" for name in reversed(numbered(12))]
