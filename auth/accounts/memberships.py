"""Who is in which group and has which role: adding and removing, several at once, all or none."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from auth.accounts import builtin
from auth.accounts.changing import By, change, existing, protected, record_change
from auth.accounts.limits import GROUPS_PER_USER, ROLES_EACH
from storage.catalog import Catalog, accounts, memberships
from storage.catalog.accounts import Kind, Name
from storage.catalog.engine import Tx
from storage.catalog.memberships import Membership
from storage.errors import NotAcceptable, NotFound

Action = Literal["add", "remove"]
ROOM: Mapping[Kind, int] = {"group": GROUPS_PER_USER, "role": ROLES_EACH}
TOLD = 20
"""Names in the text of a refusal; its errors have them all."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Records to be added to or removed from one: the groups or roles of `target`, or its users;
    `member` is their name in the request."""

    target: Name
    member: str
    named: Sequence[Name]
    action: Action

    @property
    def pairs(self) -> set[Membership]:
        """The memberships that are meant."""
        return {
            Membership(one, self.target) if one.kind == "user" else Membership(self.target, one)
            for one in self.named
        }


def put(catalog: Catalog, edit: Edit, by: By) -> bool:
    """Make or end memberships; False when all of it was so before. NotFound names every record that
    there is not, and nothing has changed then."""
    with change(catalog) as tx:
        existing(tx, edit.target)
        require_named(tx, {edit.member: edit.named})
        changed = _joined(tx, edit) if edit.action == "add" else _left(tx, edit)
        if changed:
            before, after = _told(edit, changed)
            record_change(
                tx, by, edit.target, before={edit.member: before}, after={edit.member: after}
            )
    return bool(changed)


def _joined(tx: Tx, edit: Edit) -> list[Membership]:
    made = memberships.join(tx, edit.pairs)
    check_room(tx, made)
    return made


def _left(tx: Tx, edit: Edit) -> list[Membership]:
    fixed = next(filter(builtin.is_fixed, sorted(edit.pairs)), None)
    if fixed is not None:
        raise protected(fixed.of, f"{fixed.member.kind} {fixed.member.id} stays with it")
    return memberships.leave(tx, edit.pairs)


def _told(edit: Edit, changed: Collection[Membership]) -> tuple[list[str], list[str]]:
    """Which of the named there were before, and are now."""
    moved = {(pair.member if pair.of == edit.target else pair.of).id for pair in changed}
    named = {one.id for one in edit.named}
    if edit.action == "add":
        return sorted(named - moved), sorted(named)
    return sorted(moved), []


def require_named(tx: Tx, named: Mapping[str, Sequence[Name]]) -> None:
    """NotFound with a pointer to each of these that there is not; one query."""
    absent = accounts.absent(tx, {one for names in named.values() for one in names})
    if not absent:
        return
    wrong = sorted(absent)
    told = ", ".join(f"{one.kind} {one.id}" for one in wrong[:TOLD])
    more = f" and {len(wrong) - TOLD} more" if len(wrong) > TOLD else ""
    raise NotFound(f"There is no {told}{more}.", errors=dict(_pointed(named, absent)))


def _pointed(
    named: Mapping[str, Sequence[Name]], absent: Collection[Name]
) -> Iterator[tuple[str, list[str]]]:
    for member, names in named.items():
        for place, one in enumerate(names):
            if one in absent:
                yield f"/{member}/{place}", [f"There is no {one.kind} {one.id}."]


def check_room(tx: Tx, pairs: Collection[Membership]) -> None:
    """NotAcceptable when one of these members has more than it may: everything that it has is
    looked at whenever it asks for something."""
    for kind, most in ROOM.items():
        members = {pair.member for pair in pairs if pair.of.kind == kind}
        if full := memberships.overfull(tx, members, kind, most=most):
            told = ", ".join(full[:TOLD])
            raise NotAcceptable(f"Nothing may have more than {most} {kind}s; {told} would.")
