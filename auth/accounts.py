"""Users, groups and roles: create, read, change and delete, with an audit entry for each change."""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from auth import builtin_roles
from auth.builtin_roles import is_same_policy
from auth.policies.grammar import AccessPolicy
from storage.catalog import Catalog, Tx, accounts, audit, login, quotas
from storage.catalog.accounts import (
    OWNED_TYPES,
    AccountKey,
    AccountKind,
    AccountRow,
    AccountStatus,
    Membership,
    OwnedResource,
    OwnedType,
)
from storage.catalog.audit import AuditChange, AuditFilter, AuditRecord
from storage.errors import ConflictError, Forbidden, Invalid, NotAcceptable, NotFoundError
from storage.model import normalize_identity

MAX_ACCOUNT_ID = 128
"""Characters of an id (interface 5)."""
MAX_GROUPS = 100
MAX_ROLES = 50
"""Per user or group."""
MAX_NAMED = 1_000
"""Accounts that one change may name."""
MAX_AUDITED_NAMES = 1_000
"""Members that the audit entry of a deletion lists."""
MAX_GRANT_ID = 128
"""Characters of a grant id."""
MAX_EVALUATED_LENGTH = 2_048
"""Characters of one action or resource that is evaluated."""
MAX_EVALUATED_EACH = 100
"""Actions, and resources, of one evaluation."""
MAX_EVALUATED_PAIRS = 1_000
"""Actions times resources of one evaluation."""
MAX_CLAIMED_GROUPS = 1_000
"""Groups that a token may claim."""
MAX_CONTEXT_KEYS = 50
"""Per evaluation."""
MAX_CONTEXT_VALUES = 100
"""Per context key."""

ACCOUNT_ID_PATTERN = r"^[0-9a-zA-Z.@_$,=-]{1,128}$"
ACCOUNT_ID_RULE = f"Must be 1 to {MAX_ACCOUNT_ID} of 0-9 a-z A-Z . @ _ - $ , ="
EMAIL_RULE = "Must be an e-mail address."
_ACCOUNT_ID_REGEX = re.compile(r"[0-9a-zA-Z.@_$,=-]{1,128}", re.ASCII)
_EMAIL_REGEX = re.compile(r"[^@]+@[^@]+", re.ASCII)
_LOGIN_EMAIL_REGEX = re.compile(r"[0-9a-z.@_\-$,=]{1,128}")


def is_account_id(text: str) -> bool:
    """Return whether the text is a valid account id."""
    return bool(_ACCOUNT_ID_REGEX.fullmatch(text))


def is_user_id(text: str) -> bool:
    """Return whether the text is a valid user id, which is an e-mail address."""
    return is_account_id(text) and bool(_EMAIL_REGEX.fullmatch(text))


def normalize_email(given: object) -> str | None:
    """Return the e-mail address in lower case; None if it is invalid."""
    if not isinstance(given, str) or not given.isascii():
        return None
    email = given.strip().lower()
    local, at, domain = email.rpartition("@")
    return email if _LOGIN_EMAIL_REGEX.fullmatch(email) and local and at and domain else None


def check_account_id(text: str, *, where: str) -> str:
    """Return a valid id; else raise Invalid that names the field `where`."""
    if not is_account_id(text):
        raise Invalid(f"Bad {where}: {ACCOUNT_ID_RULE}", errors={where: [ACCOUNT_ID_RULE]})
    return text


@dataclass(frozen=True, slots=True)
class AuditContext:
    """Author, operation and request of a change."""

    who: str
    what: str
    request_id: str = ""


AuditState = Mapping[str, Any] | None
"""The state of an account in the audit log; never contains secrets."""


@contextmanager
def begin_change(catalog: Catalog) -> Iterator[Tx]:
    """Open a transaction that locks all accounts."""
    with catalog.write() as tx:
        accounts.lock_all(tx)
        yield tx


def record_change(
    tx: Tx, by: AuditContext, name: AccountKey, *, before: AuditState, after: AuditState
) -> None:
    """Write an audit entry and count the change, which invalidates cached decisions."""
    accounts.count_change(tx)
    record_audit(tx, by, f"{name.kind}/{name.id}", before=before, after=after)


def record_audit(
    tx: Tx, by: AuditContext, target: str, *, before: AuditState, after: AuditState
) -> None:
    """Write an audit entry of a change that no decision depends on."""
    audit.append(
        tx,
        AuditChange(
            who=by.who,
            what=by.what,
            target=target,
            before=_dump_state(before),
            after=_dump_state(after),
            request_id=by.request_id,
        ),
    )


