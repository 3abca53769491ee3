"""Policy evaluation over HTTP explains its decision and records nothing."""

from dataclasses import replace
from typing import Any

import pytest

from api.app import exit_on_boot_failure
from api.authz import create_auth_app
from config import Settings
from storage.catalog import Catalog
from tests.api.authz.builders import Admin, of_user, policy, verify

pytestmark = pytest.mark.spec("ACC-13")

ADA = "ada@example.org"
BUNDLE = "arn:store:local:aws:bundles/1"


def question(**more: Any) -> dict[str, Any]:
    return {"principal": ADA, "action": ["store:PutBundle"], "resource": [BUNDLE], **more}


def evaluated(admin: Admin, **more: Any) -> dict[str, Any]:
    answer = admin.call("POST", "/v1/policies/evaluate", question(**more))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json
    return found


def test_result_names_statement_and_policy(admin: Admin) -> None:
    document = policy()
    document["Statement"][0]["Sid"] = "Deposits"
    admin.role("does", policy=document)
    admin.group("team", roles=["does"])
    admin.user(ADA, groups=["team"])
    found = evaluated(admin)
    assert found.pop("policy_version")
    assert found == {
        "result": True,
        "reason": "allow",
        "evaluation_results": [
            {
                "action": "store:PutBundle",
                "resource": BUNDLE,
                "result": True,
                "reason": "allow",
                "source": "group team, role does",
                "statement": "Deposits",
                "depends_on": [],
                "anywhere": True,
            }
        ],
        "grant_stands": None,
    }
    admin.put(of_user(ADA, "/policy"), {"policy": policy(effect="Deny")})
    (denied,) = evaluated(admin)["evaluation_results"]
    assert (denied["reason"], denied["source"]) == ("explicit_deny", f"user {ADA}")
    assert denied["statement"] == "/Statement/0"


def test_all_actions_and_resources_must_be_allowed(admin: Admin) -> None:
    admin.user(ADA, policy=policy("store:PutBundle", BUNDLE))
    found = evaluated(admin, action=["store:PutBundle", "store:PutFile"], resource=[BUNDLE, "a:b"])
    assert (found["result"], found["reason"]) == (False, "implicit_deny")
    assert [one["result"] for one in found["evaluation_results"]] == [True, False, False, False]


def test_disabled_user_is_denied_everything(admin: Admin) -> None:
    admin.user(ADA, policy=policy("*"))
    admin.put(of_user(ADA), status="disabled")
    found = evaluated(admin, action=["store:GetBundle", "store:PutBundle"])
    assert (found["result"], found["reason"]) == (False, "disabled")
    assert {one["reason"] for one in found["evaluation_results"]} == {"disabled"}


def test_unknown_principal_has_default_rights_and_gets_no_record(admin: Admin) -> None:
    found = evaluated(admin, principal="new@example.org", action=["store:GetBundle"])
    (one,) = found["evaluation_results"]
    assert one["source"] == "group user_default, role user_default"
    assert not evaluated(admin, principal="new@example.org")["result"]
    assert admin.get(of_user("new@example.org")).status_code == 404
    assert admin.all("/v1/users", "users") == []
    assert admin.all("/v1/audit", "audit") == []


def test_evaluates_claimed_groups(admin: Admin) -> None:
    admin.group("team", policy=policy())
    assert not evaluated(admin)["result"]
    assert evaluated(admin, groups=["team"])["result"]
    assert evaluated(admin, groups=["store_ingest"])["result"]


