"""Accounts of the fuzzed authorization service, and requests that name them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from examples.login import CLIENT_ID, log_in
from ops.demo import add_users
from ops.local_store import LocalStore
from store_client import Client
from tests.drill.fuzz_objects import Naming
from tests.live.api import ApiClient

OF_EACH, LOGINS = 8, 6
"""Users, groups and roles; of groups and roles the second half may be deleted."""
PERSON = "person@example.org"
REDIRECT = "http://127.0.0.1:9/callback"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
POLICY = {
    "Statement": [
        {"Sid": "Own", "Effect": "Allow", "Action": "store:*", "Resource": "arn:store:local:*"},
        {"Effect": "Deny", "NotAction": "store:Get*", "Resource": ["*:${store:user_email}/*"]},
    ]
}


@dataclass(frozen=True)
class Accounts:
    """Ids of records, and refresh tokens, each of a login of its own."""

    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


def enrol(stage: LocalStore) -> Accounts:
    """Some of every kind, by an administrator, and logins by the real flow."""
    service, accounts = ApiClient.open(stage.auth, stage.token), Accounts()
    for number in range(OF_EACH):
        accounts.roles.append(f"role-{number}")
        accounts.groups.append(f"group-{number}")
        accounts.users.append(f"user-{number}@example.org")
        role, group, user = accounts.roles[-1], accounts.groups[-1], accounts.users[-1]
        service.call("POST", "/role", json={"role_id": role, "policy": POLICY})
        service.call("POST", "/group", json={"group_id": group, "roles": [role], "policy": POLICY})
        service.call("POST", "/user", json={"user_id": user, "groups": [group], "roles": [role]})
    accounts.tokens.extend(_log_in(stage))
    return accounts


def _log_in(stage: LocalStore) -> list[str]:
    """The refresh tokens of several logins of a person."""
    password = add_users(stage, [PERSON])[PERSON]
    # Keep the client's cache out of the developer's home.
    os.environ["STORE_CLIENT_HOME"] = str(stage.home / "client")
    with Client(stage.api, token=stage.token) as store:
        return [log_in(store, PERSON, password)["refresh_token"] for _ in range(LOGINS)]


# How requests name it ----------------------------------------------------------------------


def naming(accounts: Accounts, operation: str, rng: Random) -> Naming | None:
    """What a request to this operation may name; None where it names nothing."""
    maker = _NAMINGS.get(operation)
    return None if maker is None else maker(accounts, rng)


def _user(accounts: Accounts, rng: Random, **body: Any) -> Naming:
    return Naming({"user_id": rng.choice(accounts.users)}, body=body)


def _group(accounts: Accounts, rng: Random, *, doomed: bool = False, **body: Any) -> Naming:
    return Naming({"group_id": _half(accounts.groups, rng, doomed=doomed)}, body=body)


def _role(accounts: Accounts, rng: Random, *, doomed: bool = False, **body: Any) -> Naming:
    return Naming({"role_id": _half(accounts.roles, rng, doomed=doomed)}, body=body)


def _half(ids: list[str], rng: Random, *, doomed: bool) -> str:
    middle = len(ids) // 2
    return rng.choice(ids[middle:] if doomed else ids[:middle])


def _some(ids: list[str], rng: Random) -> list[str]:
    return rng.sample(ids[: len(ids) // 2], rng.randint(0, 3))


def _policy(rng: Random) -> Mapping[str, Any]:
    return {"Statement": rng.choice(POLICY["Statement"])}


def _new(kind: str, rng: Random) -> str:
    return f"new-{kind}-{rng.randrange(1_000_000)}"


def _new_user(accounts: Accounts, rng: Random) -> Naming:
    groups, roles = _some(accounts.groups, rng), _some(accounts.roles, rng)
    body = {"user_id": f"{_new('user', rng)}@example.org", "groups": groups, "roles": roles}
    return Naming(body={**body, "policy": _policy(rng)})


def _new_group(accounts: Accounts, rng: Random) -> Naming:
    roles = _some(accounts.roles, rng)
    return Naming(body={"group_id": _new("group", rng), "roles": roles, "policy": _policy(rng)})


def _evaluation(accounts: Accounts, rng: Random) -> Naming:
    body = {
        "principal": rng.choice(accounts.users),
        "action": ["store:PutBundle", "store:GetFile"],
        "resource": ["arn:store:local:aws:bundles/*"],
        "context": {"store:SourceIp": "192.0.2.1"},
    }
    return Naming(body=body)


def _token(accounts: Accounts, rng: Random) -> Naming:
    token = rng.choice(accounts.tokens)
    return Naming(body={"grant_type": "refresh_token", "refresh_token": token, **_CLIENT})


def _authorize(_accounts: Accounts, rng: Random) -> Naming:
    asked = {"response_type": "code", "client_id": CLIENT_ID, "redirect_uri": REDIRECT}
    challenge = {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}
    return Naming(query={**asked, **(challenge if rng.random() < 0.8 else {})})


_CLIENT = {"client_id": CLIENT_ID, "client_secret": "", "scope": "openid"}
_NAMINGS: Mapping[str, Callable[[Accounts, Random], Naming]] = {
    "get_login": lambda *_: Naming(query={"redirect_uri": REDIRECT}),
    "get_logout": lambda *_: Naming(query={"client_id": CLIENT_ID}),
    "get_oauth_authorize": _authorize,
    "post_oauth_token": _token,
    "post_oauth_revoke": lambda *_: Naming(body={**_CLIENT, "token": "none"}),
    "post_oauth_device": lambda *_: Naming(body=_CLIENT),
    "get_v1_user": _user,
    "post_v1_user": _new_user,
    "put_v1_user": _user,
    "get_v1_user_owns": _user,
    "get_v1_user_groups": _user,
    "get_v1_user_roles": _user,
    "put_v1_user_group": lambda all_, rng: _user(all_, rng, groups=_some(all_.groups, rng)),
    "put_v1_user_role": lambda all_, rng: _user(all_, rng, roles=_some(all_.roles, rng)),
    "put_v1_user_policy": lambda all_, rng: _user(all_, rng, policy=_policy(rng)),
    "post_v1_group": _new_group,
    "get_v1_group": _group,
    "delete_v1_group": lambda all_, rng: _group(all_, rng, doomed=True),
    "get_v1_group_roles": _group,
    "get_v1_group_users": _group,
    "put_v1_group_role": lambda all_, rng: _group(all_, rng, roles=_some(all_.roles, rng)),
    "put_v1_group_user": lambda all_, rng: _group(all_, rng, users=_some(all_.users, rng)),
    "put_v1_group_policy": lambda all_, rng: _group(all_, rng, policy=_policy(rng)),
    "post_v1_role": lambda _, rng: Naming(
        body={"role_id": _new("role", rng), "policy": _policy(rng)}
    ),
    "get_v1_role": _role,
    "delete_v1_role": lambda all_, rng: _role(all_, rng, doomed=True),
    "put_v1_role_policy": lambda all_, rng: _role(all_, rng, policy=_policy(rng)),
    "post_v1_policies_evaluate": _evaluation,
}
