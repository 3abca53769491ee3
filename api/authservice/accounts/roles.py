"""Roles: policies with a name, for users and groups."""

from typing import Any

from flask import Response

from api.authservice.accounts import listing
from api.authservice.accounts.editing import CHANGED, by, changed, policy_put, record_shown
from api.authservice.accounts.listing import pages
from api.authservice.schemas.account_answers import Changed, RoleAnswer, RoleList
from api.authservice.schemas.accounts import (
    Listed,
    ListQuery,
    NewPolicy,
    NewRole,
    NewRoleBody,
    RolePolicyBody,
)
from api.authservice.services import Call
from api.operation import Answer, operation, reply
from auth.accounts import reading, records
from auth.accounts.records import New
from storage.catalog.accounts import Name

TAG = "roles"


@operation(
    "GET",
    "/v1/roles",
    tag=TAG,
    query=ListQuery,
    answers=pages(RoleList),
    paged="roles",
    about="Ids in byte order.",
)
def get_v1_roles(call: Call[Listed, None]) -> Response:
    """List roles."""
    return listing.every(call, "role")


@operation(
    "POST",
    "/v1/role",
    tag=TAG,
    body=NewRoleBody,
    answers={201: Answer("Made.", RoleAnswer)},
    errors=(409,),
)
def post_v1_role(call: Call[None, NewRole]) -> Response:
    """Make a role."""
    new = New(Name("role", call.body.role_id), policy=call.body.policy)
    made = records.create(call.catalog, new, by(call))
    return reply(record_shown(made, call.services.settings.deployment), 201)


@operation(
    "GET",
    "/v1/role/{role_id}",
    tag=TAG,
    answers={200: Answer("The role.", RoleAnswer)},
    errors=(404,),
)
def get_v1_role(call: Call[None, None]) -> Response:
    """Read a role."""
    found = reading.account(call.catalog, _role(call))
    return reply(record_shown(found, call.services.settings.deployment))


@operation(
    "DELETE",
    "/v1/role/{role_id}",
    tag=TAG,
    answers={200: Answer("Deleted.", Changed)},
    errors=(404, 409),
    about="No user and no group has it any more.",
)
def delete_v1_role(call: Call[None, None]) -> Response:
    """Delete a role."""
    records.delete(call.catalog, _role(call), by(call))
    return changed(True, role_id=call.path["role_id"])


@operation(
    "PUT",
    "/v1/role/{role_id}/policy",
    tag=TAG,
    body=RolePolicyBody,
    body_optional=True,
    answers=CHANGED,
    errors=(404, 409),
)
def put_v1_role_policy(call: Call[None, NewPolicy]) -> Response:
    """Give a role another policy."""
    return policy_put(call, _role(call))


def _role(call: Call[Any, Any]) -> Name:
    return Name("role", call.path["role_id"])


OPERATIONS = (
    get_v1_roles,
    post_v1_role,
    get_v1_role,
    delete_v1_role,
    put_v1_role_policy,
)
