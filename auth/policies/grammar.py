"""Reading a policy document, whole: all that is wrong is told at once."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from auth.policies.condition_grammar import conditions
from auth.policies.faults import Faults, Place, members, one_or_many
from auth.policies.globs import Glob, glob
from auth.policies.keys import LISTS
from auth.policies.limits import MAX_BYTES, MAX_DEPTH, MAX_LISTS, MAX_STATEMENTS
from auth.policies.patterns import Fault, Pattern, in_segments, read
from auth.policies.statements import Policy, Statement
from storage.errors import Invalid

VERSIONS = ("2012-10-17", "2008-10-17")
"""The older one knows no variables."""
MEMBERS = ("Version", "Id", "Statement")
STATEMENT_MEMBERS = (
    *("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource"),
    "Condition",
)
PRINCIPALS = ("Principal", "NotPrincipal")
EFFECTS = ("Allow", "Deny")
MAX_ID = 512

_SID = re.compile(r"[A-Za-z0-9_.-]{0,128}")
_ACTION = re.compile(r"\*|[a-z0-9_-]{1,64}:[a-z0-9*?_-]{1,128}", re.ASCII | re.IGNORECASE)
_OLD_ACTION = re.compile(r"[a-z0-9*?_-]{1,64}:[a-z0-9*?_-]{1,128}", re.ASCII | re.IGNORECASE)
_MANY = re.compile(rf"\$\{{\s*(?:{'|'.join(sorted(LISTS))})", re.IGNORECASE)
_RESOURCE = re.compile(r"[*?$].*|[^:]+:.*")


def parse(document: object, *, pointer: str = "", stored: bool = False) -> Policy:
    """The policy that a document means; Invalid tells all that is wrong with it.

    A `stored` document may have wildcards in the service part of an action, as older releases
    accepted them: to refuse it now would lock out everyone whom it is attached to.
    """
    place = Place(Faults(), pointer, stored=stored)
    text = _text(document, place)
    statements = tuple(_policy(document, place)) if text else ()
    told = place.faults.told
    if told:
        where, said = next(iter(told.items()))
        detail = f"The policy is not valid: {where or 'it'} {said[0]}"
        raise Invalid(detail, code="invalid_policy", errors=told)
    return Policy(text, statements)


def _text(document: object, place: Place) -> str:
    """The document without white space; empty when there is no sense in looking into it."""
    if not _is_small(document):
        place.wrong(f"has more than {MAX_BYTES} bytes, or more than {MAX_DEPTH} levels")
        return ""
    try:
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (ValueError, TypeError):
        place.wrong("is not JSON, or holds characters that do not exist")
        return ""
    if size > MAX_BYTES:
        place.wrong(f"has {size} bytes; {MAX_BYTES} are allowed")
    if len(_MANY.findall(text)) > MAX_LISTS:
        place.wrong(f"names a variable of many values in more than {MAX_LISTS} places")
    return text if size <= MAX_BYTES else ""


def _is_small(document: object) -> bool:
    """Whether it is worth writing down; looks no further than the limits, and never recurses."""
    waiting, size = [(document, 1)], 0
    while waiting:
        value, depth = waiting.pop()
        size += len(value) if isinstance(value, str) else 1
        if size > MAX_BYTES or depth > MAX_DEPTH:
            return False
        if isinstance(value, dict):
            waiting += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list):
            waiting += [(part, depth + 1) for part in value]
    return True


def _policy(document: object, place: Place) -> Iterator[Statement]:
    given = members(document, place)
    if not isinstance(document, dict):
        return
    _known(given, MEMBERS, place)
    version = given.get("Version", VERSIONS[0])
    if version not in VERSIONS:
        place.under("Version").wrong(f"must be one of {', '.join(VERSIONS)}")
    identity = given.get("Id", "-")
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_ID:
        place.under("Id").wrong(f"must be a text of 1 to {MAX_ID} characters")
    inner = replace(place, variables=version != VERSIONS[1]).under("Statement")
    if "Statement" not in given:
        inner.wrong("is missing")
    elif isinstance(given["Statement"], list) and len(given["Statement"]) > MAX_STATEMENTS:
        inner.wrong(f"has more than {MAX_STATEMENTS} statements")
    else:
        yield from _statements(given["Statement"], inner, root=len(place.pointer))


def _known(given: Mapping[str, Any], known: tuple[str, ...], place: Place) -> None:
    for name in given:
        if name in PRINCIPALS:
            place.under(name).wrong("is not for policies of users, groups and roles")
        elif name not in known:
            place.under(name).wrong(f"is unknown; there are {', '.join(known)}")


def _statements(given: object, place: Place, *, root: int) -> Iterator[Statement]:
    seen: set[str] = set()
    for item, at in one_or_many(given, place):
        statement = members(item, at)
        if not isinstance(item, dict):
            continue
        sid = _sid(statement, at.under("Sid"))
        if sid in seen:
            at.under("Sid").wrong("is another statement's too")
        seen |= {sid} - {""}
        yield _statement(statement, at, name=sid or at.pointer[root:])


def _sid(given: Mapping[str, Any], place: Place) -> str:
    sid = given.get("Sid", "")
    if isinstance(sid, str) and _SID.fullmatch(sid):
        return sid
    place.wrong("must be of letters, digits and `_.-`, at most 128")
    return ""


def _statement(given: Mapping[str, Any], place: Place, *, name: str) -> Statement:
    _known(given, STATEMENT_MEMBERS, place)
    if given.get("Effect") not in EFFECTS:
        place.under("Effect").wrong(f"must be one of {', '.join(EFFECTS)}")
    return Statement(
        name=name,
        allows=given.get("Effect") == "Allow",
        actions=tuple(_action(text, at) for text, at in _listed(given, "Action", place)),
        other_actions="NotAction" in given,
        resources=tuple(_resource(text, at) for text, at in _listed(given, "Resource", place)),
        other_resources="NotResource" in given,
        conditions=tuple(conditions(given.get("Condition", {}), place.under("Condition"))),
    )


def _listed(given: Mapping[str, Any], name: str, place: Place) -> list[tuple[str, Place]]:
    """The texts under a name or its contrary, of which there must be one."""
    here = [each for each in (name, f"Not{name}") if each in given]
    if len(here) != 1:
        what = "is missing, and" if not here else "must not be given with"
        place.under(name).wrong(f"{what} Not{name}" + ("" if here else " is, too"))
    found = [pair for each in here for pair in one_or_many(given[each], place.under(each))]
    for value, at in found:
        if not isinstance(value, str):
            at.wrong("must be a text")
    return [(value, at) for value, at in found if isinstance(value, str)]


def _action(text: str, place: Place) -> Glob:
    """The pattern of an action, whose case does not count."""
    if _OLD_ACTION.fullmatch(text) and not _ACTION.fullmatch(text):
        if not place.stored:
            place.wrong("must not have a wildcard in the service part, before the colon")
    elif not _ACTION.fullmatch(text):
        place.wrong("must be `*` or like `store:PutBundle` or `store:Get*`")
    return glob(_read(text.lower(), place).plain)


def _resource(text: str, place: Place) -> Pattern:
    if not text.isprintable() or not _RESOURCE.fullmatch(text):
        place.wrong("is no resource; resources are `*` or begin like `arn:store:`")
    return in_segments(_read(text, place))


def _read(text: str, place: Place) -> Pattern:
    try:
        return read(text, wild=True, variables=place.variables)
    except Fault as fault:
        place.wrong(str(fault))
        return Pattern(())
