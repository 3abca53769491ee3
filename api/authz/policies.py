"""Evaluate policies for a principal, and show the version of policies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from flask import Response
from marshmallow import ValidationError, fields, validate

from api.authz.context import AuthRequestContext
from api.http.operation import ResponseDoc, json_response, operation
from api.schemas.fields import EmailField, ResponseSchema, TextField
from auth.accounts import (
    MAX_CLAIMED_GROUPS,
    MAX_CONTEXT_KEYS,
    MAX_CONTEXT_VALUES,
    MAX_EVALUATED_EACH,
    MAX_EVALUATED_LENGTH,
    MAX_EVALUATED_PAIRS,
    MAX_GRANT_ID,
)
from auth.decisions import ResourceDecision
from auth.permissions import Extent, list_permissions, list_role_sources
from auth.policies.evaluator import Reason
from auth.policies.keys import VARIABLES
from auth.policies.patterns import Value
from storage.model import Principal

TAG = "policies"
MAX_PRINCIPAL = 254
_CONTEXT_KEY_REGEX = re.compile(r"[A-Za-z0-9_.-]{1,64}:[A-Za-z0-9_.@/+=-]{1,128}")


class ContextField(fields.Field[Mapping[str, Value]]):
    """Values of condition keys; keys of the principal's variables are rejected."""

    def _deserialize(
        self, value: Any, attr: str | None, data: Any, **_: Any
    ) -> Mapping[str, Value]:
        if not isinstance(value, Mapping) or len(value) > MAX_CONTEXT_KEYS:
            raise ValidationError(f"Must be an object of at most {MAX_CONTEXT_KEYS} members.")
        wrong = {key: _context_error(key, each) for key, each in value.items()}
        if any(wrong.values()):
            raise ValidationError({key: [message] for key, message in wrong.items() if message})
        return {key: tuple(each) if isinstance(each, list) else each for key, each in value.items()}


def _context_error(key: str, value: Any) -> str:
    if not _CONTEXT_KEY_REGEX.fullmatch(key):
        return "Keys are spelled like store:source."
    if key.lower() in VARIABLES:
        return "This is known of the principal."
    if isinstance(value, list):
        fits = len(value) <= MAX_CONTEXT_VALUES and all(isinstance(item, str) for item in value)
        return "" if fits and all(map(_is_short, value)) else "Must be a list of short texts."
    return "" if isinstance(value, str | int | float) and _is_short(value) else "Must be a value."


