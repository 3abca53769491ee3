"""Parse policy documents and report all errors with JSON pointers."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from auth.policies.conditions import (
    OPERATORS,
    Condition,
    ConditionOperator,
    TestFactory,
    parse_operator,
)
from auth.policies.keys import LIST_VARIABLES, normalize_key
from auth.policies.patterns import (
    MAX_ITEMS,
    MAX_LIST_VARIABLES,
    MAX_POLICY_BYTES,
    MAX_POLICY_DEPTH,
    MAX_POLICY_ERRORS,
    MAX_STATEMENTS,
    Glob,
    Pattern,
    PatternError,
    compile_glob,
    limit_to_segments,
    parse_pattern,
)
from storage import json_codec
from storage.errors import Invalid


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """The parser's position in a document, and its options."""

    errors: dict[str, list[str]]
    """Messages by JSON pointer, up to a limit; shared by all places of a document."""
    pointer: str
    variables: bool = True
    """Whether this policy version supports them."""
    stored: bool = False
    """Whether an earlier, more lenient release accepted the document."""

    def child(self, name: str | int) -> "DocumentPlace":
        """Return a child's place."""
        return replace(self, pointer=self.pointer + json_codec.pointer_step(name))

    def report(self, text: str) -> None:
        """Add an error here."""
        if self.pointer in self.errors or len(self.errors) < MAX_POLICY_ERRORS:
            self.errors.setdefault(self.pointer, []).append(text)


def list_items(given: object, place: DocumentPlace) -> list[tuple[Any, DocumentPlace]]:
    """List a value or a list's items, with places; report an empty or too long list."""
    if not isinstance(given, list):
        return [(given, place)]
    if not 0 < len(given) <= MAX_ITEMS:
        place.report(f"must have 1 to {MAX_ITEMS} items")
        return []
    return [(item, place.child(number)) for number, item in enumerate(given)]


def read_members(given: object, place: DocumentPlace) -> Mapping[str, Any]:
    """Return an object's members; report anything else, as empty."""
    if isinstance(given, dict):
        return given
    place.report("must be an object")
    return {}


@dataclass(frozen=True, slots=True)
class PolicyStatement:
    """A statement; negated lists (`other_*`) cover everything not listed."""

    name: str
    """Its Sid, else its JSON pointer in the policy."""
    allows: bool
    actions: tuple[Glob, ...]
    other_actions: bool
    resources: tuple[Pattern, ...]
    other_resources: bool
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """A parsed policy; equal policies have equal documents."""

    text: str
    """The document as compact JSON."""
    statements: tuple[PolicyStatement, ...] = field(compare=False, repr=False)

    @property
    def document(self) -> Any:
        """The policy document."""
        return json.loads(self.text)


_CONDITION_KEY_REGEX = re.compile(r"[A-Za-z0-9_.-]{1,64}:[A-Za-z0-9_.@/+=-]{1,128}")


def parse_conditions(given: object, place: DocumentPlace) -> Iterator[Condition]:
    """Parse conditions, all of which must hold."""
    for written, keys in read_members(given, place).items():
        at = place.child(written)
        operator = parse_operator(written)
        if operator is None:
            at.report(f"is no operator; there are {', '.join(OPERATORS)}")
            continue
        for key, values in read_members(keys, at).items():
            yield _parse_condition(operator, key, values, at.child(key))


def _parse_condition(
    operator: ConditionOperator, key: str, values: object, place: DocumentPlace
) -> Condition:
    if not _CONDITION_KEY_REGEX.fullmatch(key):
        place.report("is no key; keys are spelled `store:user_email`")
    prepared = (_prepare_value(operator, value, at) for value, at in list_items(values, place))
    return Condition(
        operator, normalize_key(key), tuple(each for each in prepared if each is not None)
    )


def _prepare_value(
    operator: ConditionOperator, value: object, place: DocumentPlace
) -> TestFactory | None:
    if not isinstance(value, str | int | float):
        place.report("must be a text, a number, true or false")
        return None
    try:
        return OPERATORS[operator.name].prepare(value, place.variables)
    except PatternError as fault:
        place.report(str(fault))
        return None


