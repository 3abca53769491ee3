"""The commands login, logout, whoami and profiles. No token is ever shown."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, TextIO

import click

from store_client.auth import login as logins
from store_client.auth.claims import MAX_TOKEN, format_moment
from store_client.auth.credentials import CREDENTIALS_VARIABLE
from store_client.auth.identity import ANONYMOUS, CallerIdentity, VerifiedToken, local_identity
from store_client.auth.identity import fetch_identity as who_is
from store_client.auth.tokens import anonymous_session, open_tokens
from store_client.cli.answers import AnswerOptions, write_record
from store_client.cli.context import CommandContext, command
from store_client.configuration import (
    Configuration,
    read_profiles,
    save_profile,
)
from store_client.errors import Misused, NotAllowed, Refused, Unreachable
from store_client.http.session import HttpSession
from store_client.identifiers import REPLICAS

LOGIN_EPILOG = """\b
Examples:
  store login --url https://store.example --profile work    a store, and a name for it
  store login                                               again, at the store in use
  store login --remote                                      from a machine without a browser
  store login --access-token - < token.txt                  with a token that you have
"""


@command(
    "login",
    help="Log in to a store and save the credentials, readable only by you.",
    epilog=LOGIN_EPILOG,
)
@click.option("--access-token", default="", help="An access token; - reads it from stdin.")
@click.option("--remote", is_flag=True, help="Log in on another device with a code.")
@click.option("--default", "default", is_flag=True, help="Make this the default profile.")
@click.option("--replica", type=click.Choice(REPLICAS), help="The profile's default replica.")
@click.option(
    "--timeout-seconds",
    type=click.FloatRange(1, 3600),
    default=logins.WAIT_S,
    show_default=True,
    help="How long to wait for the browser.",
)
def login(
    here: CommandContext,
    access_token: str,
    remote: bool,
    default: bool,
    replica: str | None,
    timeout_seconds: float,
) -> None:
    if access_token and remote:
        raise Misused("give --access-token or --remote, not both")
    if default and not here.config.profile:
        raise Misused("--default needs a profile", hint="name one: --profile NAME")
    if replica and not here.config.profile:
        raise Misused("--replica is kept in a profile", hint="name one: --profile NAME")
    here.check_fields(("url", "profile", "email", "expires"))
    # What a person has to do is said even with --quiet.
    around = logins.LoginPrompts(
        say=lambda text: click.echo(text, err=True), wait_s=timeout_seconds
    )
    with HttpSession(here.config.url) as session:
        if access_token:
            token = _read_token(here, access_token)
            found = logins.login_with_token(session, here.config, token, around=around)
        else:
            found = logins.login_with_consent(session, here.config, around=around, elsewhere=remote)
    _save_profile_name(here, default=default, replica=replica or "")
    _show_login(here, found)


@command("logout", help="End the login and forget the credentials.", example="store logout")
def logout(here: CommandContext) -> None:
    """Delete the login, even if the service cannot be reached."""
    known = [one.name for one in fields(logins.LogoutResult)]
    here.check_fields(["url", *known])
    with anonymous_session(here.config) as session:
        left = logins.log_out(session, here.config)
    if here.json and here.format_chosen:
        here.show({"url": here.config.url, **asdict(left), "expires": _format_expiry(left.expires)})
    elif not left.was_in:
        here.note(f"You were not logged in at {here.config.url}.")
    elif left.revoked:
        here.note(f"Logged out of {here.config.url}; the login was revoked.")
    else:
        until = f" until {format_moment(left.expires)}" if left.expires else ""
        here.note(f"Logged out of {here.config.url} on this machine.")
        here.note(f"The token stays valid{until}: {left.why_not or 'it is not known'}.")
    if os.environ.get(CREDENTIALS_VARIABLE):
        here.note(f"{CREDENTIALS_VARIABLE} is set: commands still use that service account.")


WHOAMI_EXAMPLES = """\b
Examples:
  store whoami
  store whoami --permissions          each operation, and how far you may use it
