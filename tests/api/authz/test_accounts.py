"""Users, groups and roles over HTTP: create, read, change, delete, reject."""

import pytest

from storage.catalog import Catalog, store_state
from tests.api.authz.builders import Admin, bearer, of_user, policy

ADA = "ada@example.org"


@pytest.mark.spec("ACC-02")
def test_created_records_are_returned_and_read_back(admin: Admin) -> None:
    role = admin.call("POST", "/v1/role", {"role_id": "does", "policy": policy()})
    group = admin.call(
        "POST", "/v1/group", {"group_id": "team", "roles": ["does"], "policy": policy("x:Y")}
    )
    user = admin.call(
        "POST",
        "/v1/user",
        {"user_id": ADA, "groups": ["team"], "roles": ["does"], "policy": policy("u:V")},
    )
    assert [one.status_code for one in (role, group, user)] == [201] * 3
    assert (role.json["role_id"], role.json["policy"]) == ("does", policy())
    assert (group.json["group_id"], group.json["policy"]) == ("team", policy("x:Y"))
    assert (user.json["user_id"], user.json["status"]) == (ADA, "enabled")
    assert user.json["policy"] == policy("u:V")
    for path, made in (("/v1/role/does", role), ("/v1/group/team", group), (of_user(ADA), user)):
        assert admin.get(path).json == made.json
    assert admin.get(of_user(ADA, "/groups")).json == {"groups": ["team", "user_default"]}
    assert admin.get(of_user(ADA, "/roles")).json == {"roles": ["does"]}
    assert admin.get("/v1/group/team/roles").json == {"roles": ["does"]}
    assert admin.get("/v1/group/team/users").json == {"users": [ADA]}


@pytest.mark.spec("ACC-02")
def test_existing_record_is_409(admin: Admin) -> None:
    bodies = {
        "user": {"user_id": admin.user(ADA)},
        "group": {"group_id": admin.group("team")},
        "role": {"role_id": admin.role("does"), "policy": policy()},
    }
    for kind, body in bodies.items():
        answer = admin.call("POST", f"/v1/{kind}", body)
        assert (answer.status_code, answer.json["code"]) == (409, "already_exists")


@pytest.mark.spec("ACC-06")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/user/nobody@example.org"),
        ("PUT", "/v1/user/nobody@example.org?status=enabled"),
        ("GET", "/v1/user/nobody@example.org/owns"),
        ("GET", "/v1/user/nobody@example.org/groups"),
        ("GET", "/v1/user/nobody@example.org/roles"),
        ("PUT", "/v1/user/nobody@example.org/groups?action=add"),
        ("PUT", "/v1/user/nobody@example.org/roles?action=remove"),
        ("PUT", "/v1/user/nobody@example.org/policy"),
        ("GET", "/v1/group/absent"),
        ("DELETE", "/v1/group/absent"),
        ("GET", "/v1/group/absent/roles"),
        ("GET", "/v1/group/absent/users"),
        ("PUT", "/v1/group/absent/roles?action=add"),
        ("PUT", "/v1/group/absent/users?action=add"),
        ("PUT", "/v1/group/absent/policy"),
        ("GET", "/v1/role/absent"),
        ("DELETE", "/v1/role/absent"),
        ("PUT", "/v1/role/absent/policy"),
    ],
)
def test_absent_record_is_404(admin: Admin, method: str, path: str) -> None:
    answer = admin.call(method, path, {} if method == "PUT" else None)
    assert (answer.status_code, answer.json["code"]) == (404, "not_found")


@pytest.mark.spec("ACC-05")
def test_reports_whether_a_change_had_effect(admin: Admin) -> None:
    admin.role("does")
    admin.group("team")
    admin.user(ADA)
    changes = [
        (of_user(ADA, "/groups"), {"groups": ["team"]}, {"action": "add"}),
        (of_user(ADA, "/roles"), {"roles": ["does"]}, {"action": "add"}),
        ("/v1/group/team/roles", {"roles": ["does"]}, {"action": "add"}),
        ("/v1/group/team/users", {"users": [ADA]}, {"action": "remove"}),
        (of_user(ADA, "/policy"), {"policy": policy("a:B")}, {}),
        ("/v1/group/team/policy", {"policy": policy("a:B")}, {}),
        ("/v1/role/does/policy", {"policy": policy("a:B")}, {}),
        (of_user(ADA, "/policy"), {"policy": None}, {}),
        (of_user(ADA), None, {"status": "disabled"}),
    ]
    for path, body, query in changes:
        for expected in (True, False):
            answer = admin.put(path, body, **query)
            assert answer.status_code == 200, answer.text
            assert answer.json["changed"] is expected, path


