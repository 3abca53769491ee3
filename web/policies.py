"""Policies: an editor that validates, and why a user may or may not do something."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Annotated, Any

from flask import Response

from api.http.auth import format_condition_time
from api.schemas.fields import NoParameters, TextField, max_length, one_of, optional_text
from auth import accounts
from auth.account_operations import ACCOUNT_ACTIONS
from auth.accounts import MAX_EVALUATED_LENGTH, NewAccount
from auth.authorization import RESOURCES, action_name
from auth.builtin_roles import load_policy
from auth.decisions import ResourceDecision
from auth.permissions import find_allowing_roles, list_role_sources
from auth.policies import keys
from auth.policies.grammar import AccessPolicy, parse_policy
from auth.policies.patterns import Value
from storage.catalog.accounts import AccountKey, AccountKind
from storage.errors import ConflictError, Forbidden, Invalid
from storage.model import Principal, normalize_identity
from web.account import audit_context, group_permissions, require_accounts
from web.administration import (
    NewAccountBody,
    bind_kind,
    format_policy,
    parse_new_id,
    path_account,
    render_admin,
)
from web.pages import FormErrors, PageContext, page

Context = PageContext[Any]
MAX_POLICY_TEXT = 40_000
"""Characters of a form; a policy as compact JSON is bounded by the parser."""
SKELETON = """\
{{
  "Version": "2012-10-17",
  "Statement": [
    {{
      "Sid": "Writes",
      "Effect": "Allow",
      "Action": ["store:PutBundle", "store:PutFile"],
      "Resource": ["arn:store:{deployment}:*"]
    }}
  ]
}}
"""
VALID = "This policy is valid. It is not saved yet."


@dataclass(frozen=True)
class PolicyForm:
    """A policy as JSON, and whether to check or to save it."""

    policy: Annotated[str, optional_text(MAX_POLICY_TEXT)]
    action: Annotated[str, TextField(load_default="save", validate=one_of("check", "save"))]
    base: Annotated[str | None, optional_text(64, None)]
    """The mark of the policy that the editor began with."""


def parse_policy_text(text: str) -> AccessPolicy:
    """Parse a policy that a person typed; FormErrors with a line, or a JSON pointer, each."""
    try:
        return parse_policy(json.loads(text))
    except json.JSONDecodeError as error:
        message = f"Line {error.lineno}, column {error.colno}: {error.msg}."
    except (ValueError, RecursionError):
        message = "This is not JSON that can be read."
    except Invalid as error:
        found = {where or "the policy": told for where, told in error.errors.items()}
        told = [f"{where} {text}" for where, texts in found.items() for text in texts]
        raise FormErrors(error.detail, errors={"policy": told}) from error
    raise FormErrors("This is not JSON.", errors={"policy": [message]})


def _describe_check(policy: AccessPolicy | None) -> str:
    """Say that a policy is valid, and which statements name no operation (often typing errors)."""
    known = [name.lower() for name in _list_actions()]
    idle = [
        one.name
        for one in (policy.statements if policy else ())
        if not any(action.matches(name) for action in one.actions for name in known)
    ]
    return VALID + (f" No operation has an action of: {', '.join(idle)}." if idle else "")


def _edit_policy(kind: AccountKind, context: Context) -> Response:
    """Show the editor of an account's policy."""
    auth, name = require_accounts(context), path_account(kind, context)
    account = accounts.find_account(auth.catalog, name)
    if account.built_in:
        raise Forbidden(f"The {kind} {name.id} is built in: its policy cannot be changed.")
    policy = load_policy(name, account.policy, auth.settings.deployment)
    text = format_policy(policy) if policy else SKELETON.format(deployment=auth.settings.deployment)
    return _render_editor(context, name, text, base=accounts.policy_mark(account.policy))


def _save_policy(kind: AccountKind, context: Context) -> Response:
    """Check or save the policy of an account; an empty text removes it, but not from a role."""
    name, form = path_account(kind, context), context.load_form(PolicyForm)
    try:
        policy = None if not form.policy.strip() else parse_policy_text(form.policy)
        if policy is None and kind == "role":
            raise FormErrors("A role has a policy.", errors={"policy": ["Required of a role."]})
    except FormErrors as error:
        return _render_editor(context, name, form.policy, base=form.base, errors=error.errors)
    if form.action == "check":
        return _render_editor(
            context, name, form.policy, base=form.base, checked=_describe_check(policy)
        )
    by = audit_context(context, f"put_v1_{kind}_policy")
    catalog = require_accounts(context).catalog
    changed = accounts.set_account_policy(catalog, name, policy, by, base=form.base)
    return context.redirect(
        f"/admin/{kind}s/{name.id}", "The policy is saved." if changed else "Nothing changed."
    )


