"""The command `secrets rotate`: encrypt stored secrets with the store's new secret, while it runs.

The signing key of a subscription is replaced only if it has not changed meanwhile, so nothing is
lost when this is interrupted, repeated, or races with a subscriber who sets a new key.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import click

from auth.tokens.signing_keys import reseal_key_file
from config import Settings
from ops.commands import format_time, open_catalog
from ops.output import CommandOutput, prints_output
from pipelines.subscriptions import SECRET_PURPOSE, secret_context
from storage.catalog import Catalog, subscriptions
from storage.connect import check_secrets
from storage.encryption import SecretBox, derive_keys
from storage.errors import Unavailable

_REPORT_S = 5.0
PAGE = 500
MAX_PASSES = 10
"""Passes over all keys; another is needed only while processes use the former secret."""
_COLUMNS = ("hmac_secret", "hmac_previous")


@click.group()
def secrets() -> None:
    """Change STORE_SECRET_KEY."""


@secrets.command()
@click.pass_obj
@prints_output
def rotate(settings: Settings) -> CommandOutput:
    """Encrypt stored secrets with the new STORE_SECRET_KEY, while the store runs.

    Before, every process runs with the new key in STORE_SECRET_KEY and the former one in
    STORE_SECRET_KEY_PREVIOUS: docs/operations.md, "Change the secret". The signing keys of
    subscriptions and of this home's tokens are encrypted again. If it is interrupted, run it again.
    """
    new, previous = settings.secret_key, settings.secret_key_previous
    if not new or not previous or new == previous:
        raise click.ClickException(
            "Set STORE_SECRET_KEY to the new key and STORE_SECRET_KEY_PREVIOUS to the former one"
            " (without a setting it is in secrets/store of the home)."
        )
    check_secrets(settings)
    reported = time.monotonic()

    def report(progress: RotationProgress) -> None:
        nonlocal reported
        if time.monotonic() > reported + _REPORT_S:
            reported = time.monotonic()
            click.echo(f"{progress.seen} signing keys seen, {progress.changed} changed", err=True)

    with closing(open_catalog(settings)) as catalog:
        done = rotate_subscription_secrets(catalog, settings.secret_keys, report)
    resealed = reseal_key_file(settings.home, settings.secret_keys)
    life_s = max(settings.signed_url_s, settings.areas_credentials_s, settings.session_s)
    ends = format_time(int((time.time() + life_s) * 1e6))
    value = {
        "subscription_keys": done.seen,
        "changed": done.changed,
        "unreadable": done.unreadable,
        "token_keys_changed": resealed,
        "remove_previous_after": ends,
    }
    if done.unreadable:
        error = (
            f"{len(done.unreadable)} signing keys of subscriptions are encrypted with another key"
            f" than these two: {', '.join(done.unreadable[:10])}"
        )
        return CommandOutput(value, error=error)
    text = (
        f"{done.seen} signing keys of subscriptions are encrypted with the new key, {done.changed}"
        f" of them now. Presigned URLs and browser sessions of before end by {ends}: then run this"
        " again, and remove STORE_SECRET_KEY_PREVIOUS if it changes none."
    )
    return CommandOutput(value, text)


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