POLICY_VERSIONS = ("2012-10-17", "2008-10-17")
"""The older has no variables."""
POLICY_MEMBERS = ("Version", "Id", "Statement")
STATEMENT_MEMBERS = (
    *("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource"),
    "Condition",
)
PRINCIPAL_MEMBERS = ("Principal", "NotPrincipal")
EFFECTS = ("Allow", "Deny")
MAX_POLICY_ID = 512

_SID_REGEX = re.compile(r"[A-Za-z0-9_.-]{0,128}")
_ACTION_REGEX = re.compile(r"\*|[a-z0-9_-]{1,64}:[a-z0-9*?_-]{1,128}", re.ASCII | re.IGNORECASE)
_OLD_ACTION_REGEX = re.compile(r"[a-z0-9*?_-]{1,64}:[a-z0-9*?_-]{1,128}", re.ASCII | re.IGNORECASE)
_LIST_VARIABLE_REGEX = re.compile(rf"\$\{{\s*(?:{'|'.join(sorted(LIST_VARIABLES))})", re.IGNORECASE)
_RESOURCE_REGEX = re.compile(r"[*?$].*|[^:]+:.*")


def parse_policy(document: object, *, pointer: str = "", stored: bool = False) -> AccessPolicy:
    """Parse a policy document; Invalid lists its errors.

    A `stored` document may have wildcards in the service part of an action, as older releases
    accepted them: rejecting it now would lock out all principals it is attached to.
    """
    place = DocumentPlace({}, pointer, stored=stored)
    text = _dump_document(document, place)
    statements = tuple(_parse_document(document, place)) if text else ()
    if place.errors:
        where, messages = next(iter(place.errors.items()))
        detail = f"The policy is not valid: {where or 'it'} {messages[0]}"
        raise Invalid(detail, code="invalid_policy", errors=place.errors)
    return AccessPolicy(text, statements)


def _dump_document(document: object, place: DocumentPlace) -> str:
    """Return the document as compact JSON; empty if it must not be parsed further."""
    if not _is_small(document):
        place.report(
            f"has more than {MAX_POLICY_BYTES} bytes, or more than {MAX_POLICY_DEPTH} levels"
        )
        return ""
    try:
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (ValueError, TypeError):
        place.report("is not JSON, or holds characters that do not exist")
        return ""
    if size > MAX_POLICY_BYTES:
        place.report(f"has {size} bytes; {MAX_POLICY_BYTES} are allowed")
    if len(_LIST_VARIABLE_REGEX.findall(text)) > MAX_LIST_VARIABLES:
        place.report(f"names a variable of many values in more than {MAX_LIST_VARIABLES} places")
    return text if size <= MAX_POLICY_BYTES else ""


def _is_small(document: object) -> bool:
    """Return whether size and depth are within limits; stops early, without recursion."""
    waiting, size = [(document, 1)], 0
    while waiting:
        value, depth = waiting.pop()
        size += len(value) if isinstance(value, str) else 1
        if size > MAX_POLICY_BYTES or depth > MAX_POLICY_DEPTH:
            return False
        if isinstance(value, dict):
            waiting += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list):
            waiting += [(part, depth + 1) for part in value]
    return True


def _parse_document(document: object, place: DocumentPlace) -> Iterator[PolicyStatement]:
    members = read_members(document, place)
    if not isinstance(document, dict):
        return
    _check_members(members, POLICY_MEMBERS, place)
    version = members.get("Version", POLICY_VERSIONS[0])
    if version not in POLICY_VERSIONS:
        place.child("Version").report(f"must be one of {', '.join(POLICY_VERSIONS)}")
    identity = members.get("Id", "-")
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_POLICY_ID:
        place.child("Id").report(f"must be a text of 1 to {MAX_POLICY_ID} characters")
    inner = replace(place, variables=version != POLICY_VERSIONS[1]).child("Statement")
    if "Statement" not in members:
        inner.report("is missing")
    elif isinstance(members["Statement"], list) and len(members["Statement"]) > MAX_STATEMENTS:
        inner.report(f"has more than {MAX_STATEMENTS} statements")
    else:
        yield from _parse_statements(members["Statement"], inner, root=len(place.pointer))


