"""Hypothesis strategies of policies, principals and requests."""

from typing import Any

from hypothesis import strategies as st

from auth.policies.patterns import Value

ACTIONS = ("store:GetBundle", "store:PutBundle", "store:PutFile", "auth:PutUser")
RESOURCES = (
    "arn:store:local:aws:bundles/abcdefgh.1",
    "arn:store:local:gcp:bundles/abcdefgh.2",
    "arn:store:local:aws:files/hgfedcba.1",
    "arn:auth:local:*:user/ada@example.org",
    "arn:auth:local:*:group/a*b",
    "arn:auth:local:*:group/axb",
    "arn:auth:local:*:group/lab",
    "arn:auth:local:*:group/a:b:axb",
)
GROUPS = ("lab", "a*b", "axb", "?", "${*}", ":b:axb")

action_patterns = st.sampled_from(
    [*ACTIONS, "*", "store:*", "STORE:put*", "store:Put?ile", "auth:*user", "store:?etBundle"]
)
resource_patterns = st.sampled_from(
    [
        *RESOURCES,
        "*",
        "arn:*",
        "arn:store:*:bundles/*",
        "arn:store:local:???:bundles/abc*",
        "arn:store:*:*:*/*.1",
        "arn:auth:*:user/${store:user_email}",
        "arn:auth:*:group/${store:groups}",
        "arn:auth:*:group/a${*}b",
        "arn:auth:*:group/${store:roles, 'lab'}",
        "${store:groups}",
        "*a*b*",
        "*h?f*b?",
        "*:*:files/h*",
        "arn:store:l*l:*:bundles/*",
        "arn:store:l*s:bundles/*",
        "arn:store?local:aws:*",
        "arn:*:*b*:bundles/*?",
        "arn:a*:*:group/*",
        "arn:a*${store:groups}",
    ]
)
KEYS = ("store:groups", "store:user_email", "store:Size", "store:When", "store:Where", "store:Arn")
texts = st.sampled_from(
    ["lab", "a*b", "axb", "a?b", "*", "LAB", "${store:groups}", "${store:user_email}", "ada@*", "x"]
)
numbers = st.sampled_from([0, 1, 1.5, "1", "-2", "10", 1_700_000_000])
moments = st.sampled_from(
    ["2023-11-14T22:13:20Z", 1_700_000_000, "2024-01-01", "2023-11-14T23:13:20+01:00", "0"]
)
addresses = st.sampled_from(["192.0.2.0/24", "192.0.2.7", "2001:db8::/32", "0.0.0.0/0"])
booleans = st.sampled_from([True, False, "true", "FALSE"])
arns = st.sampled_from(
    [
        "arn:store:local:*:bundles/*",
        "arn:store:*:files/*:*",
        "*",
        "arn:store:local:aws:${store:groups}",
    ]
)


def _operators(values: st.SearchStrategy[Any], *names: str) -> st.SearchStrategy[Any]:
    prefixes = st.sampled_from(["", "", "ForAnyValue:", "ForAllValues:"])
    suffixes = st.sampled_from(["", "", "IfExists"])
    name = st.builds(lambda *parts: "".join(parts), prefixes, st.sampled_from(names), suffixes)
    wanted = st.one_of(values, st.lists(values, min_size=1, max_size=3))
    return st.tuples(name, st.dictionaries(st.sampled_from(KEYS), wanted, min_size=1, max_size=2))


def _orders(kind: str) -> list[str]:
    ends = ("Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals")
    return [kind + end for end in ends]


conditions = st.lists(
    st.one_of(
        _operators(
            texts,
            *("StringEquals", "StringNotEquals", "StringLike", "StringNotLike"),
            *("StringEqualsIgnoreCase", "StringNotEqualsIgnoreCase"),
        ),
        _operators(numbers, *_orders("Numeric")),
        _operators(moments, *_orders("Date")),
        _operators(addresses, "IpAddress", "NotIpAddress"),
        _operators(booleans, "Bool"),
        _operators(arns, "ArnLike", "ArnNotLike", "ArnEquals", "ArnNotEquals"),
        st.tuples(
            st.just("Null"),
            st.dictionaries(st.sampled_from(KEYS), booleans, min_size=1, max_size=2),
        ),
    ),
    max_size=2,
).map(dict)


def _lists(patterns: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.one_of(patterns, st.lists(patterns, min_size=1, max_size=3))


def _named(name: str, patterns: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from([name, name, name, f"Not{name}"])
    return st.tuples(names, _lists(patterns)).map(lambda pair: {pair[0]: pair[1]})


statements: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda effect, action, resource, condition: {
        "Effect": effect,
        **action,
        **resource,
        **({"Condition": condition} if condition else {}),
    },
    st.sampled_from(["Allow", "Allow", "Deny"]),
    _named("Action", action_patterns),
    _named("Resource", resource_patterns),
    st.one_of(st.just({}), conditions),
)
documents = st.lists(statements, min_size=1, max_size=4).map(
    lambda some: {"Version": "2012-10-17", "Statement": some}
)
variables: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {},
    optional={
        "store:user_email": st.sampled_from(["ada@example.org", "*", "lab"]),
        "store:groups": st.lists(st.sampled_from(GROUPS), max_size=3).map(tuple),
        "store:roles": st.lists(st.sampled_from(GROUPS), max_size=2).map(tuple),
    },
)
contexts: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {},
    optional={
        "store:Size": st.sampled_from([0, 1, 1.5, "1", "ten", 11]),
        "store:When": st.sampled_from([1_700_000_000, "2024-06-01T00:00:00Z", "soon"]),
        "store:Where": st.sampled_from(["192.0.2.7", "2001:db8::1", "nowhere"]),
        "store:Arn": st.sampled_from([RESOURCES[0], "arn:store:a:files/x:y:z", "bundles", "arn:x"]),
        "store:groups": st.just(("admin",)),
    },
)
requests = st.tuples(st.sampled_from(ACTIONS), st.sampled_from(RESOURCES), contexts)
