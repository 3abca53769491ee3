"""The permissions table against both applications, row by row, with real tokens."""

from collections.abc import Mapping, Sequence

import pytest
from flask.testing import FlaskClient

from api.app import OPERATIONS
from api.authz.app import OPERATIONS as OF_AUTH
from auth.account_operations import REQUIRED_ACTIONS
from auth.authorization import CHECKOUT_ELSEWHERE, NEVER_CLOSED, OPEN_OPERATIONS
from tests.api.permissions.deployment import World
from tests.least_roles import ROLES, least_role, least_role_over_accounts
from tests.permissions_table import AUTH, AUTH_BESIDE, STORE, STORE_BESIDE, Row


def named(row: Row) -> str:
    return f"{row.operation}-{row.path.partition('?')[0]}"


@pytest.mark.spec("WHO-03", "WHO-08")
@pytest.mark.parametrize("row", STORE, ids=named)
def test_store_answers_match_permissions_table(world: World, row: Row) -> None:
    assert answered(world, world.store, row) == row.expected


@pytest.mark.spec("WHO-08")
@pytest.mark.parametrize("row", AUTH, ids=named)
def test_authorization_service_answers_match_permissions_table(world: World, row: Row) -> None:
    assert answered(world, world.auth, row) == row.expected


@pytest.mark.spec("WHO-04")
@pytest.mark.parametrize(
    "row", [row for row in STORE if row.operation in OPEN_OPERATIONS], ids=named
)
def test_closed_operations_require_token(world: World, row: Row) -> None:
    closed = {} if row.operation in NEVER_CLOSED else {"anonymous": 401}
    assert answered(world, world.closed, row) == row.expected | closed


def answered(world: World, client: FlaskClient, row: Row) -> dict[str, int]:
    return {caller: world.status(client, row, caller) for caller in row.expected}


@pytest.mark.spec("WHO-08")
def test_the_table_has_every_operation() -> None:
    beside = {"get_health", "get_metrics", CHECKOUT_ELSEWHERE}
    assert {row.operation for row in STORE} == {one.name for one in OPERATIONS} | beside
    assert {row.operation for row in AUTH} == {one.name for one in OF_AUTH}


@pytest.mark.spec("WHO-08")
def test_roles_of_table_match_policies() -> None:
    least = [(row, least_role(row.operation)) for row in STORE]
    judged = [row for row in AUTH if row.operation in REQUIRED_ACTIONS]
    least += [(row, least_role_over_accounts(row.operation)) for row in judged]
    for row, role in least:
        enough = ROLES[ROLES.index(role) if role else 0 :]
        for caller, has in zip(("reader", "ingester", "admin"), ROLES, strict=True):
            let = row.expected[caller] not in (401, 403)
            assert let == (has in enough) or (row.owner and not let), row


@pytest.mark.spec("WHO-08")
@pytest.mark.parametrize(
    ("which", "rows", "beside"), [("store", STORE, STORE_BESIDE), ("auth", AUTH, AUTH_BESIDE)]
)
def test_no_way_into_an_application_is_forgotten(
    world: World, which: str, rows: Sequence[Row], beside: Mapping[str, str]
) -> None:
    operations = {row.operation.replace(".", "_") for row in rows}
    asked = {row.path.partition("?")[0] for row in rows}
    client: FlaskClient = getattr(world, which)
    ways = {
        rule.rule
        for rule in client.application.url_map.iter_rules()
        if rule.endpoint.partition(" ")[0] not in operations
        and not rule.endpoint.startswith("other methods ")
    }
    assert ways - asked == beside.keys()