def _dump_state(state: AuditState) -> str | None:
    return None if state is None else json.dumps(state, ensure_ascii=False)


def require_account(tx: Tx, name: AccountKey) -> AccountRow:
    """Return an account; raise NotFoundError."""
    found = accounts.find(tx, name)
    if found is None:
        raise NotFoundError(f"The {name.kind} {name.id} does not exist.")
    return found


def protected_error(name: AccountKey, what: str) -> ConflictError:
    """Return the error for a change of a built-in account."""
    return ConflictError(f"The {name.kind} {name.id} is built in: {what}.", code="protected")


def find_account(catalog: Catalog, name: AccountKey) -> AccountRow:
    """Return an account; raise NotFoundError."""
    with catalog.read() as tx:
        return require_account(tx, name)


def list_ids(catalog: Catalog, kind: AccountKind, *, after: str, limit: int) -> list[str]:
    """List account ids of a kind, in byte order after an id."""
    with catalog.read() as tx:
        return accounts.list_ids(tx, kind, after=after, limit=limit)


def list_accounts(
    catalog: Catalog, kind: AccountKind, *, prefix: str, after: str, limit: int
) -> list[AccountRow]:
    """List accounts whose id begins with a prefix, in byte order after an id."""
    with catalog.read() as tx:
        return accounts.list_rows(tx, kind, prefix=prefix, after=after, limit=limit)


def list_links(
    catalog: Catalog, name: AccountKey, kind: AccountKind, *, after: str, limit: int
) -> list[str]:
    """List the groups or roles of an account, or the users in a group; raise NotFoundError."""
    read = accounts.list_members if kind == "user" else accounts.list_memberships
    with catalog.read() as tx:
        require_account(tx, name)
        return read(tx, name, kind, after=after, limit=limit)


def list_holders(
    catalog: Catalog, role: AccountKey, *, limit: int
) -> Mapping[AccountKind, list[str]]:
    """List the users and groups that have a role; raise NotFoundError."""
    kinds: tuple[AccountKind, ...] = ("user", "group")
    with catalog.read() as tx:
        require_account(tx, role)
        return {
            kind: accounts.list_members(tx, role, kind, after="", limit=limit) for kind in kinds
        }


def list_owned(
    catalog: Catalog,
    user: AccountKey,
    only: OwnedType | None,
    *,
    after: OwnedResource | None,
    limit: int,
) -> list[OwnedResource]:
    """List what a user owns, of one type or all, by type, then uuid.

    NotFoundError if there is neither an account nor anything owned: with a token of a foreign
    issuer, a user can own things before the account exists.
    """
    with catalog.read() as tx:
        if not accounts.list_owned(tx, user.id, OWNED_TYPES, after=None, limit=1):
            require_account(tx, user)
        return accounts.list_owned(
            tx, user.id, (only,) if only else OWNED_TYPES, after=after, limit=limit
        )


def list_changes(
    catalog: Catalog, criteria: AuditFilter, *, before_id: int | None, limit: int
) -> list[AuditRecord]:
    """List audit entries, newest first; e-mail addresses match in any case."""
    exact = replace(
        criteria,
        who=criteria.who and normalize_identity(criteria.who),
        target=criteria.target and normalize_identity(criteria.target),
    )
    with catalog.read() as tx:
        return audit.list_records(tx, exact, before_id=before_id, limit=limit)


EditAction = Literal["add", "remove"]
MAX_MEMBERSHIPS: Mapping[AccountKind, int] = {"group": MAX_GROUPS, "role": MAX_ROLES}
MAX_NAMES_SHOWN = 20
"""Names in the text of an error; its `errors` have them all."""


@dataclass(frozen=True, slots=True)
class MembershipEdit:
    """A change of the groups or roles of `target`, or of its users.

    `member` is the name of the list `named` in the request.
    """

    target: AccountKey
    member: str
    named: Sequence[AccountKey]
    action: EditAction

    @property
    def pairs(self) -> set[Membership]:
        """The memberships to add or remove."""
        return {
            Membership(one, self.target) if one.kind == "user" else Membership(self.target, one)
            for one in self.named
        }


def edit_memberships(catalog: Catalog, edit: MembershipEdit, by: AuditContext) -> bool:
    """Add or remove memberships; False if nothing changed.

    NotFoundError names all missing accounts.
    """
    with begin_change(catalog) as tx:
        return apply_membership_edit(tx, edit, by)