@pytest.mark.spec("ACC-07")
def test_omitted_policy_stays(admin: Admin) -> None:
    admin.user(ADA, policy=policy("a:B"))
    assert admin.put(of_user(ADA, "/policy"), {}).json["changed"] is False
    assert admin.put(of_user(ADA, "/policy")).json["changed"] is False
    assert admin.get(of_user(ADA)).json["policy"] == policy("a:B")
    assert admin.put(of_user(ADA, "/policy"), {"policy": None}).json["changed"] is True
    assert admin.get(of_user(ADA)).json["policy"] is None


@pytest.mark.spec("ACC-07")
def test_a_role_is_never_without_a_policy(admin: Admin) -> None:
    admin.role("does")
    for answer in (
        admin.call("POST", "/v1/role", {"role_id": "bare"}),
        admin.call("POST", "/v1/role", {"role_id": "bare", "policy": None}),
        admin.put("/v1/role/does/policy", {"policy": None}),
    ):
        assert answer.status_code == 400
        assert answer.json["errors"].keys() == {"/policy"}


@pytest.mark.spec("ACC-06")
def test_every_bad_id_of_a_change_is_named_and_nothing_changed(admin: Admin) -> None:
    admin.group("team")
    admin.user(ADA)
    answer = admin.put(of_user(ADA, "/groups"), {"groups": ["x", "team", "y"]}, action="add")
    assert (answer.status_code, answer.json["code"]) == (404, "not_found")
    assert answer.json["errors"].keys() == {"/groups/0", "/groups/2"}
    assert admin.get(of_user(ADA, "/groups")).json == {"groups": ["user_default"]}
    made = admin.call("POST", "/v1/user", {"user_id": "new@example.org", "roles": ["z"]})
    assert (made.status_code, made.json["errors"].keys()) == (404, {"/roles/0"})
    assert admin.get(of_user("new@example.org")).status_code == 404


@pytest.mark.spec("ACC-08")
def test_deleted_group_takes_rights_from_members(admin: Admin) -> None:
    admin.role("does")
    admin.group("team", roles=["does"])
    admin.user(ADA, groups=["team"])
    assert admin.may(ADA)
    assert admin.call("DELETE", "/v1/group/team").json == {"group_id": "team", "changed": True}
    assert not admin.may(ADA)
    assert admin.get("/v1/group/team").status_code == 404
    assert admin.get(of_user(ADA, "/groups")).json == {"groups": ["user_default"]}


@pytest.mark.spec("ACC-08")
def test_deleted_role_is_detached_from_users_and_groups(admin: Admin) -> None:
    admin.role("does")
    admin.group("team", roles=["does"])
    admin.user(ADA, roles=["does"])
    assert admin.call("DELETE", "/v1/role/does").status_code == 200
    assert not admin.may(ADA)
    assert admin.get("/v1/group/team/roles").json == {"roles": []}
    assert admin.get(of_user(ADA, "/roles")).json == {"roles": []}


@pytest.mark.spec("ERR-29", "ACC-09")
def test_protects_built_in_records(admin: Admin) -> None:
    admin.user(ADA)
    assert admin.all("/v1/groups", "groups") == ["user_default"]
    assert admin.all("/v1/roles", "roles") == ["store_admin", "store_ingest", "user_default"]
    shown = admin.get("/v1/role/store_admin").json
    assert shown["built_in"] is True
    assert shown["policy"]["Statement"][0]["Action"] == ["*"]
    refused = [
        admin.call("DELETE", "/v1/group/user_default"),
        admin.call("DELETE", "/v1/role/store_admin"),
        admin.put("/v1/role/store_ingest/policy", {"policy": policy()}),
        admin.put("/v1/group/user_default/policy", {"policy": policy()}),
        admin.put(of_user(ADA, "/groups"), {"groups": ["user_default"]}, action="remove"),
    ]
    assert {(one.status_code, one.json["code"]) for one in refused} == {(409, "protected")}


@pytest.mark.spec("ACC-04")
def test_disabled_user_is_rejected_until_enabled_again(admin: Admin) -> None:
    admin.user(ADA, roles=["store_admin"])
    ada = Admin(admin.client, ADA)
    assert ada.get("/v1/users").status_code == 200
    assert admin.put(of_user(ADA), status="disabled").json == {
        "user_id": ADA,
        "status": "disabled",
        "changed": True,
    }
    refused = ada.get(of_user(ADA))
    assert (refused.status_code, refused.json["code"]) == (403, "forbidden")
    assert not admin.may(ADA, "auth:GetUsers", "arn:auth:local:*:user/*")
    admin.put(of_user(ADA), status="enabled")
    assert ada.get("/v1/users").status_code == 200


