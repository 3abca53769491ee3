"""What somebody may do, and why: evaluating policies without doing anything."""

from typing import Any

from flask import Response

from api.authservice.schemas.policies import (
    Evaluation,
    EvaluationBody,
    EvaluationQuestion,
    PolicyVersion,
)
from api.authservice.services import Call
from api.operation import Answer, operation, reply
from auth.accounts.decisions import Judged
from storage.model import Principal

TAG = "policies"


@operation(
    "POST",
    "/v1/policies/evaluate",
    tag=TAG,
    body=EvaluationBody,
    while_read_only=True,
    answers={200: Answer("What the policies say.", Evaluation)},
    about="Every action on every resource; the result is true if all of them are allowed. A user"
    " who is disabled is allowed nothing. Nothing is recorded.",
)
def post_v1_policies_evaluate(call: Call[None, EvaluationQuestion]) -> Response:
    """Say what a principal may do, and why."""
    asked = call.body
    principal = Principal(asked.principal, frozenset(asked.groups))
    decisions = call.services.decisions
    verdict, version = decisions.evaluate(principal, asked.action, asked.resource, asked.context)
    # After the version: a login that ends in between ends under a later one.
    stands = None if asked.grant is None else call.services.grants.stands(asked.grant)
    answer = {
        "result": verdict.allowed,
        "reason": verdict.reason,
        "evaluation_results": [_shown(one) for one in verdict.results],
        "grant_stands": stands,
        "policy_version": version,
    }
    return reply(answer, headers={"Cache-Control": "no-store"})


def _shown(judged: Judged) -> dict[str, Any]:
    return {
        "action": judged.action,
        "resource": judged.resource,
        "result": judged.decision.allowed,
        "reason": judged.decision.reason,
        "source": judged.decision.source,
        "statement": judged.decision.statement,
        "depends_on": sorted(judged.depends_on),
        "anywhere": judged.anywhere,
    }


@operation(
    "GET",
    "/v1/policies/version",
    tag=TAG,
    answers={200: Answer("The version of policies.", PolicyVersion)},
    about="Whoever keeps decisions keeps them for one version. It changes with every change of a"
    " user, a group, a role or a setting that decides, and with every login that is ended before"
    " its time, and never comes back.",
    counted=False,
)
def get_v1_policies_version(call: Call[None, None]) -> Response:
    """Which policies are in force."""
    return reply(PolicyVersion().dump({"policy_version": call.services.decisions.version()}))


OPERATIONS = (post_v1_policies_evaluate, get_v1_policies_version)
