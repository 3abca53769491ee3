"""The signing keys of subscriptions under a new secret of the store."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from uuid import uuid4

import pytest
from sqlalchemy import update

from ops.secrets import PAGE, RotationProgress, rotate_subscription_secrets
from pipelines.subscriptions import SECRET_PURPOSE, secret_context
from storage.catalog import subscriptions
from storage.catalog.subscriptions import SealedSecrets, Subscription
from storage.catalog.subscriptions import subscriptions as table
from storage.encryption import SecretBox, derive_keys
from storage.errors import Unavailable
from storage.stores import Stores
from tests.subscription_builders import subscribe

pytestmark = pytest.mark.spec("OPS-43")

SECRETS = ("the new secret of tests", "the old secret of tests")
NEW, OLD = (SecretBox(key) for key in derive_keys(SECRETS, SECRET_PURPOSE))


def sign_up(stores: Stores, box: SecretBox, *, previous: SecretBox | None = None) -> Subscription:
    uuid = str(uuid4())
    context = secret_context(uuid)
    made = subscribe(
        stores.catalog,
        "https://receiver.example/hook",
        uuid=uuid,
        hmac_secret=box.seal(b"the key", context),
    )
    if previous is not None:
        former = previous.seal(b"the former", context)
        changed = update(table).where(table.c.uuid == uuid).values(hmac_previous=former)
        with stores.catalog.write() as tx:
            tx.execute(changed)
    return made


def ignore(_progress: RotationProgress) -> None:
    pass


def list_sealed(stores: Stores) -> list[SealedSecrets]:
    with stores.catalog.read() as tx:
        return subscriptions.list_sealed_secrets(tx, after_id=0, limit=10_000)


def open_all(stores: Stores, box: SecretBox) -> Iterator[bytes]:
    for row in list_sealed(stores):
        for sealed in (row.hmac_secret, row.hmac_previous):
            if sealed is not None:
                yield box.open(sealed, secret_context(row.uuid))


def test_all_keys_are_encrypted_again_once(stores: Stores) -> None:
    sign_up(stores, OLD)
    sign_up(stores, NEW, previous=OLD)
    subscribe(stores.catalog, "https://receiver.example/unsigned")
    done = rotate_subscription_secrets(stores.catalog, SECRETS, ignore)
    assert (done.seen, done.changed, done.unreadable) == (3, 2, [])
    assert list(open_all(stores, NEW)) == [b"the key", b"the key", b"the former"]
    assert rotate_subscription_secrets(stores.catalog, SECRETS, ignore).changed == 0


def test_more_than_a_page_and_an_interruption_lose_nothing(stores: Stores) -> None:
    for _ in range(PAGE + 1):
        sign_up(stores, OLD)

    def stop(_progress: RotationProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rotate_subscription_secrets(stores.catalog, SECRETS, stop)
    both = SecretBox(*derive_keys(SECRETS, SECRET_PURPOSE))
    assert set(open_all(stores, both)) == {b"the key"}
    assert rotate_subscription_secrets(stores.catalog, SECRETS, ignore).changed == 1
    assert set(open_all(stores, NEW)) == {b"the key"}


def test_a_writer_with_the_former_secret_is_followed(stores: Stores) -> None:
    sign_up(stores, OLD)
    numbers = count()

    def write(_progress: RotationProgress) -> None:
        if next(numbers) < 2:
            sign_up(stores, OLD)

    done = rotate_subscription_secrets(stores.catalog, SECRETS, write)
    assert (done.seen, done.changed) == (3, 3)
    assert list(open_all(stores, NEW)) == [b"the key"] * 3


def test_writers_that_never_stop_are_named(stores: Stores) -> None:
    sign_up(stores, OLD)

    def write(_progress: RotationProgress) -> None:
        sign_up(stores, OLD)

    with pytest.raises(Unavailable, match="restart every process"):
        rotate_subscription_secrets(stores.catalog, SECRETS, write)


def test_a_key_that_changed_meanwhile_stays(stores: Stores) -> None:
    made = sign_up(stores, OLD)
    (row,) = list_sealed(stores)
    assert row.hmac_secret is not None
    with stores.catalog.write() as tx:
        arguments = (tx, row.id, "hmac_secret")
        theirs, ours = (NEW.seal(key, secret_context(made.uuid)) for key in (b"theirs", b"ours"))
        assert subscriptions.replace_sealed_secret(*arguments, row.hmac_secret, theirs)
        assert not subscriptions.replace_sealed_secret(*arguments, row.hmac_secret, ours)
    assert list(open_all(stores, NEW)) == [b"theirs"]


def test_two_rotations_at_once_lose_nothing(stores: Stores) -> None:
    for _ in range(20):
        sign_up(stores, OLD, previous=OLD)
    with ThreadPoolExecutor(2) as pool:
        racing = [
            pool.submit(rotate_subscription_secrets, stores.catalog, SECRETS, ignore)
            for _ in range(2)
        ]
        assert sum(one.result(60).changed for one in racing) == 40
    assert list(open_all(stores, NEW)) == [b"the key", b"the former"] * 20


def test_a_key_of_a_third_secret_is_named_and_stays(stores: Stores) -> None:
    lost = sign_up(stores, SecretBox(b"x" * 32))
    sign_up(stores, OLD)
    done = rotate_subscription_secrets(stores.catalog, SECRETS, ignore)
    assert (done.changed, done.unreadable) == (1, [lost.uuid])
