"""The commands about who we are: login, logout, whoami, profiles. No token is ever shown."""

import os
import sys
from dataclasses import asdict, replace
from typing import Any, TextIO

import click

from store_client.cli import registry
from store_client.cli.frame import Here, command
from store_client.configuration import (
    Configuration,
    default_profile,
    keep_profile,
    normal_url,
    url_of_profile,
)
from store_client.configuration import profiles as all_profiles
from store_client.errors import Misused, Unreachable
from store_client.login import entering
from store_client.login.browser import WAIT_S
from store_client.login.checking import Checked
from store_client.login.expiry import MAX_TOKEN, moment
from store_client.login.logout import logout as log_out
from store_client.login.tokens import VARIABLE, anonymous, tokens_of
from store_client.login.whoami import NOBODY, Who, known
from store_client.login.whoami import whoami as who_is
from store_client.transport.session import Session

HOW_TO_LOG_IN = """\b
Examples:
  store login --url https://store.example --profile work    a store, and a name for it
  store login                                               again, at the store in use
  store login --remote                                      from a machine without a browser
  store login --access-token - < token.txt                  with a token that you have
"""


@command(
    "login",
    help="Log in to a store and keep the credentials, for this user of this machine alone.",
    section=registry.IDENTITY,
    epilog=HOW_TO_LOG_IN,
)
@click.option("--access-token", default="", help="A token that you have; - reads it from stdin.")
@click.option("--remote", is_flag=True, help="There is no browser here: enter a code elsewhere.")
@click.option("--default", "default", is_flag=True, help="Mean this profile when none is named.")
@click.option(
    "--timeout-seconds",
    type=click.FloatRange(1, 3600),
    default=WAIT_S,
    show_default=True,
    help="How long to wait for the browser.",
)
def login(
    here: Here, access_token: str, remote: bool, default: bool, timeout_seconds: float
) -> None:
    """By a token, a code entered elsewhere, or at the browser."""
    if access_token and remote:
        raise Misused("give --access-token or --remote, not both")
    if default and not here.config.profile:
        raise Misused("--default wants a profile", hint="name one: --profile NAME")
    # What a person has to do is said even with --quiet.
    around = entering.Around(say=lambda text: click.echo(text, err=True), wait_s=timeout_seconds)
    with Session(here.config.url) as session:
        if access_token:
            token = _typed(here, access_token)
            found = entering.with_token(session, here.config, token, around=around)
        else:
            found = entering.with_consent(session, here.config, around=around, elsewhere=remote)
    _name(here, default=default)
    _tell(here, found)


@command("logout", help="End the login and forget the credentials.", section=registry.IDENTITY)
def logout(here: Here) -> None:
    """Forgotten even where the service cannot be told."""
    with anonymous(here.config) as session:
        left = log_out(session, here.config)
    if here.json and here.chosen:
        here.show({"url": here.config.url, **asdict(left), "expires": _time(left.expires)})
    elif not left.was_in:
        here.note(f"Nobody was logged in at {here.config.url}.")
    elif left.revoked:
        here.note(f"Logged out of {here.config.url}; the login is ended there, too.")
    else:
        until = f" until {moment(left.expires)}" if left.expires else ""
        here.note(f"Logged out of {here.config.url} on this machine.")
        here.note(f"Whoever has the token may use it{until}: {left.why_not or 'it is not known'}.")
    if os.environ.get(VARIABLE):
        here.note(f"{VARIABLE} is set: commands go on as that service account.")


@command("whoami", help="Tell who the store takes you for.", section=registry.IDENTITY)
def whoami(here: Here) -> None:
    """Exit code 4 when for nobody; what is kept is shown when the store cannot be asked."""
    with anonymous(here.config) as session:
        try:
            found = who_is(session, here.config, tokens_of(here.config))
        except Unreachable:
            kept = known(here.config)
            if kept.how != NOBODY:
                here.show({**_shown(here.config, kept), "checked": False})
            raise
    here.show({**_shown(here.config, found), "checked": True})


@command("profiles", help="List the stores that have a name.", section=registry.IDENTITY)
@click.option("--default", "chosen", metavar="NAME", help="Mean this one when none is named.")
def profiles(here: Here, chosen: str | None) -> None:
    """With who is logged in at each, as far as it is known without asking."""
    named = all_profiles(here.config)
    if chosen is not None:
        url = url_of_profile(here.config, chosen)
        keep_profile(replace(here.config, url=url), chosen, default=True)
    usual = default_profile(here.config)
    here.show(
        [
            {
                "profile": name,
                "url": url,
                "default": name == usual,
                **_logged_in(replace(here.config, url=normal_url(url), profile=name)),
            }
            for name, url in sorted(named.items())
        ],
        title="profiles",
    )
    if not named:
        here.note("There are none. To make one: store login --url URL --profile NAME")


def _typed(here: Here, given: str) -> str:
    """The token of the option, or of standard input: there it is in no list of commands."""
    if given != "-":
        here.note("The token is in your shell's history now; --access-token - reads it from stdin.")
        return given
    stream: TextIO | None = sys.stdin  # None: the shell closed it
    if stream is not None and stream.isatty():
        return str(click.prompt("Token", hide_input=True, err=True))
    found = stream.read(2 * MAX_TOKEN) if stream is not None else ""
    if not found.strip():
        raise Misused("there is no token on standard input")
    return found


def _name(here: Here, *, default: bool) -> None:
    """Keep the name that the store was given; the first one is meant when none is named."""
    config = here.config
    if config.profile:
        first = not default_profile(config)
        keep_profile(config, config.profile, default=default or first)
        if first and not default:
            here.note(f"{config.profile} is what is meant when no profile is named.")


def _tell(here: Here, found: Checked) -> None:
    if here.json and here.chosen:
        shown = {"url": here.config.url, "profile": here.config.profile, "email": found.email}
        here.show({**shown, "expires": _time(found.expires)})
    who = known(here.config, environ={})
    until = "" if who.renews or not found.expires else f" until {moment(found.expires)}"
    here.note(f"Logged in at {here.config.url} as {found.email}{until}.")
    if os.environ.get(VARIABLE):
        here.note(f"{VARIABLE} is set, and goes before this login.")


def _shown(config: Configuration, who: Who) -> dict[str, Any]:
    return {
        "url": config.url,
        "profile": config.profile,
        "email": who.email,
        "how": who.how,
        "issuer": who.issuer,
        "groups": list(who.groups),
        "expires": _time(who.expires),
        "renews": who.renews,
        "standing": who.standing.value,
    }


def _logged_in(config: Configuration) -> dict[str, Any]:
    who = known(config, environ={})
    return {"email": who.email, "standing": "" if who.how == NOBODY else who.standing.value}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else moment(seconds)
