"""Builders of common requests to the authorization service."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from flask.testing import FlaskClient

from storage.errors import Unauthorized
from storage.model import Principal

ADMIN = "admin@example.org"
NAMED = "named@example.org"


def verify(token: str) -> Principal:
    """Who a test's token names: an address, and after a `+` the groups that it claims."""
    email, _, groups = token.partition("+")
    if "@" not in email:
        raise Unauthorized("The token is not known")
    return Principal(email, frozenset(filter(None, groups.split("+"))))


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


def policy(
    action: str = "store:PutBundle", resource: str = "*", effect: str = "Allow"
) -> dict[str, Any]:
    """A policy of one statement."""
    statement = {"Effect": effect, "Action": [action], "Resource": [resource]}
    return {"Version": "2012-10-17", "Statement": [statement]}


@dataclass
class Admin:
    """Somebody who calls the service with one token."""

    client: FlaskClient
    token: str = f"{ADMIN}+store_admin"

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The answer to one request."""
        return self.client.open(
            path, method=method, json=body, query_string=query or None, headers=bearer(self.token)
        )

    def get(self, path: str, **query: str) -> Any:
        return self.call("GET", path, **query)

    def put(self, path: str, body: Any = None, **query: str) -> Any:
        return self.call("PUT", path, body, **query)

    def user(self, user_id: str, **more: Any) -> str:
        """A new user's id."""
        return self._made("user", user_id, more)

    def group(self, group_id: str, **more: Any) -> str:
        """A new group's id."""
        return self._made("group", group_id, more)

    def role(self, role_id: str, **more: Any) -> str:
        """A new role's id."""
        return self._made("role", role_id, {"policy": policy(), **more})

    def _made(self, kind: str, name: str, more: dict[str, Any]) -> str:
        answer = self.call("POST", f"/v1/{kind}", {f"{kind}_id": name, **more})
        assert answer.status_code == 201, answer.text
        return name

    def walk(self, path: str, key: str, **query: str) -> Iterator[Any]:
        """Every item of a list, page by page."""
        answer = self.get(path, **query)
        yield from (answer.json or {})[key]
        while answer.status_code == 206:
            following = answer.headers["Link"].partition(">")[0].removeprefix("<")
            address = following.removeprefix("https://auth.example")
            answer = self.client.get(address, headers=bearer(self.token))
            yield from (answer.json or {})[key]
        assert answer.status_code == 200, answer.text

    def all(self, path: str, key: str, **query: str) -> list[Any]:
        return list(self.walk(path, key, **query))

    def may(self, user_id: str, action: str = "store:PutBundle", resource: str = "x:y") -> bool:
        """Whether a user is allowed something."""
        asked = {"principal": user_id, "action": [action], "resource": [resource]}
        answer = self.call("POST", "/v1/policies/evaluate", asked)
        assert answer.status_code == 200, answer.text
        return bool(answer.json["result"])


def of_user(user_id: str, rest: str = "") -> str:
    """The path of a user."""
    return f"/v1/user/{quote(user_id)}{rest}"