"""


ACCOUNT_FIELDS = ("roles", "permissions")
"""What only the store tells of a user."""
HEADS = {"everywhere": "may", "partly": "may, with conditions", "nowhere": "may not"}
"""How far an operation is allowed, and what a terminal calls it."""


@command("whoami", help="Show who you are and what you may do.", epilog=WHOAMI_EXAMPLES)
@click.option("--permissions", is_flag=True, help="List all operations, and which are allowed.")
def whoami(here: CommandContext, permissions: bool) -> None:
    """Show the current user, roles and what they allow; exit code 4 if not logged in.

    If the store cannot be reached, the saved login is shown.
    """
    with anonymous_session(here.config) as session:
        try:
            found = who_is(session, here.config, open_tokens(here.config))
        except Unreachable:
            kept = local_identity(here.config)
            if kept.how != ANONYMOUS and not permissions:
                lacking = dict.fromkeys(ACCOUNT_FIELDS) if here.answer.fields else {}
                here.show({**_identity_row(here.config, kept), "checked": False, **lacking})
            raise
    account = _fetch_account(here)
    rows = account.get("permissions", [])
    if permissions:
        if not account:
            raise NotAllowed("the store does not tell what you may do")
        here.show([{**row, "operation": _command_name(row["operation"])} for row in rows])
        return
    shown = {**_identity_row(here.config, found), "checked": True}
    shown["roles"] = [role["name"] for role in account.get("roles", [])]
    if account:
        shown["permissions"] = {
            _command_name(row["operation"]): row["extent"] for row in rows if row["extent"] in HEADS
        }
    elif here.answer.fields:
        shown["permissions"] = None
    if here.output != "table" or here.format_chosen:
        here.show(shown)
        return
    shown.pop("permissions", None)
    shown["roles"] = ", ".join(map(_describe_role, account.get("roles", []))) or "none"
    shown["groups"] = ", ".join(shown["groups"])
    shown |= _summarize_permissions(rows) if account else {}
    write_record(shown, AnswerOptions("table"))


def _fetch_account(here: CommandContext) -> dict[str, Any]:
    """Roles and permissions; empty if another service, or an earlier release, cannot tell."""
    try:
        answer: dict[str, Any] = here.client.call("get_v1_account")
    except (Misused, Refused):
        return {}
    return answer


def _describe_role(role: Mapping[str, Any]) -> str:
    groups = [group for group in role["groups"] if group]
    return f"{role['name']} (by the group {', '.join(groups)})" if groups else str(role["name"])


def _summarize_permissions(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The operations that need permission, by how far they are allowed."""
    names: dict[str, list[str]] = {extent: [] for extent in HEADS}
    for row in rows:
        if row["extent"] in names:
            names[row["extent"]].append(_command_name(row["operation"]))
    if not names["partly"] and not names["nowhere"]:
        return {"may": f"everything: all {len(names['everywhere'])} operations"}
    return {HEADS[extent]: ", ".join(found) for extent, found in names.items() if found}


def _command_name(operation: str) -> str:
    return operation.replace("_", "-")


@command("profiles", help="List the profiles.", example="store profiles --default work")
@click.option("--default", "chosen", metavar="NAME", help="Make this the default profile.")
@click.option(
    "--replica", type=click.Choice(REPLICAS), help="Default replica of the profile in use."
)
def profiles(here: CommandContext, chosen: str | None, replica: str | None) -> None:
    """List profiles with their saved logins, without any request."""
    here.check_fields(("profile", "url", "default", "replica", "email", "standing"))
    changed = chosen or (here.config.profile if replica else "")
    if replica and not changed:
        raise Misused("--replica is kept in a profile", hint="name one: --profile NAME")
    if changed:
        url = read_profiles(here.config.home).url(changed)
        save_profile(
            replace(here.config, url=url),
            changed,
            default=chosen is not None,
            replica=replica or "",
        )
    known = read_profiles(here.config.home)
    here.show(
        [
            {
                "profile": name,
                "url": entry["url"],
                "default": name == known.default,
                "replica": known.replica(name) or "aws",
                **_login_row(replace(here.config, url=known.url(name), profile=name)),
            }
            for name, entry in sorted(known.entries.items())
        ]
    )
    if not known.entries:
        here.note("No profiles. To create one: store login --url URL --profile NAME")


def _read_token(here: CommandContext, given: str) -> str:
    """The token of the option, or from standard input, which hides it from `ps`."""
    if given != "-":
        here.note(
            "The token is in your shell's history now; use --access-token - to read it from stdin."
        )
        return given
    stream: TextIO | None = sys.stdin  # None: the shell closed it
    if stream is not None and stream.isatty():
        return str(click.prompt("Token", hide_input=True, err=True))
    found = stream.read(2 * MAX_TOKEN) if stream is not None else ""
    if not found.strip():
        raise Misused("there is no token on standard input")
    return found


def _save_profile_name(here: CommandContext, *, default: bool, replica: str) -> None:
    """Save the profile; the first one becomes the default."""
    config = here.config
    if config.profile:
        first = not read_profiles(config.home).default
        save_profile(config, config.profile, default=default or first, replica=replica)
        if first and not default:
            here.note(f"{config.profile} is the default profile now.")


def _show_login(here: CommandContext, found: VerifiedToken) -> None:
    if here.json and here.format_chosen:
        shown = {"url": here.config.url, "profile": here.config.profile, "email": found.email}
        here.show({**shown, "expires": _format_expiry(found.expires)})
    who = local_identity(here.config, environ={})
    until = "" if who.renews or not found.expires else f" until {format_moment(found.expires)}"
    here.note(f"Logged in at {here.config.url} as {found.email}{until}.")
    if os.environ.get(CREDENTIALS_VARIABLE):
        here.note(f"{CREDENTIALS_VARIABLE} is set, and takes precedence over this login.")


def _identity_row(config: Configuration, who: CallerIdentity) -> dict[str, Any]:
    return {
        "url": config.url,
        "profile": config.profile,
        "email": who.email,
        "how": who.how,
        "issuer": who.issuer,
        "groups": list(who.groups),
        "expires": _format_expiry(who.expires),
        "renews": who.renews,
        "standing": who.status.value,
    }


def _login_row(config: Configuration) -> dict[str, Any]:
    who = local_identity(config, environ={})
    return {"email": who.email, "standing": "" if who.how == ANONYMOUS else who.status.value}


def _format_expiry(seconds: float | None) -> str | None:
    return None if seconds is None else format_moment(seconds)