@pytest.mark.spec("ACC-03")
@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "a" * 129,
        "a b",
        "a/b",
        "a+b@example.org",
        "é@example.org",
        "a\nb",
        "a*",
        "a\u0000",
        7,
        None,
    ],
)
def test_ids_are_spelled_as_the_interface_has_them(admin: Admin, wrong: object) -> None:
    bodies = {
        "user": {"user_id": wrong},
        "group": {"group_id": wrong},
        "role": {"role_id": wrong, "policy": policy()},
    }
    for kind, body in bodies.items():
        answer = admin.call("POST", f"/v1/{kind}", body)
        assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
        assert answer.json["errors"].keys() == {f"/{kind}_id"}
    assert admin.put("/v1/group/user_default/users", {"users": [wrong]}).status_code == 400


@pytest.mark.spec("ACC-03")
def test_accepts_every_allowed_character_in_ids(admin: Admin) -> None:
    for name in ("Az09.@_-$,=", "a" * 128, "..", "-"):
        admin.group(name)
        assert admin.client.get(f"/v1/group/{name}", headers=bearer(admin.token)).status_code == 200
    assert set(admin.all("/v1/groups", "groups")) >= {"Az09.@_-$,=", "a" * 128, "..", "-"}


@pytest.mark.spec("ACC-03")
def test_a_user_goes_by_an_e_mail_address(admin: Admin) -> None:
    for wrong in ("ada", "@example.org", "ada@", "a@b@c"):
        assert admin.call("POST", "/v1/user", {"user_id": wrong}).status_code == 400


@pytest.mark.spec("ACC-05")
@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/user/a@b", {}),
        ("/v1/user/a@b", {"status": "asleep"}),
        ("/v1/user/a@b", {"status": "ENABLED"}),
        ("/v1/user/a@b/groups", {}),
        ("/v1/user/a@b/roles", {"action": "set"}),
        ("/v1/group/a/users", {"action": ""}),
        ("/v1/group/a%20b/roles", {"action": "add"}),
    ],
)
def test_a_bad_query_or_path_is_400(admin: Admin, path: str, query: dict[str, str]) -> None:
    answer = admin.put(path, {}, **query)
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    assert answer.json["errors"]


@pytest.mark.spec("ACC-05")
@pytest.mark.parametrize(
    "body",
    [
        {"groups": "team"},
        {"groups": [["team"]]},
        {"groups": None},
        {"group": ["team"]},
        {"groups": ["x"] * 1001},
        ["team"],
    ],
)
def test_a_bad_body_is_400(admin: Admin, body: object) -> None:
    admin.user(ADA)
    answer = admin.put(of_user(ADA, "/groups"), body, action="add")
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")


