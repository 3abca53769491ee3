"""The authorization service as a store sees it that is apart from it: two questions over HTTP.

What comes back is believed only if it answers exactly what was asked; everything else is no answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, get_args

import orjson

from auth.accounts.decisions import Judged, Verdict, verdict
from auth.accounts.limits import ASKED_GROUPS, CONTEXT_KEYS
from auth.apart.connections import Answer, Connections
from auth.apart.own_tokens import OwnTokens
from auth.bounding import FAILURES
from auth.policies.model import Decision, Reason, Value
from auth.tokens.verifying import TAKEN_BACK
from storage.errors import Forbidden, Unauthorized, Unavailable
from storage.model import Principal

RETRY_S = 2
LONGEST_RETRY_S = 60
MAX_VERSION = 128
MAX_TEXT = 4_096
"""Characters of what an answer says of whose policy decided."""
MAX_KEY = 256
"""Characters of a key of the context."""
MOST = 32 * 1024
"""Bytes of an answer, and of each decision in it."""
REASONS = frozenset(get_args(Reason))
T = TypeVar("T")


class Service(Protocol):
    """Decides elsewhere."""

    def version(self) -> str:
        """The version of policies that is in force; Unavailable when nobody can tell."""

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[Verdict, str]:
        """Every action on every resource with what each decision depends on, and the version that
        it was decided by; Unavailable when nobody can tell, Unauthorized for a login that is over,
        Forbidden for somebody of more groups than can be judged."""


@dataclass(frozen=True)
class PolicyService:
    """The service at a base URL, asked with tokens of this store's own account."""

    url: str
    tokens: OwnTokens
    connections: Connections

    def version(self) -> str:
        """See `Service`."""
        return _read(_version, self._ask("GET", "/v1/policies/version", b"", MOST))

    def evaluate(
        self,
        principal: Principal,
        actions: Sequence[str],
        resources: Sequence[str],
        context: Mapping[str, Value],
    ) -> tuple[Verdict, str]:
        """See `Service`."""
        if len(principal.groups) > ASKED_GROUPS:
            raise Forbidden(f"Nobody with more than {ASKED_GROUPS} groups can be judged")
        asked = {
            "principal": principal.email,
            "groups": sorted(principal.groups),
            "action": list(actions),
            "resource": list(resources),
            "context": dict(context),
            "grant": principal.grant,
        }
        pairs = [(action, resource) for action in actions for resource in resources]
        most = MOST * (1 + len(pairs))
        found = self._ask("POST", "/v1/policies/evaluate", orjson.dumps(asked), most)
        return _read(lambda body: _told(body, pairs, principal.grant), found)

    def _ask(self, method: str, path: str, body: bytes, most: int) -> bytes:
        headers = {"Authorization": f"Bearer {self.tokens.current()}"}
        if body:
            headers["Content-Type"] = "application/json"
        try:
            answer = self.connections.ask(method, self.url + path, headers, body, most=most)
        except FAILURES as error:
            raise _away(f"does not answer: {type(error).__name__}") from error
        if answer.status == 401:
            self.tokens.forget()
        if answer.status != 200:
            mine = " to this store's own account" if answer.status in (401, 403) else ""
            raise _away(f"answers {answer.status}{mine}", _retry_s(answer))
        return answer.body


def _read(meaning: Callable[[Mapping[str, Any]], T], body: bytes) -> T:
    try:
        found = orjson.loads(body)
        if isinstance(found, dict):
            return meaning(found)
    except (ValueError, LookupError, TypeError) as error:
        raise _away("answers nonsense") from error
    raise _away("answers nonsense")


def _told(
    body: Mapping[str, Any], pairs: Sequence[tuple[str, str]], grant: str | None
) -> tuple[Verdict, str]:
    """An answer that is whole, even if the login is over."""
    told, stands = (_verdict(body, pairs), _version(body)), body["grant_stands"]
    if stands is not (None if grant is None else bool(stands)):
        raise ValueError("not what was asked")
    if stands is False:
        raise Unauthorized(TAKEN_BACK)
    return told


def _version(body: Mapping[str, Any]) -> str:
    return _text(body["policy_version"], MAX_VERSION)


def _verdict(body: Mapping[str, Any], pairs: Sequence[tuple[str, str]]) -> Verdict:
    given = body["evaluation_results"]
    if not isinstance(given, list) or len(given) != len(pairs):
        raise ValueError("not what was asked")
    found = verdict(tuple(_judged(each, pair) for each, pair in zip(given, pairs, strict=True)))
    if (body["result"], body["reason"]) != (found.allowed, found.reason):
        raise ValueError("at odds with itself")
    return found


def _judged(given: Mapping[str, Any], pair: tuple[str, str]) -> Judged:
    reason = given["reason"]
    if (given["action"], given["resource"]) != pair or reason not in REASONS:
        raise ValueError("not what was asked")
    if given["result"] is not (reason == "allow"):
        raise ValueError("at odds with itself")
    source, statement = (_named(given[member]) for member in ("source", "statement"))
    decision = Decision(given["result"], reason, source, statement)
    return Judged(*pair, decision, _keys(given["depends_on"]), _anywhere(given))


def _anywhere(given: Mapping[str, Any]) -> bool:
    anywhere = given["anywhere"]
    if not isinstance(anywhere, bool) or (given["result"] and not anywhere):
        raise ValueError("at odds with itself")
    return anywhere


def _keys(given: Any) -> frozenset[str]:
    if not isinstance(given, list) or len(given) > CONTEXT_KEYS:
        raise ValueError("no list of keys")
    return frozenset(_text(key, MAX_KEY) for key in given)


def _named(given: Any) -> str | None:
    return None if given is None else _text(given, MAX_TEXT)


def _text(given: Any, most: int) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= most:
        raise ValueError("not a text")
    return given


def _retry_s(answer: Answer) -> int:
    said = answer.retry_after
    wanted = int(said) if said.isascii() and said.isdigit() and len(said) < 9 else RETRY_S
    return min(max(wanted, 1), LONGEST_RETRY_S)


def _away(why: str, retry_after_s: int = RETRY_S) -> Unavailable:
    return Unavailable(f"The authorization service {why}", retry_after_s=retry_after_s)
