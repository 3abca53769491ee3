"""Evaluate policies for a principal, and show the version of policies."""

from typing import Any

from flask import Response

from api.authz.context import AuthRequestContext
from api.authz.schemas.policies import Evaluation, EvaluationBody, EvaluationRequest, PolicyVersion
from api.http.operation import ResponseDoc, json_response, operation
from auth.decisions import ResourceDecision
from storage.model import Principal

TAG = "policies"


@operation(
    "POST",
    "/v1/policies/evaluate",
    tag=TAG,
    body=EvaluationBody,
    while_read_only=True,
    responses={200: ResponseDoc("What the policies say.", Evaluation)},
    description="Every action on every resource; the result is true if all of them are allowed. A"
    " user who is disabled is allowed nothing. Nothing is recorded.",
)
def post_v1_policies_evaluate(context: AuthRequestContext[None, EvaluationRequest]) -> Response:
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
    description="Whoever keeps decisions keeps them for one version. It changes with every change"
    " of a user, a group, a role or a setting that decides, and with every login that is ended"
    " before its time, and never comes back.",
    counted=False,
)
def get_v1_policies_version(context: AuthRequestContext[None, None]) -> Response:
    """Which policies are in force."""
    return json_response(
        PolicyVersion().dump({"policy_version": context.services.decisions.version()})
    )