@pytest.mark.spec("ACC-07")
@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, "/policy/Statement"),
        ("allow everything", "/policy"),
        ({"Version": "2012-10-17", "Statement": [{}]}, "/policy/Statement/0/Effect"),
        (policy(action="PutBundle"), "/policy/Statement/0/Action/0"),
        (policy() | {"Comment": "x" * 11_000}, "/policy"),
    ],
)
def test_rejects_invalid_policy_with_pointer_to_error(
    admin: Admin, document: object, pointer: str
) -> None:
    admin.user(ADA)
    admin.group("team")
    admin.role("does")
    answers = [
        admin.put(of_user(ADA, "/policy"), {"policy": document}),
        admin.put("/v1/group/team/policy", {"policy": document}),
        admin.put("/v1/role/does/policy", {"policy": document}),
        admin.call("POST", "/v1/role", {"role_id": "new", "policy": document}),
        admin.call("POST", "/v1/user", {"user_id": "new@example.org", "policy": document}),
        admin.call("POST", "/v1/group", {"group_id": "new", "policy": document}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json["code"]) == (400, "invalid_policy")
        assert pointer in answer.json["errors"]


@pytest.mark.spec("ERR-21", "ACC-18")
def test_too_many_groups_are_406(admin: Admin) -> None:
    groups = [admin.group(f"group{number:03}") for number in range(101)]
    admin.user(ADA)
    answer = admin.put(of_user(ADA, "/groups"), {"groups": groups}, action="add")
    assert (answer.status_code, answer.json["code"]) == (406, "not_acceptable")
    assert admin.get(of_user(ADA, "/groups")).json == {"groups": ["user_default"]}


@pytest.mark.spec("ACC-18")
def test_rejects_changes_in_read_only_store(catalog: Catalog, admin: Admin) -> None:

    with catalog.write() as tx:
        store_state.set_read_only(tx, "Moving house.")
    refused = admin.call("POST", "/v1/group", {"group_id": "team"})
    assert (refused.status_code, refused.json["code"]) == (503, "read_only")
    assert admin.get("/v1/groups").status_code == 200
    asked = {"principal": ADA, "action": ["a:B"], "resource": ["a:b"]}
    assert admin.call("POST", "/v1/policies/evaluate", asked).status_code == 200


@pytest.mark.spec("ACC-18")
def test_rejects_other_methods(admin: Admin) -> None:
    for method, path in (("DELETE", "/v1/user/a@b"), ("POST", "/v1/users"), ("PATCH", "/v1/role")):
        answer = admin.call(method, path)
        assert (answer.status_code, answer.json["code"]) == (405, "method_not_allowed")
        assert answer.headers["Allow"]


@pytest.mark.spec("ACC-18")
def test_reads_have_tags_that_change_with_the_record(admin: Admin) -> None:
    admin.user(ADA)
    first = admin.get(of_user(ADA))
    headers = bearer(admin.token) | {"If-None-Match": first.headers["ETag"]}
    assert admin.client.get(of_user(ADA), headers=headers).status_code == 304
    assert "private" in first.headers["Cache-Control"]
    admin.put(of_user(ADA), status="disabled")
    assert admin.client.get(of_user(ADA), headers=headers).status_code == 200
    assert admin.client.head(of_user(ADA), headers=bearer(admin.token)).data == b""


@pytest.mark.spec("ACC-19")
def test_user_ids_ignore_case(admin: Admin) -> None:
    admin.user("Ada@Example.org")
    assert admin.all("/v1/users", "users") == ["ada@example.org"]
    again = admin.call("POST", "/v1/user", {"user_id": "ADA@example.org"})
    assert again.status_code == 409
    admin.group("Team")
    added = admin.put("/v1/group/Team/users", {"users": ["ADA@EXAMPLE.ORG"]}, action="add")
    assert added.json == {
        "group_id": "Team",
        "action": "add",
        "users": ["ada@example.org"],
        "changed": True,
    }
    # Groups and roles are not people: their case counts.
    assert admin.get("/v1/group/team").status_code == 404
    assert admin.get("/v1/user/aDA@example.org").json["user_id"] == "ada@example.org"


@pytest.mark.spec("ACC-19")
def test_disabling_a_user_covers_every_spelling(admin: Admin) -> None:
    admin.user("ada@example.org", policy=policy("*"))
    shouting = Admin(admin.client, "ADA@Example.ORG")
    assert shouting.get("/v1/users").status_code == 200
    assert admin.put("/v1/user/Ada@example.org", status="disabled").json["changed"]
    assert shouting.get("/v1/users").status_code == 403
    assert not admin.may("Ada@Example.Org")


@pytest.mark.spec("ACC-19")
def test_administrator_setting_ignores_case(admin: Admin) -> None:
    named = Admin(admin.client, "Named@Example.org")
    assert named.get("/v1/audit").status_code == 200
    assert named.user("bob@example.org")
    assert admin.get("/v1/audit", who="NAMED@example.org").json["audit"][0]["who"] == (
        "named@example.org"
    )


@pytest.mark.spec("ACC-20")
@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"role_id": "a", "role_id": "b", "policy": null}', "/role_id"),
        (
            b'{"role_id": "a", "policy": {"Version": "2012-10-17", "Statement": [{"Effect": "Allow",'
            b' "Action": "store:*", "Resource": "*", "Condition": {"StringEquals": {"a:b": "1"},'
            b' "StringEquals": {"a:c": "1"}}}]}}',
            "/policy/Statement/0/Condition/StringEquals",
        ),
        (
            b'{"role_id": "a", "policy": {"Statement": [{"Effect": "Deny", "Effect": "Allow",'
            b' "Action": "store:*", "Resource": "*"}]}}',
            "/policy/Statement/0/Effect",
        ),
        (b'{"role_id": "a", "policy": {"~/x": 1, "~/x": ' + b"9" * 300 + b"}}", "/policy/~0~1x"),
    ],
    ids=["member", "condition", "effect", "name"],
)
def test_rejects_duplicate_members_with_pointer(admin: Admin, body: bytes, where: str) -> None:
    answer = admin.client.post("/v1/role", data=body, headers=bearer(admin.token))
    told = answer.json or {}
    assert (answer.status_code, told["code"]) == (400, "illegal_arguments")
    assert told["errors"] == {where: ["Must not be given more than once."]}
    assert admin.get("/v1/role/a").status_code == 404


@pytest.mark.spec("ACC-20")
def test_shortens_long_member_names_in_errors(admin: Admin) -> None:
    for body in (
        {"role_id": "a", "policy": policy(), "x" * 5_000: 1},
        {"policy": {"x" * 5_000: 1}},
    ):
        answer = admin.call("POST", "/v1/role", body)
        assert (answer.status_code, len(answer.data) < 1_500) == (400, True)
        assert any("x" * 100 in where for where in answer.json["errors"])