def _render_editor(
    context: Context,
    name: AccountKey,
    text: str,
    *,
    base: str | None,
    errors: Mapping[str, list[str]] | None = None,
    checked: str = "",
) -> Response:
    return render_admin(
        context,
        "admin_policy.html",
        f"Policy of the {name.kind} {name.id}",
        status=400 if errors else 200,
        text=text,
        base=base,
        back=f"/admin/{name.kind}s/{name.id}",
        action=f"/admin/{name.kind}s/{name.id}/policy",
        may_be_empty=name.kind != "role",
        new_role=False,
        form={},
        errors=errors or {},
        checked=checked,
    )


for _kind in ("user", "group", "role"):
    _path, _access = f"/admin/{_kind}s/<{_kind}_id>/policy", f"put_v1_{_kind}_policy"
    page("GET", _path, access=_access)(bind_kind(_edit_policy, _kind, f"edit_{_kind}_policy"))
    page("POST", _path, access=_access)(bind_kind(_save_policy, _kind, f"save_{_kind}_policy"))


@dataclass(frozen=True)
class NewRoleForm(PolicyForm):
    """A new role: its id and policy."""

    id: Annotated[str, TextField(required=True, validate=max_length(128))]


@page("GET", "/admin/new-role", access="get_v1_roles")
def show_new_role(context: PageContext[NoParameters]) -> Response:
    """Show the form of a new role."""
    deployment = require_accounts(context).settings.deployment
    return _render_new_role(context, SKELETON.format(deployment=deployment))


@page("POST", "/admin/new-role", access="get_v1_roles")
def create_role(context: PageContext[NoParameters]) -> Response:
    """Check or create a role."""
    text = context.request.form.get("policy", "")
    try:
        form = context.load_form(NewRoleForm)
        role_id, policy = parse_new_id("role", form.id), parse_policy_text(form.policy)
        if form.action == "check":
            return _render_new_role(context, text, checked=_describe_check(policy))
        allowed = context.authorize(
            "post_v1_role", path={"role_id": role_id}, body=NewAccountBody()
        )
        new, by = NewAccount(AccountKey("role", role_id), policy), "post_v1_role"
        catalog = require_accounts(allowed).catalog
        accounts.create_account(catalog, new, audit_context(context, by))
    except (FormErrors, ConflictError) as error:
        return _render_new_role(context, text, errors=error.errors or {"id": [error.detail]})
    return context.redirect(f"/admin/roles/{role_id}", f"The role {role_id} is created.")


def _render_new_role(
    context: Context,
    text: str,
    *,
    errors: Mapping[str, list[str]] | None = None,
    checked: str = "",
) -> Response:
    return render_admin(
        context,
        "admin_policy.html",
        "Create a role",
        status=400 if errors else 200,
        text=text,
        back="/admin/roles",
        action="/admin/new-role",
        may_be_empty=False,
        new_role=True,
        form=context.request.form,
        errors=errors or {},
        checked=checked,
    )


@dataclass(frozen=True)
class EvaluationParameters:
    """A user, an action and a resource to evaluate, and what is assumed of the request."""

    who: Annotated[str, optional_text(254)]
    action: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]
    resource: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]
    groups: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]
    """Groups that the user's token claims."""
    source_ip: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]
    secure: Annotated[str, TextField(load_default="", validate=one_of("", "yes", "no"))]
    time: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]
    token_time: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]
    user_agent: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]
    issuer: Annotated[str, optional_text(MAX_EVALUATED_LENGTH)]


@dataclass(frozen=True)
class Circumstances:
    """What an evaluation assumes of a request: values of condition keys, and claimed groups."""

    groups: frozenset[str]
    values: Mapping[str, Value]


def parse_circumstances(query: EvaluationParameters) -> Circumstances:
    """Parse what is assumed of a request; FormErrors."""
    errors: dict[str, list[str]] = {}
    time = _parse_moment("time", query.time, errors)
    token_time = _parse_moment("token_time", query.token_time, errors)
    values: dict[str, Value | None] = {
        keys.SOURCE_IP: _parse_address("source_ip", query.source_ip, errors),
        keys.SECURE_TRANSPORT: {"yes": True, "no": False}.get(query.secure),
        keys.CURRENT_TIME: None if time is None else format_condition_time(time),
        keys.EPOCH_TIME: None if time is None else int(time),
        keys.TOKEN_ISSUE_TIME: None if token_time is None else format_condition_time(token_time),
        keys.USER_AGENT: query.user_agent.strip() or None,
        keys.ISSUER: query.issuer.strip() or None,
    }
    if errors:
        raise FormErrors("Some fields need a change.", errors=errors)
    given = {key: value for key, value in values.items() if value is not None}
    return Circumstances(frozenset(query.groups.replace(",", " ").split()), given)


