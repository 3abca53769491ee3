"""Schemas of users, groups, roles and the audit log."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from marshmallow import ValidationError, fields, validate

from api.schemas.fields import (
    EmailField,
    FullMatch,
    JsonObject,
    ResponseSchema,
    TextField,
    describe_field,
    one_of,
    page_size_field,
    page_token_field,
    text_length,
    version_field,
)
from auth.accounts import (
    ACCOUNT_ID_PATTERN,
    ACCOUNT_ID_RULE,
    EMAIL_RULE,
    MAX_NAMED,
    EditAction,
    is_user_id,
)
from auth.policies.grammar import AccessPolicy, parse_policy
from storage.catalog.accounts import OWNED_TYPES, AccountStatus, OwnedType

DEFAULT_PAGE_SIZE, MIN_PAGE_SIZE, MAX_PAGE_SIZE = 15, 5, 30
"""Interface 1 and 5: items per page."""
POLICY_NOT_GIVEN: Final = "unsaid"
"""The policy was omitted, which differs from null."""


def _policy_not_given() -> str:
    """A callable default is not shown in OpenAPI."""
    return POLICY_NOT_GIVEN


EXAMPLE_POLICY = {
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
class ListParameters:
    """Parameters of every list."""

    per_page: Annotated[int, page_size_field(DEFAULT_PAGE_SIZE, MIN_PAGE_SIZE, MAX_PAGE_SIZE)]
    next_token: Annotated[str | None, page_token_field()]


def _choice_field(choices: Sequence[str], **given: Any) -> TextField:
    return TextField(validate=one_of(*choices), **given)


@dataclass(frozen=True)
class OwnedResourcesParameters(ListParameters):
    """Parameters of the list of owned resources."""

    resource_type: Annotated[
        OwnedType | None,
        _choice_field(
            OWNED_TYPES, load_default=None, metadata={"description": "Only resources of this type."}
        ),
    ]


@dataclass(frozen=True)
class StatusParameters:
    """Parameters of changing a user."""

    status: Annotated[
        AccountStatus,
        _choice_field(("enabled", "disabled"), required=True, metadata={"example": "disabled"}),
    ]


@dataclass(frozen=True)
class ActionParameters:
    """Parameters of changing memberships."""

    action: Annotated[
        EditAction, _choice_field(("add", "remove"), required=True, metadata={"example": "add"})
    ]


_ACCOUNT_ID = FullMatch(ACCOUNT_ID_PATTERN, error=f"{ACCOUNT_ID_RULE}.")


def _check_email(value: str) -> None:
    if not is_user_id(value):
        raise ValidationError(EMAIL_RULE)


def _account_id_field(example: str, kind: type[TextField] = TextField, **given: Any) -> TextField:
    return kind(validate=_ACCOUNT_ID, metadata={"example": example}, **given)


def _account_ids_field(
    example: str, about: str, kind: type[TextField] = TextField
) -> fields.List[str]:
    """Return a list field of accounts, empty by default."""
    return fields.List(
        _account_id_field(example, kind),
        load_default=list,
        validate=validate.Length(max=MAX_NAMED, error=f"Must have at most {MAX_NAMED} items."),
        metadata=describe_field(about, example=[example]),
    )


class PolicyField(fields.Field[AccessPolicy]):
    """A policy; its errors are reported by JSON pointers into the body."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **_: Any) -> AccessPolicy:
        return parse_policy(value, pointer=f"/{attr}")


def _groups_field() -> fields.List[str]:
    return _account_ids_field("curators", "Ids of groups.")


def _roles_field() -> fields.List[str]:
    return _account_ids_field("reviewer", "Ids of roles.")


def _policy_field(**given: Any) -> PolicyField:
    about = {"description": "An IAM policy.", "type": "object", "example": EXAMPLE_POLICY}
    return PolicyField(metadata=about, **given)


@dataclass(frozen=True)
class NewUserBody:
    """A user to create."""

    user_id: Annotated[
        str,
        EmailField(
            required=True,
            validate=[_ACCOUNT_ID, _check_email],
            metadata={"example": "grace@example.org", "description": "The user's e-mail address."},
        ),
    ]
    groups: Annotated[list[str], _groups_field()]
    roles: Annotated[list[str], _roles_field()]
    policy: Annotated[AccessPolicy | None, _policy_field(load_default=None, allow_none=True)]


@dataclass(frozen=True)
class NewGroupBody:
    """A group to create."""

    group_id: Annotated[str, _account_id_field("reviewers", required=True)]
    roles: Annotated[list[str], _roles_field()]
    policy: Annotated[AccessPolicy | None, _policy_field(load_default=None, allow_none=True)]


