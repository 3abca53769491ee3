"""The policy grammar: valid and invalid documents."""

from typing import Any

import pytest

from auth.policies.grammar import parse_policy
from storage.errors import Invalid
from tests.auth.policies.builders import document, faults, statement

pytestmark = pytest.mark.spec("POL-01")

EVERYTHING = {
    "Version": "2012-10-17",
    "Id": "readers of lab 7",
    "Statement": [
        {
            "Sid": "Read",
            "Effect": "Allow",
            "Action": ["store:Get*", "store:HeadFile"],
            "Resource": "arn:store:local:*:bundles/*",
            "Condition": {
                "StringLike": {"store:user_email": ["*@example.org", "${store:user_email}"]},
                "ForAnyValue:StringEqualsIfExists": {"store:groups": "lab-7"},
                "NumericLessThan": {"store:Size": 10},
                "DateGreaterThan": {"store:CurrentTime": "2026-01-01T00:00:00Z"},
                "Bool": {"store:SecureTransport": True},
                "IpAddress": {"store:SourceIp": ["192.0.2.0/24", "2001:db8::/32"]},
                "ArnLike": {"store:Arn": "arn:store:local:*:files/*"},
                "Null": {"store:roles": "false"},
            },
        },
        {"Sid": "", "Effect": "Deny", "NotAction": "*", "NotResource": ["arn:store:*"]},
    ],
}


def test_accepts_whole_grammar() -> None:
    assert faults(EVERYTHING) == {}


@pytest.mark.parametrize(
    "given",
    [
        {"Statement": statement()},
        {"Statement": [statement()], "Version": "2008-10-17"},
        document(statement(Resource="fake:resource")),
        document(statement(Action="STORE:PUTBUNDLE")),
        document(statement(Condition={})),
        document(statement(Resource="${store:user_email}")),
        document(statement(Resource="*${store:roles, 'nobody'}")),
        document(statement(Sid="A"), statement(Sid="B"), statement(), statement()),
    ],
)
def test_optional_elements_may_be_absent(given: object) -> None:
    assert faults(given) == {}


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        (None, ""),
        ([], ""),
        ("{}", ""),
        ({}, "/Statement"),
        (document(), "/Statement"),
        ({"Statement": None}, "/Statement"),
        ({"Statement": "x"}, "/Statement"),
        (document(None), "/Statement/0"),
        (document(statement(), 7), "/Statement/1"),
        (document(statement(), Version="2012-10-18"), "/Version"),
        (document(statement(), Version=[]), "/Version"),
        (document(statement(), Id=""), "/Id"),
        (document(statement(), Id="x" * 513), "/Id"),
        (document(statement(), Extra=1), "/Extra"),
        (document(statement(), **{"a/b~c": 1}), "/a~1b~0c"),
        (document(statement(Extra=1)), "/Statement/0/Extra"),
        ({"Statement": statement(Effect="Maybe")}, "/Statement/Effect"),
        (document(statement(Effect=None)), "/Statement/0/Effect"),
        (document(statement(Effect="allow")), "/Statement/0/Effect"),
        (document(statement(Effect=["Allow"])), "/Statement/0/Effect"),
        (document(statement(Sid="no spaces")), "/Statement/0/Sid"),
        (document(statement(Sid="x" * 129)), "/Statement/0/Sid"),
        (document(statement(Sid=1)), "/Statement/0/Sid"),
        (document(statement(Sid="A"), statement(Sid="A")), "/Statement/1/Sid"),
        (document(statement(Principal="*")), "/Statement/0/Principal"),
        (document(statement(NotPrincipal={"AWS": "*"})), "/Statement/0/NotPrincipal"),
        (document({**statement(), "Principal": None}), "/Statement/0/Principal"),
        (document(statement(), Principal="*"), "/Principal"),
        (document(statement(Action=None)), "/Statement/0/Action"),
        (document({**statement(), "NotAction": "*"}), "/Statement/0/Action"),
        (document({**statement(), "NotResource": "*"}), "/Statement/0/Resource"),
        (document(statement(Resource=None)), "/Statement/0/Resource"),
        (document(statement(Action=[])), "/Statement/0/Action"),
        (document(statement(Resource=[])), "/Statement/0/Resource"),
        (document(statement(Action="*:")), "/Statement/0/Action"),
        (document(statement(Action="PutBundle")), "/Statement/0/Action"),
        (document(statement(Action="*:Put*")), "/Statement/0/Action"),
        (document(statement(Action="*:*")), "/Statement/0/Action"),
        (document(statement(Action=["*", "s?ore:PutBundle"])), "/Statement/0/Action/1"),
        (document(statement(NotAction="st*:PutBundle")), "/Statement/0/NotAction"),
        (document(statement(Action="store:Put Bundle")), "/Statement/0/Action"),
        (document(statement(Action="store:${store:user_email}")), "/Statement/0/Action"),
        (document(statement(Action="store:\N{KELVIN SIGN}")), "/Statement/0/Action"),
        (document(statement(Action=["*", 3])), "/Statement/0/Action/1"),
        (document(statement(NotAction=["*", ""])), "/Statement/0/NotAction/1"),
        (document(statement(Action="store:" + "*" * 21)), "/Statement/0/Action"),
        (document(statement(Resource="bundles/*")), "/Statement/0/Resource"),
        (document(statement(Resource="")), "/Statement/0/Resource"),
        (document(statement(Resource="arn:store:\n")), "/Statement/0/Resource"),
        (document(statement(Resource=["*", {"a": 1}])), "/Statement/0/Resource/1"),
        (document(statement(Resource="arn:${aws:username}")), "/Statement/0/Resource"),
        (document(statement(Resource="arn:${store:user_email")), "/Statement/0/Resource"),
        (document(statement(Resource="*" * 21)), "/Statement/0/Resource"),
        (
            document(statement(Resource="arn:${store:groups}:${store:roles}")),
            "/Statement/0/Resource",
        ),
        (
            document(statement(Resource="arn:${store:user_email}"), Version="2008-10-17"),
            "/Statement/0/Resource",
        ),
        (document(statement(Resource=["*"] * 201)), "/Statement/0/Resource"),
        (document(*[statement()] * 101), "/Statement"),
    ],
)
def test_reports_errors_with_position(given: object, pointer: str) -> None:
    assert list(faults(given)) == [pointer]


