"""Ids of users, groups and roles in requests, and policies."""

from collections.abc import Callable
from typing import Any

from marshmallow import ValidationError, fields, validate

from api.schemas.fields import Identity, Spelled, Text
from auth.accounts.limits import NAMED_AT_ONCE
from auth.accounts.names import MAILED, PATTERN, SPELLED, is_user_id
from auth.policies.model import Policy, parse


def account_id(example: str, **given: Any) -> Text:
    """What a record may be called."""
    return Text(
        validate=Spelled(PATTERN, error=f"{SPELLED}."),
        metadata={"example": example},
        **given,
    )


def _mailed(value: str) -> None:
    if not is_user_id(value):
        raise ValidationError(MAILED)


def user_id(**given: Any) -> Text:
    """What a new user may be called."""
    spelled = Spelled(PATTERN, error=f"{SPELLED}.")
    about = {"example": "grace@example.org", "description": "The user's e-mail address."}
    return Identity(validate=[spelled, _mailed], metadata=about, **given)


def _user_id(example: str) -> Text:
    """What a user may be called who is there."""
    spelled = Spelled(PATTERN, error=f"{SPELLED}.")
    return Identity(validate=spelled, metadata={"example": example})


def user_ids(example: str, about: str) -> fields.List[str]:
    """Some users; none when nothing is said."""
    return account_ids(example, about, _user_id)


def account_ids(
    example: str, about: str, one: Callable[..., Text] = account_id
) -> fields.List[str]:
    """Some records; none when nothing is said."""
    return fields.List(
        one(example),
        load_default=list,
        validate=validate.Length(max=NAMED_AT_ONCE, error=f"At most {NAMED_AT_ONCE}."),
        metadata={"description": about, "example": [example]},
    )


class Document(fields.Field[Policy]):
    """A policy; what is wrong with it is told by JSON pointers into the body."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **_: Any) -> Policy:
        return parse(value, pointer=f"/{attr}")