@dataclass(frozen=True)
class NewRoleBody:
    """A role to create: an id and a policy."""

    role_id: Annotated[str, _account_id_field("depositor", required=True)]
    policy: Annotated[AccessPolicy, _policy_field(required=True)]


@dataclass(frozen=True)
class GroupsBody:
    """Groups to add or remove."""

    groups: Annotated[list[str], _groups_field()]


@dataclass(frozen=True)
class RolesBody:
    """Roles to add or remove."""

    roles: Annotated[list[str], _roles_field()]


@dataclass(frozen=True)
class UsersBody:
    """Users to add or remove."""

    users: Annotated[list[str], _account_ids_field("ada@example.org", "Ids of users.", EmailField)]


@dataclass(frozen=True)
class PolicyBody:
    """A policy; null deletes the present one, omitting it keeps it."""

    policy: Annotated[
        AccessPolicy | Literal["unsaid"] | None,
        _policy_field(load_default=_policy_not_given, allow_none=True),
    ]


@dataclass(frozen=True)
class RolePolicyBody(PolicyBody):
    """A policy, which every role has."""

    policy: Annotated[
        AccessPolicy | Literal["unsaid"] | None, _policy_field(load_default=_policy_not_given)
    ]


class _AccountAnswer(ResponseSchema):
    policy = JsonObject(
        required=True,
        allow_none=True,
        metadata={"description": "Its own policy, null for none.", "example": EXAMPLE_POLICY},
    )
    built_in = fields.Boolean(
        required=True,
        metadata={"description": "Always there, with the policy it has.", "example": False},
    )
    created = TextField(required=True)
    updated = TextField(required=True)


class UserAnswer(_AccountAnswer):
    """A user."""

    user_id = TextField(required=True)
    status = TextField(
        required=True,
        validate=validate.OneOf(("enabled", "disabled")),
        metadata={"example": "enabled"},
    )


class GroupAnswer(_AccountAnswer):
    """A group."""

    group_id = TextField(required=True)


class RoleAnswer(_AccountAnswer):
    """A role."""

    role_id = TextField(required=True)


class ChangeAnswer(ResponseSchema):
    """Whether the request changed anything."""

    changed = fields.Boolean(required=True, metadata={"example": True})


def _ids_field(example: str) -> fields.List[str]:
    return fields.List(TextField(), required=True, metadata={"example": [example]})


class UserList(ResponseSchema):
    """Ids of users, in byte order."""

    users = _ids_field("ada@example.org")


class GroupList(ResponseSchema):
    """Ids of groups, in byte order."""

    groups = _ids_field("curators")


class RoleList(ResponseSchema):
    """Ids of roles, in byte order."""

    roles = _ids_field("reviewer")


class OwnedThing(ResponseSchema):
    """A resource that a user owns."""

    resource_type = TextField(required=True, metadata={"example": "collection"})
    uuid = TextField(required=True)
    arn = TextField(
        required=True,
        metadata={"description": "As policies name it, in any replica and version."},
    )


class OwnedList(ResponseSchema):
    """Owned resources, by type, then uuid."""

    resources = fields.List(fields.Nested(OwnedThing), required=True)


def _filter_field(about: str, kind: type[TextField] = TextField) -> TextField:
    return kind(load_default=None, validate=text_length(254), metadata={"description": about})


@dataclass(frozen=True)
class AuditParameters(ListParameters):
    """Parameters of the audit log."""

    who: Annotated[str | None, _filter_field("Only changes by this principal.", EmailField)]
    what: Annotated[
        str | None, _filter_field("Only changes by this operation, for example put_v1_user.")
    ]
    since: Annotated[
        str | None,
        version_field(
            load_default=None, metadata={"description": "Only changes at or after this moment."}
        ),
    ]
    until: Annotated[
        str | None,
        version_field(
            load_default=None, metadata={"description": "Only changes before this moment."}
        ),
    ]
    target: Annotated[
        str | None, _filter_field("Only changes of this, for example user/ada@example.org.")
    ]


class AuditEntry(ResponseSchema):
    """One change."""

    at = TextField(required=True)
    who = TextField(required=True, metadata={"example": "admin@local"})
    what = TextField(required=True, metadata={"example": "put_v1_user"})
    target = TextField(required=True, metadata={"example": "user/ada@example.org"})
    before = JsonObject(
        required=True,
        allow_none=True,
        metadata={
            "description": "The changed members before the change; null if it did not exist.",
            "example": {"status": "enabled"},
        },
    )
    after = JsonObject(
        required=True,
        allow_none=True,
        metadata={
            "description": "The record after the change; null if it was deleted.",
            "example": {"status": "disabled"},
        },
    )
    request_id = TextField(required=True)


class AuditLog(ResponseSchema):
    """Changes, the newest first."""

    audit = fields.List(fields.Nested(AuditEntry), required=True)
