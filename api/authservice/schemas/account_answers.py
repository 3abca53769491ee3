"""Users, groups and roles: what their operations answer."""

from marshmallow import fields, validate

from api.authservice.schemas.accounts import POLICY
from api.schemas.common import Shown
from api.schemas.fields import JsonObject, Text


class _Record(Shown):
    policy = JsonObject(
        required=True,
        allow_none=True,
        metadata={"description": "Its own policy, null for none.", "example": POLICY},
    )
    built_in = fields.Boolean(
        required=True,
        metadata={"description": "Always there, with the policy it has.", "example": False},
    )
    created = Text(required=True)
    updated = Text(required=True)


class UserAnswer(_Record):
    """A user."""

    user_id = Text(required=True)
    status = Text(
        required=True,
        validate=validate.OneOf(("enabled", "disabled")),
        metadata={"example": "enabled"},
    )


class GroupAnswer(_Record):
    """A group."""

    group_id = Text(required=True)


class RoleAnswer(_Record):
    """A role."""

    role_id = Text(required=True)


class Changed(Shown):
    """Whether anything is other than before."""

    changed = fields.Boolean(required=True, metadata={"example": True})


def _ids(example: str) -> fields.List[str]:
    return fields.List(Text(), required=True, metadata={"example": [example]})


class UserList(Shown):
    """Ids of users, in byte order."""

    users = _ids("ada@example.org")


class GroupList(Shown):
    """Ids of groups, in byte order."""

    groups = _ids("curators")


class RoleList(Shown):
    """Ids of roles, in byte order."""

    roles = _ids("reviewer")


class OwnedThing(Shown):
    """Something that somebody owns."""

    resource_type = Text(required=True, metadata={"example": "collection"})
    uuid = Text(required=True)
    arn = Text(
        required=True,
        metadata={"description": "As policies name it, in any replica and version."},
    )


class OwnedList(Shown):
    """What somebody owns, by type, then uuid."""

    resources = fields.List(fields.Nested(OwnedThing), required=True)
