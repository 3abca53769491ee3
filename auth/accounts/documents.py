"""Policies as the records keep them: JSON text, in and out."""

import json
from functools import lru_cache

from auth.accounts import builtin
from auth.policies.model import Policy, parse
from storage.catalog.accounts import Name
from storage.errors import Damaged, Invalid


def kept(name: Name, text: str | None, deployment: str) -> Policy | None:
    """The policy of a record, built in or kept. Damaged for one that is understood no more: what
    it denied must not be allowed because of that."""
    if builtin.is_built_in(name):
        return builtin.policy(name.kind, name.id, deployment)
    if text is None:
        return None
    try:
        return _read(text)
    except (Invalid, ValueError) as error:
        raise Damaged(f"The policy of {name.kind} {name.id} cannot be understood.") from error


@lru_cache(maxsize=1024)
def _read(text: str) -> Policy:
    """A role's is that of many principals."""
    return parse(json.loads(text), stored=True)


def same(one: str | None, other: str | None) -> bool:
    """Whether two documents say the same, in whatever order of members; 1 is not true."""
    return one == other or (
        one is not None and other is not None and _sorted(one) == _sorted(other)
    )


def _sorted(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)
