"""Deciding by 10 policies of 30 statements each, beside casbin, Cedar and moto's evaluator.

Run as `python -m bench.policies [requests] [rounds]`.
"""

import fnmatch
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import casbin
import cedarpy
from moto.iam.access_control import IAMPolicy, PermissionResult

from auth.policies.evaluator import AttachedPolicy, CompiledPolicies
from auth.policies.grammar import parse_policy
from auth.policies.patterns import compile_glob, parse_pattern

POLICIES, STATEMENTS = 10, 30
VERBS = ("Get", "Put", "Patch", "Delete", "Head")
NOUNS = ("Bundle", "File", "Collection", "Subscription", "Area", "Task", "Checkout", "Events")
KINDS = ("bundles", "files", "collections", "subscriptions", "areas")

Asked = Sequence[tuple[str, str]]
Policies = Sequence[dict[str, Any]]

MODEL = """
[request_definition]
r = act, obj
[policy_definition]
p = act, obj, eft
[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))
[matchers]
m = like(r.act, p.act) && like(r.obj, p.obj)
"""


def main(requests: int = 4_000, rounds: int = 5) -> None:
    """Print how many decisions a second each makes, once all have decided alike."""
    rng = Random(1)
    print(
        f"decisions a second, one process; best of {rounds} rounds of {requests:,}"
        " by processor time"
    )
    print(f"{'statements speak of':>30}{'ours':>10}{'set up ms':>11}", end="")
    print(f"{'Cedar':>9}{'ours is':>9}{'moto':>8}{'ours is':>9}{'casbin':>8}{'ours is':>9}")
    for about, statement in (
        ("some actions each", _statement),
        ("all actions each", _statement_of_all),
        ("some actions, whole prefixes", _statement_of_prefixes),
    ):
        policies = [_policy(rng, statement) for _ in range(POLICIES)]
        _bench(about, policies, [_request(rng, policies) for _ in range(requests)], rounds)
    _bench_pattern(10 * rounds)


def _bench(about: str, policies: Policies, asked: Asked, rounds: int) -> None:
    holdings = [AttachedPolicy(f"role {n}", parse_policy(each)) for n, each in enumerate(policies)]
    compiled, set_up = _timed(lambda: CompiledPolicies(holdings, {}))
    ours = [compiled.decide(*each).allowed for each in asked]
    took = min(_timed(lambda: [compiled.decide(*each) for each in asked])[1] for _ in range(rounds))
    print(f"{about:>30}{len(asked) / took:>10,.0f}{set_up * 1000:>11.0f}", end="", flush=True)
    for other, few in ((_cedar, 1000), (_moto, 200), (_casbin, 100)):
        few = min(few, len(asked))
        decided, theirs = other(policies, asked[:few])
        assert decided == ours[:few]
        width = 9 if other is _cedar else 8
        print(f"{few / theirs:>{width},.0f}{theirs / few / (took / len(asked)):>8,.0f}×", end="")
    print(f"   ({sum(ours) / len(ours):.0%} allowed)")


def _bench_pattern(rounds: int) -> None:
    """The worst that a policy may hold: what repeats itself nearly matches everywhere."""
    for about, run, text in (
        ("on 4,000 times `a`", "aaaaaaaaaaaaaaab", "a" * 4_000),
        ("and six `?` in each run", "a?a?a?a?a?a?aaab", "a" * 4_000),
        ("and six `?`, where it matches", "a?a?a?a?a?a?aaab", ("a" * 332 + "b") * 12),
    ):
        pattern = "*".join(["", *[run] * 11, ""])
        ready = compile_glob(parse_pattern(pattern, wild=True, variables=True).plain)
        took = min(_timed(partial(ready.matches, text))[1] for _ in range(rounds))
        print(f"one pattern of twelve `*` {about}: {took * 1e6:,.0f} µs")


def _cedar(policies: Policies, asked: Asked) -> tuple[list[bool], float]:
    """In batches, with policies parsed before; a decision alone takes it longer."""
    ready = cedarpy.PolicySet.from_str("\n".join(map(_as_cedar, _statements(policies))))
    entities = cedarpy.Entities.from_json_str("[]")
    requests = [
        {
            "principal": 'User::"a"',
            "action": 'Action::"any"',
            "resource": 'Any::"any"',
            "context": json.dumps({"action": action, "resource": resource}),
        }
        for action, resource in asked
    ]
    answers, took = _timed(lambda: cedarpy.is_authorized_batch(requests, ready, entities))
    return [answer.allowed for answer in answers], took