@pytest.mark.parametrize(
    ("condition", "pointer"),
    [
        ("x", ""),
        ({"StringSame": {"store:a": "b"}}, "/StringSame"),
        ({"stringequals": {"store:a": "b"}}, "/stringequals"),
        ({"NullIfExists": {"store:a": True}}, "/NullIfExists"),
        ({"ForAnyValue:Null": {"store:a": True}}, "/ForAnyValue:Null"),
        ({"ForSomeValues:StringLike": {"store:a": "b"}}, "/ForSomeValues:StringLike"),
        ({"BinaryEquals": {"store:a": "b"}}, "/BinaryEquals"),
        ({"StringEquals": []}, "/StringEquals"),
        ({"StringEquals": {"a": "b"}}, "/StringEquals/a"),
        ({"StringEquals": {"store:a": []}}, "/StringEquals/store:a"),
        ({"StringEquals": {"store:a": None}}, "/StringEquals/store:a"),
        ({"StringEquals": {"store:a": ["b", {}]}}, "/StringEquals/store:a/1"),
        ({"StringEquals": {"store:a/b": ["b", "${x}"]}}, "/StringEquals/store:a~1b/1"),
        ({"StringLike": {"store:a": "*" * 21}}, "/StringLike/store:a"),
        ({"NumericEquals": {"store:a": "ten"}}, "/NumericEquals/store:a"),
        ({"NumericEquals": {"store:a": True}}, "/NumericEquals/store:a"),
        ({"NumericLessThan": {"store:a": "1e999"}}, "/NumericLessThan/store:a"),
        ({"DateLessThan": {"store:a": "yesterday"}}, "/DateLessThan/store:a"),
        ({"Bool": {"store:a": "yes"}}, "/Bool/store:a"),
        ({"Null": {"store:a": 1}}, "/Null/store:a"),
        ({"IpAddress": {"store:a": "192.0.2.0/33"}}, "/IpAddress/store:a"),
        ({"NotIpAddress": {"store:a": ["::/0", "x"]}}, "/NotIpAddress/store:a/1"),
        ({"ArnLike": {"store:a": "arn:store:*"}}, "/ArnLike/store:a"),
        ({"ArnEquals": {"store:a": "bundles/*"}}, "/ArnEquals/store:a"),
    ],
)
def test_reports_condition_errors_with_position(condition: object, pointer: str) -> None:
    assert list(faults(document(statement(Condition=condition)))) == [
        f"/Statement/0/Condition{pointer}"
    ]


