"""The commands `token` and `rotate-key`."""

import math
import time
import uuid

import click

from auth.login.users import parse_user_email
from auth.tokens import issuance
from auth.tokens.issuance import TokenSpec
from auth.tokens.signing_keys import SigningAlgorithm, rotate_key_file
from config import Settings

MAX_TOKEN_HOURS = 10 * 365 * 24


def _check_hours(hours: float) -> float:
    """A range lets through what is no number."""
    if math.isnan(hours):
        raise click.BadParameter("It is not a number.")
    return hours


@click.command()
@click.option("--email", required=True, help="Whom the token names.")
@click.option("--groups", default="", help="Groups it claims, by commas; store_admin may all.")
@click.option(
    "--hours",
    default=12.0,
    type=click.FloatRange(0.01, MAX_TOKEN_HOURS),
    callback=lambda _context, _option, hours: _check_hours(hours),
    show_default=True,
    help="How long it is good.",
)
@click.pass_obj
def token(settings: Settings, email: str, groups: str, hours: float) -> None:
    """Print a bearer token signed with the store's own key."""
    claimed = tuple(part.strip() for part in groups.split(",") if part.strip())
    grant = TokenSpec(parse_user_email(email), claimed, int(hours * 3600))
    click.echo(issuance.create_token(settings, grant, now=time.time(), token_id=str(uuid.uuid4())))


@click.command(name="rotate-key")
@click.option("--leaked", is_flag=True, help="Whatever was signed so far ends at once.")
@click.option(
    "--algorithm",
    type=click.Choice(["RS256", "ES256"]),
    default="RS256",
    show_default=True,
    help="What the new key signs with.",
)
@click.pass_obj
def rotate_key(settings: Settings, leaked: bool, algorithm: SigningAlgorithm) -> None:
    """Sign new tokens with a new key; old ones hold.

    A key before it goes at a rotation after the last of its tokens has ended. Processes notice at
    once; bring secrets/signing-keys.json of the home to every other machine that runs `api` or
    `auth`. If a key leaked, give --leaked: all tokens end, admin.token too, which is made anew at
    the next start once it is removed.
    """
    keys = rotate_key_file(
        settings.home,
        algorithm,
        now=time.time(),
        life_s=settings.access_token_s,
        given=settings.secret_key,
        drop=leaked,
    )
    held = len(keys.keys) - 1
    click.echo(f"New tokens are signed with a new key; {held} before it still hold.")
