"""Two browsers that send the same form at once."""

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from auth.login.links import create_login_link, use_link
from auth.oauth.personal_tokens import MAX_PERSONAL_TOKENS
from config import Settings
from storage.catalog import oauth
from storage.errors import Invalid
from storage.stores import Stores
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.subscription_builders import subscribe, tell, told
from tests.web.conftest import Visit, Visitor
from tests.web.test_administration import POLICY

ROUNDS = 5
MINE = "ingest@example.org"


def at_once(*acts: Callable[[], object]) -> list[object]:
    """Run these in threads that begin together; return what each returned."""
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> object:
        barrier.wait(10)
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def statuses(visitor: Visitor, path: str, *forms: dict[str, str]) -> list[int]:
    """The statuses of forms that are sent at once."""
    others = [Visitor(visitor.app, visitor.person) for _ in forms]

    def send(other: Visitor, form: dict[str, str]) -> Callable[[], int]:
        return lambda: other.post(path, **form).status_code

    found = at_once(*(send(*each) for each in zip(others, forms, strict=True)))
    return sorted(int(str(one)) for one in found)


def test_one_of_two_editors_of_a_policy_wins(visit: Visit) -> None:
    admin, path = visit("admin"), "/admin/roles/racing/policy"
    made = admin.post("/admin/new-role", id="racing", policy=str(POLICY).replace("'", '"'))
    assert made.status_code == 303, made.text
    for number in range(ROUNDS):
        base = re.search(r'name="base" value="([^"]+)"', admin.get(path).text)
        assert base is not None
        forms = [
            {
                "base": base[1],
                "policy": str(POLICY).replace("'", '"').replace("Deposits", f"S{number}{which}"),
            }
            for which in "ab"
        ]
        assert statuses(admin, path, *forms) == [303, 409]


def test_one_of_two_editors_of_a_collection_wins(visit: Visit, depositor: Depositor) -> None:
    mine = visit("ingest")
    made = mine.client.put(
        f"/v1/collections?uuid={uuid_of(3)}&version={VERSION}&replica=aws",
        json={"name": "n", "description": "", "details": {}, "contents": []},
        headers=INGEST,
    )
    assert made.status_code == 201
    for number in range(ROUNDS):
        page = mine.get(f"/collections/{uuid_of(3)}/edit?replica=aws")
        path = re.search(r'action="(/collections/[^"]+/edit[^"]+)"', page.text)
        assert path is not None
        forms = [{"name": f"{number} {which}", "description": ""} for which in "ab"]
        assert statuses(mine, path[1].replace("&amp;", "&"), *forms) == [303, 409]


def test_delivery_that_is_resent_twice_is_sent_once(visit: Visit, stores: Stores) -> None:
    own = subscribe(stores.catalog, "https://receiver.example/", owner=MINE)
    tell(stores.catalog, [own])
    (one,) = told(stores.catalog, own)
    path = f"/subscriptions/{own.uuid}/deliveries/{one.uuid}/resend"
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE deliveries SET state = 'failed', finished_us = 1")
    assert statuses(visit("ingest"), path, {}, {}) == [303, 303]
    (again,) = told(stores.catalog, own)
    assert again.state == "pending"
    with stores.catalog.read() as tx:
        found = tx.exec_driver_sql("SELECT resent_from FROM deliveries").scalars().all()
    assert found == ["failed"]


def test_one_of_two_tokens_of_a_name_is_made(visit: Visit, stores: Stores) -> None:
    mine = visit("ingest")
    for number in range(ROUNDS):
        form = {"name": f"token {number}", "days": "1"}
        assert statuses(mine, "/account/tokens", form, form) == [200, 400]
    with stores.catalog.read() as tx:
        held = oauth.list_personal_tokens(tx, MINE, int(time.time() * 1e6))
    assert len(held) == ROUNDS


def test_number_of_tokens_is_bounded_at_once(visit: Visit, stores: Stores) -> None:
    mine = visit("ingest")
    for number in range(MAX_PERSONAL_TOKENS - 1):
        assert mine.post("/account/tokens", name=f"n{number}", days="1").status_code == 200
    forms = [{"name": f"last {which}", "days": "1"} for which in range(4)]
    assert statuses(mine, "/account/tokens", *forms) == [200, 400, 400, 400]


def test_login_link_logs_in_once(keyed_settings: Settings, stores: Stores) -> None:
    def use(token: str) -> str:
        try:
            return use_link(stores.catalog, token, time.time())
        except Invalid:
            return "refused"

    for _ in range(ROUNDS):
        link = create_login_link(stores.catalog, keyed_settings, MINE, now=time.time())
        users = at_once(*[partial(use, link.url.partition("token=")[2])] * 4)
        assert sorted(map(str, users)) == [MINE, *["refused"] * 3]
