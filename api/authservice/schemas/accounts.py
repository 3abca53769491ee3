"""Users, groups and roles: what their operations take."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from marshmallow import fields, validate

from api.schemas.fields import Text, page_pointer, page_size
from api.schemas.ids import Document, account_id, account_ids, user_id, user_ids
from api.schemas.loading import Body, Query
from auth.accounts.memberships import Action
from auth.policies.model import Policy
from storage.catalog.accounts import Status
from storage.catalog.owning import TYPES, Owned

PAGE, LEAST, MOST = 15, 5, 30
"""Interface 1 and 5: records on one page."""
UNSAID: Final = "unsaid"
"""No policy was given, which is not the same as none."""


def _unsaid() -> str:
    """Called, and so no default that the definition shows."""
    return UNSAID


POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["store:PutBundle"],
            "Resource": ["arn:store:local:aws:bundles/*"],
        }
    ],
}


@dataclass(frozen=True)
class Listed:
    """Which page of a list."""

    per_page: int
    next_token: str | None


class ListQuery(Query):
    """Parameters of every list."""

    model: ClassVar[type[Any]] = Listed
    per_page = page_size(PAGE, LEAST, MOST)
    next_token = page_pointer()


@dataclass(frozen=True)
class OwnsAsked(Listed):
    """Which page, of what type."""

    resource_type: Owned | None


class OwnsQuery(ListQuery):
    """Parameters of the list of what somebody owns."""

    model = OwnsAsked
    resource_type = Text(
        load_default=None,
        validate=validate.OneOf(TYPES, error=f"Must be one of: {', '.join(TYPES)}."),
        metadata={"description": "Only things of this type."},
    )


@dataclass(frozen=True)
class StatusAsked:
    """What a user is to be."""

    status: Status


class StatusQuery(Query):
    """Parameters of changing a user."""

    model = StatusAsked
    status = Text(
        required=True,
        validate=validate.OneOf(
            ("enabled", "disabled"), error="Must be one of: enabled, disabled."
        ),
        metadata={"example": "disabled"},
    )


@dataclass(frozen=True)
class ActionAsked:
    """Whether to add or to remove."""

    action: Action


class ActionQuery(Query):
    """Parameters of changing memberships."""

    model = ActionAsked
    action = Text(
        required=True,
        validate=validate.OneOf(("add", "remove"), error="Must be one of: add, remove."),
        metadata={"example": "add"},
    )


def _groups() -> fields.List[str]:
    return account_ids("curators", "Ids of groups.")


def _roles() -> fields.List[str]:
    return account_ids("reviewer", "Ids of roles.")


def _policy(**given: Any) -> Document:
    about = {"description": "An IAM policy.", "type": "object", "example": POLICY}
    return Document(metadata=about, **given)


@dataclass(frozen=True)
class NewUser:
    """A user to be made."""

    user_id: str
    groups: list[str]
    roles: list[str]
    policy: Policy | None


class NewUserBody(Body):
    """A user to be made."""

    model = NewUser
    user_id = user_id(required=True)
    groups = _groups()
    roles = _roles()
    policy = _policy(load_default=None, allow_none=True)


@dataclass(frozen=True)
class NewGroup:
    """A group to be made."""

    group_id: str
    roles: list[str]
    policy: Policy | None


class NewGroupBody(Body):
    """A group to be made."""

    model = NewGroup
    group_id = account_id("reviewers", required=True)
    roles = _roles()
    policy = _policy(load_default=None, allow_none=True)


@dataclass(frozen=True)
class NewRole:
    """A role to be made."""

    role_id: str
    policy: Policy


class NewRoleBody(Body):
    """A role to be made: it is nothing but its policy."""

    model = NewRole
    role_id = account_id("depositor", required=True)
    policy = _policy(required=True)


@dataclass(frozen=True)
class Groups:
    """Some groups."""

    groups: list[str]


class GroupsBody(Body):
    """Groups to be added or removed."""

    model = Groups
    groups = _groups()


@dataclass(frozen=True)
class Roles:
    """Some roles."""

    roles: list[str]


class RolesBody(Body):
    """Roles to be added or removed."""

    model = Roles
    roles = _roles()


@dataclass(frozen=True)
class Users:
    """Some users."""

    users: list[str]


class UsersBody(Body):
    """Users to be added or removed."""

    model = Users
    users = user_ids("ada@example.org", "Ids of users.")


@dataclass(frozen=True)
class NewPolicy:
    """A policy to be given, None for none at all."""

    policy: Policy | Literal["unsaid"] | None


class PolicyBody(Body):
    """A policy; null takes the one there is away, and nothing said leaves it."""

    model = NewPolicy
    policy = _policy(load_default=_unsaid, allow_none=True)


class RolePolicyBody(Body):
    """A policy; a role is never without one."""

    model = NewPolicy
    policy = _policy(load_default=_unsaid)