def _as_cedar(statement: dict[str, Any]) -> str:
    effect = "permit" if statement["Effect"] == "Allow" else "forbid"
    actions = " || ".join(f'context.action like "{each}"' for each in statement["Action"])
    resources = " || ".join(f'context.resource like "{each}"' for each in statement["Resource"])
    return f"{effect}(principal, action, resource) when {{ ({actions}) && ({resources}) }};"


def _moto(policies: Policies, asked: Asked) -> tuple[list[bool], float]:
    ready = [IAMPolicy({"policy_document": json.dumps(each)}) for each in policies]
    return _timed(lambda: [_by_moto(ready, *each) for each in asked])


def _by_moto(policies: Sequence[IAMPolicy], action: str, resource: str) -> bool:
    found = {each.is_action_permitted(action, resource) for each in policies}
    return PermissionResult.PERMITTED in found and PermissionResult.DENIED not in found


def _casbin(policies: Policies, asked: Asked) -> tuple[list[bool], float]:
    model = casbin.Model()
    model.load_model_from_text(MODEL)
    enforcer = casbin.Enforcer(model)
    known: dict[str, re.Pattern[str]] = {}

    def like(text: str, pattern: str) -> bool:
        ready = known.get(pattern)
        if ready is None:
            ready = known[pattern] = re.compile(fnmatch.translate(pattern))
        return ready.match(text) is not None

    enforcer.add_function("like", like)
    for each in _statements(policies):
        effect = each["Effect"].lower()
        for action in each["Action"]:
            for resource in each["Resource"]:
                enforcer.add_policy(action, resource, effect)
    return _timed(lambda: [enforcer.enforce(*each) for each in asked])


def _statements(policies: Policies) -> list[dict[str, Any]]:
    return [statement for policy in policies for statement in policy["Statement"]]


def _policy(rng: Random, statement: Callable[[Random], dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [statement(rng) for _ in range(STATEMENTS)]}


def _statement(rng: Random) -> dict[str, Any]:
    return {
        "Effect": "Deny" if rng.random() < 0.1 else "Allow",
        "Action": [_action(rng) for _ in range(rng.randint(1, 4))],
        "Resource": [_resource(rng) for _ in range(rng.randint(1, 3))],
    }


def _statement_of_all(rng: Random) -> dict[str, Any]:
    return _statement(rng) | {"Action": ["store:*"]}


def _statement_of_prefixes(rng: Random) -> dict[str, Any]:
    return _statement(rng) | {
        "Resource": [f"arn:store:local:aws:{rng.choice(KINDS)}/{rng.getrandbits(8):02x}*"]
    }


def _action(rng: Random) -> str:
    verb, noun = rng.choice(VERBS), rng.choice(NOUNS)
    return rng.choice([f"store:{verb}{noun}"] * 4 + [f"store:{verb}*", f"store:*{noun}"])


def _resource(rng: Random) -> str:
    kind, start = rng.choice(KINDS), f"{rng.getrandbits(16):04x}"
    return rng.choice(
        [
            f"arn:store:local:*:{kind}/{start}*",
            f"arn:store:local:aws:{kind}/{start}*",
            f"arn:store:local:*:{kind}/{start}{rng.getrandbits(112):028x}.2026*Z",
            f"arn:store:local:gcp:{kind}/{start}{rng.getrandbits(112):028x}",
        ]
    )


def _request(rng: Random, policies: Policies) -> tuple[str, str]:
    """Half of them on what some statement speaks of."""
    action = f"store:{rng.choice(VERBS)}{rng.choice(NOUNS)}"
    if rng.random() < 0.5:
        named = rng.choice(rng.choice(rng.choice(policies)["Statement"])["Resource"])
        return action, named.replace(":*:", ":aws:").replace("*", f"{rng.getrandbits(64):x}")
    return action, f"arn:store:local:aws:{rng.choice(KINDS)}/{rng.getrandbits(128):032x}.2026Z"


def _timed(act: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    found = act()
    return found, time.process_time() - began


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