def test_reports_all_errors_below_given_pointer() -> None:
    given = document(
        statement(Effect="x", Action=["a", "store:ok", "b"], Principal="*"),
        statement(Condition={"Same": {}}),
        Version="1",
    )
    assert set(faults(given, "/policy")) == {
        "/policy/Version",
        "/policy/Statement/0/Effect",
        "/policy/Statement/0/Action/0",
        "/policy/Statement/0/Action/2",
        "/policy/Statement/0/Principal",
        "/policy/Statement/1/Condition/Same",
    }


def test_limits_reported_errors() -> None:
    assert len(faults(document(*[statement(Effect="x", Sid="?")] * 90))) == 50


@pytest.mark.spec("ERR-44")
def test_error_has_code_and_first_problem() -> None:
    with pytest.raises(Invalid, match="/Statement/0/Effect must be one of Allow, Deny") as raised:
        parse_policy(document(statement(Effect="x")))
    assert raised.value.code == "invalid_policy"


def test_rejects_too_large_policy_not_counting_white_space() -> None:
    fitting = document(statement(), Id="x" * 400)
    names = ["arn:" + "é" * 100 for _ in range(45)]
    assert faults(fitting | {"Statement": [statement(Resource=names)]}) == {}
    assert "10240" in faults(document(statement(Resource=[*names, *names[:10]])))[""][0]


def deep(levels: int) -> Any:
    return {"a": deep(levels - 1)} if levels else 1


@pytest.mark.parametrize(
    "given",
    [
        deep(20),
        document(statement(Condition=deep(12))),
        document(statement(Condition={"StringEquals": {"store:a": [[[[["x"]]]]]}})),
        document(statement(Resource="arn:" + "x" * 11_000)),
        document(statement(), Id="\ud800"),
        document(statement(Condition={"NumericEquals": {"store:a": float("nan")}})),
        document(statement(Condition={"NumericEquals": {"store:a": 10**5000}})),
        document(statement(Id=object())),
    ],
)
def test_rejects_deep_large_and_non_json_policies(given: object) -> None:
    assert list(faults(given)) == [""]


def test_a_bottomless_document_is_refused_without_going_down() -> None:
    bottomless: list[Any] = []
    for _ in range(100_000):
        bottomless = [bottomless]
    assert list(faults({"Statement": bottomless})) == [""]
    while bottomless:
        bottomless = bottomless.pop()


def test_a_policy_keeps_its_own_document() -> None:
    given = document(statement())
    policy = parse_policy(given)
    given["Statement"].clear()
    policy.document["Statement"].clear()
    assert policy.document == document(statement())


@pytest.mark.spec("POL-03")
def test_a_stored_document_may_keep_a_wildcard_service() -> None:
    old = document(statement("Deny", Action="*:Put*"))
    with pytest.raises(Invalid, match="wildcard in the service part"):
        parse_policy(old)
    (kept,) = parse_policy(old, stored=True).statements
    assert kept.actions[0].matches("store:putbundle")
