"""Who may do what in the authorization service, and the order of checks."""

from collections.abc import Iterator

import pytest

from api.authz.app import OPERATIONS
from auth.account_operations import REQUIRED_ACTIONS, resource_arns
from tests.api.authz.builders import ADMIN, NAMED, Admin, bearer, of_user, policy

pytestmark = pytest.mark.spec("ACC-14")

ADA = "ada@example.org"
FILLED = {"user_id": ADA, "group_id": "team", "role_id": "does"}
BODIES = {
    "post_v1_user": {"user_id": "new@example.org"},
    "post_v1_group": {"group_id": "new"},
    "post_v1_role": {"role_id": "new", "policy": policy()},
    "post_v1_policies_evaluate": {"principal": ADA, "action": ["a:B"], "resource": ["a:b"]},
}
ADDING = ("put_v1_user_group", "put_v1_user_role", "put_v1_group_role", "put_v1_group_user")
QUERIES = {"put_v1_user": {"status": "enabled"}} | {name: {"action": "add"} for name in ADDING}


def requests() -> Iterator[tuple[str, str, str]]:
    """Every operation that asks for an action."""
    for one in OPERATIONS:
        if one.name in REQUIRED_ACTIONS:
            yield one.name, one.method, one.path.format(**FILLED)


EVERY = pytest.mark.parametrize(("name", "method", "path"), [*requests()])


def asked(who: Admin, name: str, method: str, path: str) -> int:
    body = BODIES.get(name, {} if method == "PUT" else None)
    return int(who.call(method, path, body, **QUERIES.get(name, {})).status_code)


@pytest.fixture
def filled(admin: Admin) -> Admin:
    """The records that the requests name."""
    admin.role("does")
    admin.group("team")
    admin.user(ADA)
    return admin


