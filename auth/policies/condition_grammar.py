"""Reading the conditions of a statement."""

import re
from collections.abc import Iterator

from auth.policies.conditions import Asked, Condition, asked
from auth.policies.faults import Place, members, one_or_many
from auth.policies.keys import spelled
from auth.policies.operators import OPERATORS, Prepared
from auth.policies.patterns import Fault

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}:[A-Za-z0-9_.@/+=-]{1,128}")


def conditions(given: object, place: Place) -> Iterator[Condition]:
    """What each key is asked; all of it must hold."""
    for written, keys in members(given, place).items():
        at = place.under(written)
        found = asked(written)
        if found is None:
            at.wrong(f"is no operator; there are {', '.join(OPERATORS)}")
            continue
        for key, wanted in members(keys, at).items():
            yield _condition(found, key, wanted, at.under(key))


def _condition(found: Asked, key: str, wanted: object, place: Place) -> Condition:
    if not _KEY.fullmatch(key):
        place.wrong("is no key; keys are spelled `store:user_email`")
    prepared = (_wanted(found, value, at) for value, at in one_or_many(wanted, place))
    return Condition(found, spelled(key), tuple(each for each in prepared if each is not None))


def _wanted(found: Asked, value: object, place: Place) -> Prepared | None:
    if not isinstance(value, str | int | float):
        place.wrong("must be a text, a number, true or false")
        return None
    try:
        return OPERATORS[found.name].prepare(value, place.variables)
    except Fault as fault:
        place.wrong(str(fault))
        return None