def _check_members(
    members: Mapping[str, Any], allowed: tuple[str, ...], place: DocumentPlace
) -> None:
    for name in members:
        if name in PRINCIPAL_MEMBERS:
            place.child(name).report("is not for policies of users, groups and roles")
        elif name not in allowed:
            place.child(name).report(f"is unknown; there are {', '.join(allowed)}")


def _parse_statements(
    value: object, place: DocumentPlace, *, root: int
) -> Iterator[PolicyStatement]:
    seen: set[str] = set()
    for item, at in list_items(value, place):
        statement = read_members(item, at)
        if not isinstance(item, dict):
            continue
        sid = _parse_sid(statement, at.child("Sid"))
        if sid in seen:
            at.child("Sid").report("is another statement's too")
        seen |= {sid} - {""}
        yield _parse_statement(statement, at, name=sid or at.pointer[root:])


def _parse_sid(statement: Mapping[str, Any], place: DocumentPlace) -> str:
    sid = statement.get("Sid", "")
    if isinstance(sid, str) and _SID_REGEX.fullmatch(sid):
        return sid
    place.report("must be of letters, digits and `_.-`, at most 128")
    return ""


def _parse_statement(
    statement: Mapping[str, Any], place: DocumentPlace, *, name: str
) -> PolicyStatement:
    _check_members(statement, STATEMENT_MEMBERS, place)
    if statement.get("Effect") not in EFFECTS:
        place.child("Effect").report(f"must be one of {', '.join(EFFECTS)}")
    return PolicyStatement(
        name=name,
        allows=statement.get("Effect") == "Allow",
        actions=tuple(
            _parse_action(text, at) for text, at in _read_texts(statement, "Action", place)
        ),
        other_actions="NotAction" in statement,
        resources=tuple(
            _parse_resource(text, at) for text, at in _read_texts(statement, "Resource", place)
        ),
        other_resources="NotResource" in statement,
        conditions=tuple(
            parse_conditions(statement.get("Condition", {}), place.child("Condition"))
        ),
    )


def _read_texts(
    statement: Mapping[str, Any], name: str, place: DocumentPlace
) -> list[tuple[str, DocumentPlace]]:
    """Read the strings of a name or its negation; exactly one must exist."""
    present = [each for each in (name, f"Not{name}") if each in statement]
    if len(present) != 1:
        what = "is missing, and" if not present else "must not be given with"
        place.child(name).report(f"{what} Not{name}" + ("" if present else " is, too"))
    items = [pair for each in present for pair in list_items(statement[each], place.child(each))]
    for value, at in items:
        if not isinstance(value, str):
            at.report("must be a text")
    return [(value, at) for value, at in items if isinstance(value, str)]


def _parse_action(text: str, place: DocumentPlace) -> Glob:
    """Parse the case-insensitive pattern of an action."""
    if _OLD_ACTION_REGEX.fullmatch(text) and not _ACTION_REGEX.fullmatch(text):
        if not place.stored:
            place.report("must not have a wildcard in the service part, before the colon")
    elif not _ACTION_REGEX.fullmatch(text):
        place.report("must be `*` or like `store:PutBundle` or `store:Get*`")
    return compile_glob(_read_pattern(text.lower(), place).plain)


def _parse_resource(text: str, place: DocumentPlace) -> Pattern:
    if not text.isprintable() or not _RESOURCE_REGEX.fullmatch(text):
        place.report("is no resource; resources are `*` or begin like `arn:store:`")
    return limit_to_segments(_read_pattern(text, place))


def _read_pattern(text: str, place: DocumentPlace) -> Pattern:
    try:
        return parse_pattern(text, wild=True, variables=place.variables)
    except PatternError as fault:
        place.report(str(fault))
        return Pattern(())