@EVERY
def test_every_operation_requires_token_and_permission(
    filled: Admin, name: str, method: str, path: str
) -> None:
    client = filled.client
    body = BODIES.get(name, {} if method == "PUT" else None)
    nobody = client.open(path, method=method, json=body)
    assert (nobody.status_code, nobody.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert asked(Admin(client, "no-address"), name, method, path) == 401
    assert asked(Admin(client, "eve@example.org"), name, method, path) == 403
    assert asked(Admin(client, "eve@example.org+store_ingest"), name, method, path) == 403
    assert asked(Admin(client, NAMED), name, method, path) in (200, 201)


@EVERY
def test_asks_for_action_named_after_operation(
    filled: Admin, name: str, method: str, path: str
) -> None:
    bob = filled.user("bob@example.org", policy=policy(REQUIRED_ACTIONS[name].name))
    assert asked(Admin(filled.client, bob), name, method, path) in (200, 201)
    others = {"Effect": "Allow", "NotAction": [REQUIRED_ACTIONS[name].name], "Resource": ["*"]}
    document = {"Version": "2012-10-17", "Statement": [others]}
    filled.put(of_user(bob, "/policy"), {"policy": document})
    assert asked(Admin(filled.client, bob), name, method, path) == 403


def test_a_user_reads_their_own_profile_and_no_other(filled: Admin) -> None:
    filled.user("bob@example.org")
    ada = Admin(filled.client, ADA)
    for rest in ("", "/owns", "/groups", "/roles"):
        assert ada.get(of_user(ADA, rest)).status_code == 200
        assert ada.get(of_user("bob@example.org", rest)).status_code == 403
    assert ada.put(of_user(ADA), status="enabled").status_code == 403
    assert (
        ada.put(of_user(ADA, "/roles"), {"roles": ["store_admin"]}, action="add").status_code == 403
    )
    assert ada.may(ADA) is False
    question = {"principal": "bob@example.org", "action": ["a:B"], "resource": ["a:b"]}
    assert ada.call("POST", "/v1/policies/evaluate", question).status_code == 403


def test_permission_on_users_does_not_cover_roles(filled: Admin) -> None:
    users = policy("auth:*", "arn:auth:local:*:user/*")
    bob = Admin(filled.client, filled.user("bob@example.org", policy=users))
    climb = bob.put(of_user(bob.token, "/roles"), {"roles": ["store_admin"]}, action="add")
    assert climb.status_code == 403
    born = {"user_id": "puppet@example.org", "roles": ["store_admin"]}
    assert bob.call("POST", "/v1/user", born).status_code == 403
    assert bob.put("/v1/group/team/users", {"users": [bob.token]}, action="add").status_code == 403
    assert bob.put(of_user(ADA), status="disabled").status_code == 200


def test_permission_on_one_group_does_not_cover_another(filled: Admin) -> None:
    filled.group("other")
    document = policy("auth:PutUserGroup", "arn:auth:local:*:group/team")
    document["Statement"] += policy("auth:PutUserGroup", "arn:auth:local:*:user/*")["Statement"]
    bob = Admin(filled.client, filled.user("bob@example.org", policy=document))
    for groups, status in ((["team"], 200), (["team", "other"], 403), (["other"], 403)):
        answer = bob.put(of_user(ADA, "/groups"), {"groups": groups}, action="add")
        assert answer.status_code == status


def test_authorizes_path_not_body(filled: Admin) -> None:
    own = policy("auth:PutUserPolicy", "arn:auth:local:*:user/bob@example.org")
    bob = Admin(filled.client, filled.user("bob@example.org", policy=own))
    assert bob.put(of_user(bob.token, "/policy"), {"policy": own}).status_code == 200
    body = {"policy": own, "user_id": bob.token}
    assert bob.put(of_user(ADA, "/policy"), body).status_code == 400
    assert bob.put(of_user(ADA, "/policy"), {"policy": own}).status_code == 403
    assert bob.put(of_user(ADA, "/policy?user_id=bob@example.org"), {}).status_code == 403


def test_an_administrator_of_the_settings_may_all_until_disabled(filled: Admin) -> None:
    named = Admin(filled.client, NAMED)
    assert named.get("/v1/users").status_code == 200
    filled.user(NAMED)
    filled.put(of_user(NAMED), status="disabled")
    assert named.get("/v1/users").status_code == 403
    assert filled.get("/v1/users").status_code == 200
    assert filled.token.startswith(ADMIN)


def test_checks_token_then_arguments_then_permission_then_existence(admin: Admin) -> None:
    client, eve = admin.client, Admin(admin.client, "eve@example.org")
    bad, absent = "/v1/user/a%20b/policy", of_user("absent@example.org", "/policy")
    assert client.put(bad, json={}).status_code == 401
    assert client.put(bad, json={}, headers=bearer("no-address")).status_code == 401
    assert eve.put(bad, {}).status_code == 400
    assert eve.put(absent, {"policy": {}}).status_code == 400
    assert eve.put(absent, {}).status_code == 403
    assert admin.put(absent, {}).status_code == 404
    taken = {"group_id": "user_default"}
    assert eve.call("POST", "/v1/group", taken | {"roles": 1}).status_code == 400
    assert eve.call("POST", "/v1/group", taken).status_code == 403
    assert admin.call("POST", "/v1/group", taken).status_code == 409


def test_resources_are_what_the_request_names() -> None:
    action = REQUIRED_ACTIONS["post_v1_user"]
    assert action.name == "auth:PostUser"
    named = {"user_id": "a@b", "groups": ["x", "y", "x"], "roles": []}
    lead = "arn:auth:prod:*:"
    assert resource_arns(action, "prod", named) == [
        f"{lead}user/a@b",
        f"{lead}group/x",
        f"{lead}group/y",
    ]
    assert resource_arns(REQUIRED_ACTIONS["get_v1_users"], "prod", {}) == [f"{lead}user/*"]
    braces = {"user_id": "{groups}", "groups": [], "roles": []}
    assert resource_arns(action, "prod", braces) == [f"{lead}user/{{groups}}"]


def test_user_creation_does_not_allow_granting_more_rights(filled: Admin) -> None:
    statement = {
        "Effect": "Allow",
        "Action": ["auth:PostUser", "auth:PostGroup"],
        "Resource": ["arn:auth:*:*:user/*", "arn:auth:*:*:group/*"],
    }
    desk = filled.user("desk@example.org", policy={**policy(), "Statement": [statement]})
    helper = Admin(filled.client, desk)
    everything = policy("*")
    for kind, name in (("user", "desk.two@example.org"), ("group", "friends")):
        body = {f"{kind}_id": name, "policy": everything}
        refused = helper.call("POST", f"/v1/{kind}", body)
        assert refused.status_code == 403, kind
        assert f"Put{kind.title()}Policy" in refused.json["detail"]
        assert filled.get(f"/v1/{kind}/{name}").status_code == 404
        assert helper.call("POST", f"/v1/{kind}", {f"{kind}_id": name}).status_code == 201


def test_evaluating_oneself_does_not_reveal_group_policies(filled: Admin) -> None:
    filled.group("secret", policy=policy("store:PutBundle"))
    asked = {"principal": ADA, "action": ["store:PutBundle"], "resource": ["a:b"]}
    inside = {**asked, "groups": ["secret"]}
    path = "/v1/policies/evaluate"
    assert Admin(filled.client, ADA).call("POST", path, asked).status_code == 200
    assert Admin(filled.client, ADA).call("POST", path, inside).status_code == 403
    # Who claims the group may ask, and so may who may ask about everybody.
    assert Admin(filled.client, f"{ADA}+secret").call("POST", path, inside).json["result"]
    assert filled.call("POST", path, inside).json["result"]
