"""Evaluating policies: what it takes and answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from marshmallow import ValidationError, fields, validate, validates_schema

from api.schemas.common import Shown
from api.schemas.fields import Identity, Text
from api.schemas.loading import Body
from auth.accounts.limits import (
    ASKED_AT_ONCE,
    ASKED_EACH,
    ASKED_GROUPS,
    ASKED_LENGTH,
    CONTEXT_KEYS,
    CONTEXT_VALUES,
    MAX_GRANT,
)
from auth.policies.keys import VARIABLES
from auth.policies.model import Reason, Value

MAX_PRINCIPAL = 254
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}:[A-Za-z0-9_.@/+=-]{1,128}")


class Context(fields.Field[Mapping[str, Value]]):
    """Values of condition keys; those that are known of the principal are nobody's to say."""

    def _deserialize(
        self, value: Any, attr: str | None, data: Any, **_: Any
    ) -> Mapping[str, Value]:
        if not isinstance(value, Mapping) or len(value) > CONTEXT_KEYS:
            raise ValidationError(f"Must be an object of at most {CONTEXT_KEYS} members.")
        wrong = {key: _complaint(key, each) for key, each in value.items()}
        if any(wrong.values()):
            raise ValidationError({key: [said] for key, said in wrong.items() if said})
        return {key: _kept(each) for key, each in value.items()}


def _complaint(key: str, value: Any) -> str:
    if not _KEY.fullmatch(key):
        return "Keys are spelled like store:source."
    if key.lower() in VARIABLES:
        return "This is known of the principal."
    if isinstance(value, list):
        fits = len(value) <= CONTEXT_VALUES and all(isinstance(one, str) for one in value)
        return "" if fits and all(map(_is_short, value)) else "Must be a list of short texts."
    return "" if isinstance(value, str | int | float) and _is_short(value) else "Must be a value."


def _is_short(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= ASKED_LENGTH


def _kept(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _asked(example: str) -> fields.List[str]:
    most = validate.Length(1, ASKED_LENGTH, error=f"Must have 1 to {ASKED_LENGTH} characters.")
    several = validate.Length(1, ASKED_EACH, error=f"Must have 1 to {ASKED_EACH} items.")
    return fields.List(
        Text(validate=most), required=True, validate=several, metadata={"example": [example]}
    )


@dataclass(frozen=True)
class EvaluationQuestion:
    """May this principal do all of this on all of that?"""

    principal: str
    action: list[str]
    resource: list[str]
    groups: list[str]
    context: Mapping[str, Value]
    grant: str | None


class EvaluationBody(Body):
    """May this principal do all of this on all of that?"""

    model = EvaluationQuestion
    principal = Identity(
        required=True,
        validate=validate.Length(1, MAX_PRINCIPAL, error=f"1 to {MAX_PRINCIPAL} characters."),
        metadata={"example": "ada@example.org"},
    )
    action = _asked("store:PutBundle")
    resource = _asked("arn:store:local:aws:bundles/*")
    groups = fields.List(
        Text(validate=validate.Length(1, 512)),
        load_default=list,
        validate=validate.Length(max=ASKED_GROUPS, error=f"At most {ASKED_GROUPS}."),
        metadata={"description": "Groups that a token claims besides those of the records."},
    )
    context = Context(
        load_default=dict,
        metadata={"description": "Values of condition keys.", "type": "object"},
    )
    grant = Text(
        load_default=None,
        allow_none=True,
        validate=validate.Length(1, MAX_GRANT, error=f"1 to {MAX_GRANT} characters."),
        metadata={"description": "The claim `grant` of an access token: the login it came of."},
    )

    @validates_schema
    def check_size(self, data: dict[str, Any], **_: Any) -> None:
        """Every action is asked of every resource."""
        if len(data["action"]) * len(data["resource"]) > ASKED_AT_ONCE:
            said = f"At most {ASKED_AT_ONCE} pairs of an action and a resource."
            raise ValidationError(said, "resource")


def _reason() -> Text:
    one_of = validate.OneOf(get_args(Reason))
    return Text(required=True, validate=one_of, metadata={"example": "allow"})


class EvaluationResult(Shown):
    """One action on one resource."""

    action = Text(required=True, metadata={"example": "store:PutBundle"})
    resource = Text(required=True, metadata={"example": "arn:store:local:aws:bundles/*"})
    result = fields.Boolean(required=True, metadata={"example": True})
    reason = _reason()
    source = Text(
        required=True,
        allow_none=True,
        metadata={
            "description": "Whose policy decided.",
            "example": "group curators, role reviewer",
        },
    )
    statement = Text(
        required=True,
        allow_none=True,
        metadata={"description": "Its Sid, or where in the policy it is.", "example": "Reads"},
    )
    depends_on = fields.List(
        Text(),
        required=True,
        metadata={
            "description": "The keys of the context that conditions asked for here: with other"
            " values the answer may be another one. `*` stands for all, where they are many.",
            "example": ["store:sourceip"],
        },
    )
    anywhere = fields.Boolean(
        required=True,
        metadata={"description": "Whether it is allowed on anything at all.", "example": True},
    )


def _version() -> Text:
    about = "As long as it is the same, so is every decision; nothing else can be read from it."
    example = "1767225599000000-1767225500000000-0f1e2d3c4b5a6978"
    return Text(required=True, metadata={"description": about, "example": example})


class PolicyVersion(Shown):
    """Which policies are in force."""

    policy_version = _version()


class Evaluation(Shown):
    """Whether all of it is allowed, and the worst reason."""

    result = fields.Boolean(required=True, metadata={"example": True})
    reason = _reason()
    evaluation_results = fields.List(fields.Nested(EvaluationResult), required=True)
    grant_stands = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={
            "description": "Whether tokens of the login are good still; null where none was asked"
            " about. Nobody is who shows one that is not.",
            "example": True,
        },
    )
    policy_version = _version()