def apply_membership_edit(tx: Tx, edit: MembershipEdit, by: AuditContext) -> bool:
    """Do the same in a transaction that holds the lock on all accounts."""
    require_account(tx, edit.target)
    require_accounts(tx, {edit.member: edit.named})
    if edit.action == "add":
        changed = accounts.insert_memberships(tx, edit.pairs)
        check_membership_limit(tx, changed)
    else:
        changed = _end_memberships(tx, edit)
    if changed:
        _count_quotas(tx, changed)
        before, after = _membership_states(edit, changed)
        record_change(tx, by, edit.target, before={edit.member: before}, after={edit.member: after})
    return bool(changed)


def _count_quotas(tx: Tx, changed: Collection[Membership]) -> None:
    """Count what groups use again, whose members have changed."""
    names = {one.of.id for one in changed if one.of.kind == "group"}
    if names:
        quotas.count_groups(tx, sorted(names))


def _end_memberships(tx: Tx, edit: MembershipEdit) -> list[Membership]:
    fixed = next(filter(builtin_roles.is_permanent_membership, sorted(edit.pairs)), None)
    if fixed is not None:
        raise protected_error(fixed.of, f"{fixed.member.kind} {fixed.member.id} stays with it")
    return accounts.delete_memberships(tx, edit.pairs)


def _membership_states(
    edit: MembershipEdit, changed: Collection[Membership]
) -> tuple[list[str], list[str]]:
    """Return which of the named were members before, and which are now."""
    moved = {(pair.member if pair.of == edit.target else pair.of).id for pair in changed}
    named = {one.id for one in edit.named}
    if edit.action == "add":
        return sorted(named - moved), sorted(named)
    return sorted(moved), []


def require_accounts(tx: Tx, named: Mapping[str, Sequence[AccountKey]]) -> None:
    """Raise NotFoundError with a JSON pointer to each missing account; one query."""
    absent = accounts.filter_missing(tx, {one for names in named.values() for one in names})
    if not absent:
        return
    missing = sorted(absent)
    names = ", ".join(f"{one.kind} {one.id}" for one in missing[:MAX_NAMES_SHOWN])
    more = f" and {len(missing) - MAX_NAMES_SHOWN} more" if len(missing) > MAX_NAMES_SHOWN else ""
    errors = {
        f"/{member}/{place}": [f"The {one.kind} {one.id} does not exist."]
        for member, listed in named.items()
        for place, one in enumerate(listed)
        if one in absent
    }
    raise NotFoundError(f"Not found: {names}{more}.", errors=errors)


def check_membership_limit(tx: Tx, pairs: Collection[Membership]) -> None:
    """Raise NotAcceptable if a member has too many groups or roles; each request reads them all."""
    for kind, most in MAX_MEMBERSHIPS.items():
        members = {pair.member for pair in pairs if pair.of.kind == kind}
        if full := accounts.find_overfull(tx, members, kind, most=most):
            names = ", ".join(full[:MAX_NAMES_SHOWN])
            raise NotAcceptable(f"At most {most} {kind}s are allowed; exceeded by {names}.")


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account to create, with its first groups and roles."""

    name: AccountKey
    policy: AccessPolicy | None = None
    groups: Sequence[str] = ()
    roles: Sequence[str] = ()


def create_account(catalog: Catalog, new: NewAccount, by: AuditContext) -> AccountRow:
    """Create an account; raise ConflictError if it exists.

    NotFoundError names all missing groups and roles.
    """
    named = {
        "groups": [AccountKey("group", each) for each in new.groups],
        "roles": [AccountKey("role", each) for each in new.roles],
    }
    with begin_change(catalog) as tx:
        if accounts.find(tx, new.name) is not None:
            raise ConflictError(f"The {new.name.kind} {new.name.id} already exists.")
        require_accounts(tx, named)
        made = accounts.insert(tx, new.name, _policy_text(new.policy))
        defaults = [builtin_roles.DEFAULT_GROUP] if new.name.kind == "user" else []
        joined = [*named["groups"], *named["roles"], *defaults]
        pairs = {Membership(new.name, one) for one in joined}
        accounts.insert_memberships(tx, pairs)
        _count_quotas(tx, pairs)
        check_membership_limit(tx, pairs)
        record_change(tx, by, new.name, before=None, after=_account_state(tx, made))
    return made


def _policy_text(policy: AccessPolicy | None) -> str | None:
    return None if policy is None else policy.text


def _account_state(tx: Tx, account: AccountRow) -> dict[str, Any]:
    """Return an account's state for the audit log, without its members."""
    name = AccountKey(account.kind, account.id)
    state: dict[str, Any] = {"policy": _load_document(account.policy)}
    if account.kind == "user":
        state = {"status": account.status, **state, "groups": _membership_ids(tx, name, "group")}
    if account.kind != "role":
        state["roles"] = _membership_ids(tx, name, "role")
    return state


