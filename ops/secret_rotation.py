"""Encrypt the signing keys of subscriptions with the store's new secret, while it runs.

Each key is replaced only if it has not changed meanwhile, so nothing is lost when this is
interrupted, repeated, or races with a subscriber who sets a new key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipelines.subscriptions import SECRET_PURPOSE, secret_context
from storage.catalog import Catalog, subscriptions
from storage.encryption import SecretBox, derive_keys
from storage.errors import Unavailable

PAGE = 500
MAX_PASSES = 10
"""Passes over all keys; another is needed only while processes use the former secret."""
_COLUMNS = ("hmac_secret", "hmac_previous")


@dataclass(slots=True)
class RotationProgress:
    """Signing keys of this pass: seen, found with the former secret, encrypted again, lost."""

    seen: int = 0
    former: int = 0
    changed: int = 0
    unreadable: list[str] = field(default_factory=list)
    """Subscriptions with a key that no secret decrypts."""


def rotate_subscription_secrets(
    catalog: Catalog, secrets: Sequence[str], report: Callable[[RotationProgress], None]
) -> RotationProgress:
    """Encrypt all signing keys with the first secret, until a pass finds none of the others.

    Returns the last pass, with the changes of all.
    """
    current, *former = derive_keys(secrets, SECRET_PURPOSE)
    new, old = SecretBox(current), SecretBox(*former)
    changed = 0
    for _ in range(MAX_PASSES):
        progress = _run_pass(catalog, new, old, report)
        changed += progress.changed
        # A key that changed under this pass may have moved to the other column.
        if not progress.former:
            progress.changed = changed
            return progress
    raise Unavailable(
        "New signing keys are still encrypted with the former secret: restart every process with"
        " the new STORE_SECRET_KEY, and run this again."
    )


def _run_pass(
    catalog: Catalog, new: SecretBox, old: SecretBox, report: Callable[[RotationProgress], None]
) -> RotationProgress:
    progress, after_id = RotationProgress(), 0
    while True:
        with catalog.write() as tx:
            page = subscriptions.list_sealed_secrets(tx, after_id=after_id, limit=PAGE)
            for row in page:
                context = secret_context(row.uuid)
                for column in _COLUMNS:
                    sealed: bytes | None = getattr(row, column)
                    if sealed is None:
                        continue
                    progress.seen += 1
                    if _try_open(new, sealed, context) is not None:
                        continue
                    plain = _try_open(old, sealed, context)
                    if plain is None:
                        progress.unreadable.append(row.uuid)
                        continue
                    progress.former += 1
                    progress.changed += subscriptions.replace_sealed_secret(
                        tx, row.id, column, sealed, new.seal(plain, context)
                    )
        report(progress)
        if len(page) < PAGE:
            return progress
        after_id = page[-1].id


def _try_open(box: SecretBox, sealed: bytes, context: bytes) -> bytes | None:
    try:
        return box.open(sealed, context)
    except Unavailable:
        return None