def _is_short(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= MAX_EVALUATED_LENGTH


def _evaluation_list_field(example: str) -> fields.List[str]:
    most = validate.Length(
        1, MAX_EVALUATED_LENGTH, error=f"Must have 1 to {MAX_EVALUATED_LENGTH} characters."
    )
    several = validate.Length(
        1, MAX_EVALUATED_EACH, error=f"Must have 1 to {MAX_EVALUATED_EACH} items."
    )
    return fields.List(
        TextField(validate=most), required=True, validate=several, metadata={"example": [example]}
    )


@dataclass(frozen=True)
class EvaluationBody:
    """Principal, actions and resources to evaluate."""

    principal: Annotated[
        str,
        EmailField(
            required=True,
            validate=validate.Length(1, MAX_PRINCIPAL, error=f"1 to {MAX_PRINCIPAL} characters."),
            metadata={"example": "ada@example.org"},
        ),
    ]
    action: Annotated[list[str], _evaluation_list_field("store:PutBundle")]
    resource: Annotated[list[str], _evaluation_list_field("arn:store:local:aws:bundles/*")]
    groups: Annotated[
        list[str],
        fields.List(
            TextField(validate=validate.Length(1, 512)),
            load_default=list,
            validate=validate.Length(
                max=MAX_CLAIMED_GROUPS, error=f"At most {MAX_CLAIMED_GROUPS}."
            ),
            metadata={"description": "Groups that a token claims besides those of the records."},
        ),
    ]
    context: Annotated[
        Mapping[str, Value],
        ContextField(
            load_default=dict,
            metadata={"description": "Values of condition keys.", "type": "object"},
        ),
    ]
    grant: Annotated[
        str | None,
        TextField(
            load_default=None,
            allow_none=True,
            validate=validate.Length(1, MAX_GRANT_ID, error=f"1 to {MAX_GRANT_ID} characters."),
            metadata={"description": "The claim `grant` of an access token: the login it came of."},
        ),
    ]

    def __post_init__(self) -> None:
        """Limit pairs of action and resource."""
        if len(self.action) * len(self.resource) > MAX_EVALUATED_PAIRS:
            message = f"At most {MAX_EVALUATED_PAIRS} pairs of an action and a resource."
            raise ValidationError(message, "resource")


def _reason_field() -> TextField:
    one_of = validate.OneOf(get_args(Reason))
    return TextField(required=True, validate=one_of, metadata={"example": "allow"})


class EvaluationResult(ResponseSchema):
    """One action on one resource."""

    action = TextField(required=True, metadata={"example": "store:PutBundle"})
    resource = TextField(required=True, metadata={"example": "arn:store:local:aws:bundles/*"})
    result = fields.Boolean(required=True, metadata={"example": True})
    reason = _reason_field()
    source = TextField(
        required=True,
        allow_none=True,
        metadata={
            "description": "Whose policy decided.",
            "example": "group curators, role reviewer",
        },
    )
    statement = TextField(
        required=True,
        allow_none=True,
        metadata={"description": "Its Sid, or where in the policy it is.", "example": "Reads"},
    )
    depends_on = fields.List(
        TextField(),
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


def _version_field() -> TextField:
    about = "While it is the same, so is every decision. It has no other meaning."
    example = "1767225599000000-1767225500000000-0f1e2d3c4b5a6978"
    return TextField(required=True, metadata={"description": about, "example": example})


class PolicyVersion(ResponseSchema):
    """The version of policies."""

    policy_version = _version_field()


class Evaluation(ResponseSchema):
    """Whether all is allowed, and the worst reason."""

    result = fields.Boolean(required=True, metadata={"example": True})
    reason = _reason_field()
    evaluation_results = fields.List(fields.Nested(EvaluationResult), required=True)
    grant_stands = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={
            "description": "Whether tokens of the login are still valid; null if no login was asked"
            " about. A caller with an invalid one counts as anonymous.",
            "example": True,
        },
    )
    policy_version = _version_field()


@operation(
    "POST",
    "/v1/policies/evaluate",
    tag=TAG,
    body=EvaluationBody,
    while_read_only=True,
    responses={200: ResponseDoc("The decisions.", Evaluation)},
    description="Decides every action on every resource; the result is true if all of"
    " them are allowed. A disabled user is allowed nothing. Nothing is"
    " recorded.",
)
def post_v1_policies_evaluate(context: AuthRequestContext[None, EvaluationBody]) -> Response:
    """Say what a principal may do, and why."""
    body = context.body
    principal = Principal(body.principal, frozenset(body.groups))
    decisions = context.services.decisions
    evaluation, version = decisions.evaluate(principal, body.action, body.resource, body.context)
    # After the version: a grant revoked in between changes the version.
    is_active = None if body.grant is None else context.services.grants.is_active(body.grant)
    answer = {
        "result": evaluation.allowed,
        "reason": evaluation.reason,
        "evaluation_results": [_format_decision(one) for one in evaluation.results],
        "grant_stands": is_active,
        "policy_version": version,
    }
    return json_response(answer, headers={"Cache-Control": "no-store"})


def _format_decision(result: ResourceDecision) -> dict[str, Any]:
    return {
        "action": result.action,
        "resource": result.resource,
        "result": result.decision.allowed,
        "reason": result.decision.reason,
        "source": result.decision.source,
        "statement": result.decision.statement,
        "depends_on": sorted(result.depends_on),
        "anywhere": result.anywhere,
    }


@operation(
    "GET",
    "/v1/policies/version",
    tag=TAG,
    responses={200: ResponseDoc("The version of policies.", PolicyVersion)},
    description="Cache decisions for one version only. The version changes with every"
    " change of a user, group, role or setting that decides, and with every"
    " login that ends early; it never recurs.",
    counted=False,
)
def get_v1_policies_version(context: AuthRequestContext[None, None]) -> Response:
    """Which policies are in force."""
    return json_response(
        PolicyVersion().dump({"policy_version": context.services.decisions.version()})
    )


class EffectiveRole(ResponseSchema):
    """A role, and where it comes from."""

    name = TextField(required=True, metadata={"example": "store_ingest"})
    groups = fields.List(
        TextField(),
        required=True,
        metadata={
            "description": "The groups that give it; an empty name stands for the user.",
            "example": ["wranglers"],
        },
    )


class OperationExtent(ResponseSchema):
    """An operation, and how far one may use it."""

    operation = TextField(required=True, metadata={"example": "put_bundle"})
    action = TextField(required=True, metadata={"example": "store:PutBundle"})
    extent = TextField(
        required=True,
        validate=validate.OneOf(get_args(Extent)),
        metadata={
            "description": "`open`: without a token. `partly`: on some resources, or under"
            " conditions.",
            "example": "everywhere",
        },
    )


class OwnPermissions(ResponseSchema):
    """Who one is, and what one may do."""

    email = TextField(required=True, metadata={"example": "curator@example.org"})
    groups = fields.List(TextField(), required=True, metadata={"example": ["wranglers"]})
    roles = fields.List(fields.Nested(EffectiveRole), required=True)
    permissions = fields.List(fields.Nested(OperationExtent), required=True)


@operation(
    "GET",
    "/v1/account",
    tag=TAG,
    responses={200: ResponseDoc("Roles and permissions.", OwnPermissions)},
    description="The caller's roles, and how far each operation of the store and of this service"
    " is allowed. `post_v1_policies_evaluate` says why.",
)
def get_v1_account(context: AuthRequestContext[None, None]) -> Response:
    """Read your own roles and permissions."""
    services, caller = context.services, context.caller
    found = services.decisions.find_permissions(caller)
    roles = list_role_sources(context.catalog, caller, services.decisions.rights)
    answer = {
        "email": caller.email,
        "groups": sorted(found.groups),
        "roles": [{"name": role, "groups": list(groups)} for role, groups in roles.items()],
        "permissions": [
            {"operation": one.operation, "action": one.action, "extent": one.extent}
            for one in list_permissions(
                found, services.settings.deployment, services.open_operations
            )
        ],
    }
    return json_response(OwnPermissions().dump(answer), headers={"Cache-Control": "no-store"})
