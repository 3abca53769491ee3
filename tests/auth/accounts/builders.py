"""Records that tests of accounts begin with; a test states only what matters to it."""

from collections.abc import Iterable
from dataclasses import dataclass

from auth.accounts import memberships, records
from auth.accounts.changing import By
from auth.accounts.memberships import Action, Edit
from auth.accounts.records import New
from auth.policies.model import Policy, parse
from storage.catalog import Catalog
from storage.catalog.accounts import Kind, Name

BY = By(who="admin@example.org", what="a_test", request_id="request-1")


@dataclass(frozen=True)
class Given:
    """Rights as the settings of a test have them."""

    deployment: str = "local"
    administrators: tuple[str, ...] = ()
    ingest_groups: tuple[str, ...] = ("store_ingest", "store_admin")
    admin_groups: tuple[str, ...] = ("store_admin",)
    decisions_kept: int = 100


def a_policy(action: str = "store:Do", resource: str = "*", *, effect: str = "Allow") -> Policy:
    """A policy of one statement, called like its action."""
    sid = action.partition(":")[2].replace("*", "All")
    statement = {"Sid": sid, "Effect": effect, "Action": [action], "Resource": [resource]}
    return parse({"Version": "2012-10-17", "Statement": [statement]})


@dataclass(frozen=True)
class People:
    """Makes records in one catalog."""

    catalog: Catalog

    def user(self, user_id: str, *, policy: Policy | None = None, **of: Iterable[str]) -> str:
        return self._made("user", user_id, policy, of)

    def group(self, group_id: str, *, policy: Policy | None = None, **of: Iterable[str]) -> str:
        return self._made("group", group_id, policy, of)

    def role(self, role_id: str, policy: Policy | None = None) -> str:
        return self._made("role", role_id, policy or a_policy(), {})

    def _made(
        self, kind: Kind, name: str, policy: Policy | None, of: dict[str, Iterable[str]]
    ) -> str:
        groups, roles = (tuple(of.get(member, ())) for member in ("groups", "roles"))
        records.create(self.catalog, New(Name(kind, name), policy, groups, roles), BY)
        return name

    def groups(self, user_id: str, *named: str, action: Action = "add") -> bool:
        """Add a user to groups, or remove them."""
        names = [Name("group", one) for one in named]
        return memberships.put(
            self.catalog, Edit(Name("user", user_id), "groups", names, action), BY
        )

    def roles(self, target: Name, *named: str, action: Action = "add") -> bool:
        """Give somebody roles, or take them away."""
        names = [Name("role", one) for one in named]
        return memberships.put(self.catalog, Edit(target, "roles", names, action), BY)

    def users(self, group_id: str, *named: str, action: Action = "add") -> bool:
        """Add users to a group, or remove them."""
        names = [Name("user", one) for one in named]
        return memberships.put(
            self.catalog, Edit(Name("group", group_id), "users", names, action), BY
        )