def _parse_address(name: str, text: str, errors: dict[str, list[str]]) -> str | None:
    try:
        return str(ip_address(text.strip())) if text.strip() else None
    except ValueError:
        errors[name] = ["Must be an IPv4 or IPv6 address."]
        return None


def _parse_moment(name: str, text: str, errors: dict[str, list[str]]) -> float | None:
    """Parse a time in UTC as seconds since 1970; report a bad one as an error of the field."""
    if not text.strip():
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        errors[name] = ["Must be a time like 2026-01-31T23:59."]
        return None


@page("GET", "/admin/why", login=True, query=EvaluationParameters)
def explain_permission(context: PageContext[EvaluationParameters]) -> Response:
    """Say whether a user may do something, which statement decides, and which role would do."""
    query = context.query
    who = normalize_identity(query.who.strip())
    operation, path = "post_v1_policies_evaluate", {"principal": who or "*"}
    context = context.authorize(operation, path=path, query=None)
    auth = require_accounts(context)
    values: dict[str, Any] = {"errors": {}}
    try:
        assumed = parse_circumstances(query)
    except FormErrors as error:
        assumed, values = Circumstances(frozenset(), {}), {"errors": error.errors}
    if who and not values["errors"]:
        principal = Principal(who, assumed.groups)
        found = auth.decisions.find_permissions(principal)
        roles = list_role_sources(auth.catalog, principal, auth.settings)
        values |= {"enabled": found.enabled, "groups": found.groups, "roles": roles}
        if query.action:
            values |= _explain_action(
                context, principal, query.action, query.resource, assumed.values
            )
        else:
            values["subjects"] = group_permissions(context, principal)
    return render_admin(
        context,
        "admin_why.html",
        "Why may someone do this, or not?",
        status=400 if values["errors"] else 200,
        who=who,
        action=query.action.strip(),
        resource=query.resource.strip(),
        given=query,
        actions=_list_actions(),
        deployment=auth.settings.deployment,
        **values,
    )


def _explain_action(
    context: Context,
    principal: Principal,
    action: str,
    resource: str,
    assumed: Mapping[str, Value],
) -> dict[str, Any]:
    """Evaluate one action, by default on all that it is about."""
    auth, action = require_accounts(context), action.strip()
    resource = resource.strip() or default_resource(action, auth.settings.deployment)
    decision, _ = auth.decisions.evaluate(principal, [action], [resource], assumed)
    (result,) = decision.results
    allowing = []
    if decision.reason == "implicit_deny" and context.may("get_v1_roles", query=None):
        allowing = find_allowing_roles(
            auth.catalog, principal, action, resource, auth.settings.deployment, assumed
        )
    given = {keys.normalize_key(key) for key in assumed}
    return {
        "result": result,
        "evaluated": resource,
        "source": _find_source(result),
        "assumed": assumed,
        "unknown": sorted(SPELLED.get(key, key) for key in result.depends_on - given),
        "allowing": allowing,
    }


SPELLED = {keys.normalize_key(key): key for key in keys.REQUEST_KEYS} | {
    keys.ANY_KEY: "further values of the request"
}
"""Condition keys as people write them, by the spelling of the evaluation."""


def _find_source(result: ResourceDecision) -> AccountKey | None:
    """Return the account whose policy decided: `group g, role r` is the role's."""
    kind, _, account_id = (result.decision.source or "").rpartition(", ")[2].partition(" ")
    return AccountKey(kind, account_id) if kind in ("user", "group", "role") else None  # type: ignore[arg-type]


def default_resource(action: str, deployment: str) -> str:
    """Return the ARN of everything that an action is about."""
    for operation, resource in RESOURCES.items():
        if action_name(operation).lower() == action.lower():
            return f"arn:store:{deployment}:*:{resource.partition('/')[0]}/*"
    for each in ACCOUNT_ACTIONS.values():
        if each.name.lower() == action.lower():
            return f"arn:auth:{deployment}:*:{each.resources[0].partition('/')[0]}/*"
    return f"arn:store:{deployment}:*:*"


def _list_actions() -> list[str]:
    store = {action_name(operation) for operation in RESOURCES}
    return [*sorted(store), *sorted({each.name for each in ACCOUNT_ACTIONS.values()})]