def _membership_ids(tx: Tx, name: AccountKey, kind: AccountKind) -> list[str]:
    return accounts.list_memberships(tx, name, kind, after="", limit=MAX_AUDITED_NAMES)


def _load_document(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def set_account_status(
    catalog: Catalog, user_id: str, status: AccountStatus, by: AuditContext
) -> bool:
    """Enable or disable a user; False if nothing changed."""
    name = AccountKey("user", user_id)
    with begin_change(catalog) as tx:
        found = require_account(tx, name)
        if found.status == status:
            return False
        accounts.set_status(tx, name, status)
        if status == "disabled":
            # After being enabled, the user and their applications must log in again.
            login.end_logins(tx, user_id)
        record_change(tx, by, name, before={"status": found.status}, after={"status": status})
    return True


def policy_mark(text: str | None) -> str:
    """Return what tells a stored policy from another one."""
    return hashlib.sha256((text or "").encode()).hexdigest()


def set_account_policy(
    catalog: Catalog,
    name: AccountKey,
    policy: AccessPolicy | None,
    by: AuditContext,
    *,
    base: str | None = None,
) -> bool:
    """Set or remove the policy of an account; False if nothing changed.

    ConflictError if the stored policy no longer has the mark `base`.
    """
    with begin_change(catalog) as tx:
        found = require_account(tx, name)
        if found.built_in:
            raise protected_error(name, "its policy cannot be changed")
        if base is not None and base != policy_mark(found.policy):
            raise ConflictError(f"The policy of the {name.kind} {name.id} was changed meanwhile.")
        text = _policy_text(policy)
        if is_same_policy(found.policy, text):
            return False
        accounts.set_policy(tx, name, text)
        before, after = ({"policy": _load_document(one)} for one in (found.policy, text))
        record_change(tx, by, name, before=before, after=after)
    return True


def delete_account(catalog: Catalog, name: AccountKey, by: AuditContext) -> None:
    """Delete a group or role, with all memberships."""
    with begin_change(catalog) as tx:
        found = require_account(tx, name)
        if found.built_in:
            raise protected_error(name, "it cannot be deleted")
        state = _account_state(tx, found) | _members_state(tx, name)
        accounts.delete_account(tx, name)
        record_change(tx, by, name, before=state, after=None)


def _members_state(tx: Tx, name: AccountKey) -> dict[str, Any]:
    """Return the number of members, and the first MAX_AUDITED_NAMES of them."""
    kinds: tuple[AccountKind, ...] = ("user",) if name.kind == "group" else ("user", "group")
    counted = accounts.count_members(tx, name)
    state: dict[str, Any] = {f"{kind}s_total": counted.get(kind, 0) for kind in kinds}
    for kind in kinds:
        state[f"{kind}s"] = accounts.list_members(tx, name, kind, after="", limit=MAX_AUDITED_NAMES)
    return state


def is_user_enabled(tx: Tx, email: str) -> bool:
    """Return whether a user is not disabled; True without an account."""
    found = accounts.find(tx, AccountKey("user", email))
    return found is None or found.status == "enabled"


def admit_at_login(tx: Tx, email: str, request_id: str = "") -> None:
    """Create the user's account at the first login; Forbidden if disabled or no valid user id."""
    admit_user(tx, email, AuditContext(who=email, what="first_login", request_id=request_id))


def admit_user(tx: Tx, email: str, by: AuditContext) -> None:
    """Create the user's account if needed, on behalf of `by`; Forbidden as above."""
    name = AccountKey("user", email)
    found = accounts.find(tx, name)
    if found is None:
        accounts.lock_all(tx)
        found = accounts.find(tx, name) or _create_user(tx, name, by)
    if found.status != "enabled":
        raise Forbidden("This user is disabled.")


def _create_user(tx: Tx, name: AccountKey, by: AuditContext) -> AccountRow:
    if not is_user_id(name.id):
        raise Forbidden("This identity cannot log in: it is not a valid e-mail address.")
    made = accounts.insert(tx, name, None)
    accounts.insert_memberships(tx, [Membership(name, builtin_roles.DEFAULT_GROUP)])
    record_change(tx, by, name, before=None, after={"groups": [builtin_roles.USER_DEFAULT]})
    return made
