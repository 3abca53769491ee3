"""Condition keys: spelling, and which ones a decision depends on."""

import json
import re
from typing import Any

import pytest

from auth.policies.keys import (
    AWS_KEYS,
    CURRENT_TIME,
    ISSUER,
    REQUEST_KEYS,
    SOURCE_IP,
    normalize_key,
)
from auth.policies.patterns import Value
from ops.procfile import ROOT
from tests.auth.policies.builders import compiled, decide, document, statement

pytestmark = pytest.mark.spec("POL-08")

DO, ON = "store:Do", "arn:store:local:aws:files/1"


def at(key: str, wanted: str = "192.0.2.0/24", operator: str = "IpAddress", **more: Any) -> Any:
    return statement(Condition={operator: {key: wanted}}, **more)


def asks(*statements: Any, resource: str = ON) -> frozenset[str]:
    return compiled(document(*statements)).context_keys(DO, resource)


@pytest.mark.parametrize("written", ["store:SourceIp", "STORE:sourceip", "aws:SourceIp"])
@pytest.mark.parametrize("told", ["store:SourceIp", "Aws:SOURCEIP", "store:sourceIP"])
def test_every_spelling_of_a_key_is_that_key(written: str, told: str) -> None:
    assert decide(at(written), context={told: "192.0.2.7"}).allowed
    assert not decide(at(written), context={told: "198.51.100.7"}).allowed


def test_only_keys_with_iam_meaning_have_aws_spelling() -> None:
    assert set(AWS_KEYS) < set(REQUEST_KEYS)
    assert normalize_key("aws:Issuer") != normalize_key(ISSUER)
    assert normalize_key("aws:user_email") == "aws:user_email"
    assert not decide(at("aws:groups", "readers", "StringEquals")).allowed


def test_decision_depends_on_keys_of_earlier_statements() -> None:
    assert asks(statement()) == frozenset()
    assert asks(at(SOURCE_IP)) == {"store:sourceip"}
    late = at(CURRENT_TIME, "2030-01-01", "DateGreaterThan", Effect="Deny")
    assert asks(at("aws:SourceIp"), late) == {"store:sourceip", "store:currenttime"}
    # A statement without condition decides; what comes after it is not looked at.
    assert asks(at(SOURCE_IP), statement(Effect="Deny")) == frozenset()
    assert asks(statement(), at(SOURCE_IP)) == frozenset()
    assert asks(statement(), late) == {"store:currenttime"}


def test_a_decision_depends_on_no_statement_about_something_else() -> None:
    other = at(SOURCE_IP, Resource="arn:store:local:gcp:*")
    assert asks(other, at(CURRENT_TIME, "2030-01-01", "DateLessThan", Action="store:Other")) == (
        frozenset()
    )
    assert asks(other, resource="arn:store:local:gcp:files/1") == {"store:sourceip"}


def test_principal_keys_are_not_context_keys() -> None:
    both = {"StringEquals": {"store:user_email": "ada@example.org", "store:UserAgent": "curl"}}
    assert asks(statement(Condition=both)) == {"store:useragent"}


def test_policy_of_authorization_page_works_as_documented() -> None:
    page = (ROOT / "docs/authorization.md").read_text(encoding="utf-8")
    written = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    (printed,) = (one for one in written if "SourceIp" in json.dumps(one))
    asked = compiled(printed, document(statement()))
    inside: dict[str, Value] = {
        "store:SourceIp": "192.0.2.7",
        "store:TokenIssueTime": "2026-05-01T12:00:00Z",
    }
    old: dict[str, Value] = {**inside, "store:TokenIssueTime": "2026-05-01T11:59:59Z"}
    outside: dict[str, Value] = {**inside, "store:SourceIp": "198.51.100.7"}
    for action, context, expected in (
        ("store:PutFile", inside, True),
        ("store:PutFile", outside, False),
        ("store:GetFile", outside, True),
        ("store:GetFile", old, False),
    ):
        assert asked.decide(action, ON, context).allowed is expected