def test_conditions_see_the_context_but_never_another_principal(admin: Admin) -> None:
    document = policy()
    document["Statement"][0]["Condition"] = {
        "StringEquals": {"store:colour": "green", "store:user_email": ADA}
    }
    admin.role("does", policy=document)
    admin.user(ADA, roles=["does"])
    admin.user("eve@example.org", roles=["does"])
    assert not evaluated(admin)["result"]
    assert evaluated(admin, context={"store:colour": "green"})["result"]
    assert not evaluated(admin, principal="eve@example.org", context={"store:colour": "green"})[
        "result"
    ]
    for key in ("store:user_email", "STORE:User_Email", "store:groups", "store:roles"):
        forged = question(principal="eve@example.org", context={key: ADA, "store:colour": "green"})
        answer = admin.call("POST", "/v1/policies/evaluate", forged)
        assert (answer.status_code, list(answer.json["errors"])) == (400, [f"/context/{key}"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": []},
        {"resource": []},
        {"action": "store:PutBundle"},
        {"action": ["a:b"] * 101},
        {"resource": ["a:b"] * 101},
        {"action": ["a:b"] * 40, "resource": ["a:b"] * 40},
        {"action": ["x" * 2049]},
        {"resource": [""]},
        {"resource": [7]},
        {"principal": ""},
        {"principal": None},
        {"principal": "x" * 255},
        {"principal": ["a@b"]},
        {"groups": ["x"] * 1001},
        {"groups": ["x" * 513]},
        {"context": []},
        {"context": {"no-prefix": 1}},
        {"context": {"store:x": {"deep": 1}}},
        {"context": {"store:x": [1]}},
        {"context": {"store:x": None}},
        {"context": {f"store:k{n}": 1 for n in range(51)}},
        {"context": {"store:x": "y" * 2049}},
        {"unknown": 1},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_rejects_invalid_questions(admin: Admin, wrong: dict[str, Any]) -> None:
    answer = admin.call("POST", "/v1/policies/evaluate", question(**wrong))
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")


def test_accepts_context_values_of_every_type(admin: Admin) -> None:
    values = {"a:text": "x", "a:whole": 1, "a:part": 1.5, "a:truth": True, "a:list": ["x", "y"]}
    assert evaluated(admin, context=values)["result"] is False


def test_a_question_of_the_largest_size_is_answered_at_once(admin: Admin) -> None:
    admin.user(ADA, policy=policy("store:*", "arn:*:*:*:*a*b*c*d*e*f*"))
    resources = ["arn:store:local:aws:" + "abcde" * 400 for _ in range(10)]
    found = evaluated(admin, action=[f"store:A{n}" for n in range(100)], resource=resources)
    assert (found["result"], len(found["evaluation_results"])) == (False, 1_000)


def test_the_version_of_policies_changes_with_every_change_and_with_nothing_else(
    admin: Admin,
) -> None:
    def version() -> str:
        answer = admin.get("/v1/policies/version")
        assert answer.status_code == 200
        assert evaluated(admin)["policy_version"] == answer.json["policy_version"]
        return str(answer.json["policy_version"])

    seen = [version()]
    for change in (
        lambda: admin.user(ADA),
        lambda: admin.role("does"),
        lambda: admin.group("team", roles=["does"]),
        lambda: admin.put(of_user(ADA, "/groups"), {"groups": ["team"]}, action="add"),
        lambda: admin.put(of_user(ADA, "/policy"), {"policy": policy("a:B")}),
        lambda: admin.put(of_user(ADA), status="disabled"),
        lambda: admin.call("DELETE", "/v1/group/team"),
    ):
        change()
        assert version() == version()
        seen.append(version())
    admin.put(of_user(ADA), status="disabled")
    assert version() == seen[-1]
    assert len(set(seen)) == len(seen)


def test_policy_version_has_etag_and_is_readable_with_any_token(admin: Admin) -> None:
    eve = Admin(admin.client, "eve@example.org")
    tag = eve.get("/v1/policies/version").headers["ETag"]
    headers = {"Authorization": "Bearer eve@example.org", "If-None-Match": tag}
    assert admin.client.get("/v1/policies/version", headers=headers).status_code == 304
    admin.user(ADA)
    assert admin.client.get("/v1/policies/version", headers=headers).status_code == 200
    assert admin.client.get("/v1/policies/version").status_code == 401


def test_callers_read_their_own_roles_and_permissions(admin: Admin) -> None:
    admin.role("does", policy=policy("store:PutBundle"))
    admin.group("team", roles=["does"])
    admin.user(ADA, groups=["team"], policy=policy("store:PutFile", f"{BUNDLE}/x"))
    found = Admin(admin.client, ADA).get("/v1/account").json
    assert found["email"] == ADA
    assert {"name": "does", "groups": ["team"]} in found["roles"]
    extents = {one["operation"]: one["extent"] for one in found["permissions"]}
    assert extents["get_bundle"] == "open"
    assert extents["put_bundle"] == "everywhere"
    assert extents["put_v1_user_policy"] == "nowhere"
    assert admin.client.get("/v1/account").status_code == 401


def test_closed_operations_are_not_open_in_own_permissions(
    auth_settings: Settings, catalog: Catalog
) -> None:
    closed = replace(auth_settings, closed_operations=("get_bundle",))
    found = Admin(create_auth_app(closed, catalog, verify=verify).test_client())
    answer = found.get("/v1/account").json
    extents = {one["operation"]: one["extent"] for one in answer["permissions"]}
    assert extents["get_bundle"] != "open"
    assert extents["get_file"] == "open"


def test_unknown_closed_operation_fails_the_start(
    auth_settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(auth_settings, closed_operations=("get_bundel",))
    with pytest.raises(SystemExit), exit_on_boot_failure():
        create_auth_app(wrong, catalog, verify=verify)
    assert "STORE_CLOSED_OPERATIONS: not an open operation: get_bundel" in capsys.readouterr().err
