"""The command `secrets rotate`."""

import time
from contextlib import closing

import click

from auth.tokens.signing_keys import reseal_key_file
from config import Settings
from ops.commands import format_time, open_catalog
from ops.output import CommandOutput, prints_output
from ops.secret_rotation import RotationProgress, rotate_subscription_secrets
from storage.connect import check_secrets

_REPORT_S = 5.0


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
