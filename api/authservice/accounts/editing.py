"""What the changes of users, groups and roles have in common, and how a record is shown."""

from typing import Any

from flask import Response

from api.authservice.schemas.account_answers import Changed
from api.authservice.schemas.accounts import UNSAID
from api.authservice.services import Call
from api.operation import Answer, reply
from auth.accounts import memberships, reading, records
from auth.accounts.changing import By
from auth.accounts.documents import kept
from auth.accounts.memberships import Edit
from pipelines.formats import version_at
from storage.catalog.accounts import Account, Name

CHANGED = {200: Answer("It is so.", Changed)}
ALL_OR_NONE = "All of them or none: one that does not exist is 404, and nothing has changed then."


def by(call: Call[Any, Any]) -> By:
    """Whose change it is: the audit log calls it by the name of the operation."""
    return By(who=call.who.email, what=call.operation, request_id=call.request_id)


def changed(done: bool, **said: Any) -> Response:
    """The answer to a change that was made, or was not one."""
    return reply({**said, "changed": done})


def edited(call: Call[Any, Any], edit: Edit) -> Response:
    """Make or end memberships, and answer."""
    done = memberships.put(call.catalog, edit, by(call))
    named = [one.id for one in edit.named]
    return changed(done, **call.path, action=edit.action, **{edit.member: named})


def policy_put(call: Call[Any, Any], name: Name) -> Response:
    """Give a record the policy of the body, and answer."""
    policy = call.body.policy
    if policy == UNSAID:
        reading.account(call.catalog, name)
        return changed(False, **call.path)
    done = records.set_policy(call.catalog, name, policy, by(call))
    return changed(done, **call.path)


def record_shown(account: Account, deployment: str) -> dict[str, Any]:
    """A record as it is answered."""
    name = Name(account.kind, account.id)
    policy = kept(name, account.policy, deployment)
    status = {"status": account.status} if account.kind == "user" else {}
    return {
        f"{account.kind}_id": account.id,
        **status,
        "policy": None if policy is None else policy.document,
        "built_in": account.built_in,
        "created": version_at(account.created_us),
        "updated": version_at(account.changed_us),
    }
