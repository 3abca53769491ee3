"""Builders of users, groups, roles and policies."""

from collections.abc import Iterable
from dataclasses import dataclass

from auth import accounts
from auth.accounts import AuditContext, EditAction, MembershipEdit, NewAccount
from auth.policies.grammar import AccessPolicy, parse_policy
from storage.catalog import Catalog
from storage.catalog.accounts import AccountKey, AccountKind

BY = AuditContext(who="admin@example.org", what="a_test", request_id="request-1")


@dataclass(frozen=True)
class Given:
    """Rights as the settings of a test have them."""

    deployment: str = "local"
    administrators: tuple[str, ...] = ()
    ingest_groups: tuple[str, ...] = ("store_ingest", "store_admin")
    admin_groups: tuple[str, ...] = ("store_admin",)
    decisions_kept: int = 100


def a_policy(
    action: str = "store:Do", resource: str = "*", *, effect: str = "Allow"
) -> AccessPolicy:
    """A policy of one statement, called like its action."""
    sid = action.partition(":")[2].replace("*", "All")
    statement = {"Sid": sid, "Effect": effect, "Action": [action], "Resource": [resource]}
    return parse_policy({"Version": "2012-10-17", "Statement": [statement]})


@dataclass(frozen=True)
class People:
    """Makes records in one catalog."""

    catalog: Catalog

    def user(self, user_id: str, *, policy: AccessPolicy | None = None, **of: Iterable[str]) -> str:
        return self._made("user", user_id, policy, of)

    def group(
        self, group_id: str, *, policy: AccessPolicy | None = None, **of: Iterable[str]
    ) -> str:
        return self._made("group", group_id, policy, of)

    def role(self, role_id: str, policy: AccessPolicy | None = None) -> str:
        return self._made("role", role_id, policy or a_policy(), {})

    def _made(
        self,
        kind: AccountKind,
        name: str,
        policy: AccessPolicy | None,
        of: dict[str, Iterable[str]],
    ) -> str:
        groups, roles = (tuple(of.get(member, ())) for member in ("groups", "roles"))
        accounts.create_account(
            self.catalog, NewAccount(AccountKey(kind, name), policy, groups, roles), BY
        )
        return name

    def groups(self, user_id: str, *named: str, action: EditAction = "add") -> bool:
        """Add a user to groups, or remove them."""
        names = [AccountKey("group", one) for one in named]
        return accounts.edit_memberships(
            self.catalog, MembershipEdit(AccountKey("user", user_id), "groups", names, action), BY
        )

    def roles(self, target: AccountKey, *named: str, action: EditAction = "add") -> bool:
        """Give somebody roles, or take them away."""
        names = [AccountKey("role", one) for one in named]
        return accounts.edit_memberships(
            self.catalog, MembershipEdit(target, "roles", names, action), BY
        )

    def users(self, group_id: str, *named: str, action: EditAction = "add") -> bool:
        """Add users to a group, or remove them."""
        names = [AccountKey("user", one) for one in named]
        return accounts.edit_memberships(
            self.catalog, MembershipEdit(AccountKey("group", group_id), "users", names, action), BY
        )
