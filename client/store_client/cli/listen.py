"""The command listen: follow bundles as they appear, and forward test webhooks."""

import importlib
import re
import secrets
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

import click

from store_client.atomic_files import parse_json_object
from store_client.cli.answers import dump_json
from store_client.cli.arguments import JsonValue, SecretText
from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import replica_option
from store_client.cli.terminal import escape_line
from store_client.errors import Misused, NotAllowed
from store_client.identifiers import create_version, parse_version
from store_client.progress import format_count

if TYPE_CHECKING:
    from store_client.listener import FeedMatch, ForwardResult, WebhookForwarder

ABOUT = """Follow bundles as they appear, and forward test webhooks to your own machine.

Every event that a subscription with this query would be notified of is one line: a row on a
terminal, else JSON with the notification. With --forward-to each is also sent to that URL, with the
body, headers and signatures that the store would send; so a receiver can be tried without an
address that the store can reach.

The store decides what matches, but creates no subscription: nothing is left there afterwards.
Nothing is sent twice; what your receiver does not take is reported, and not tried again. After
broken connections it continues where it was. Ctrl-C ends it. You need to be logged in, with the
permission to try subscriptions (store:DryRunSubscription) and to read events
(store:GetEventsFeed)."""
EXAMPLES = """\b
Examples:
  store listen
  store listen --query "event_type == 'CREATE'" --forward-to http://127.0.0.1:9099/notify
  store listen --query '{"match": {"files.specimen_json.organism": "danio"}}' --since 7d
  store listen --types tombstone --since 2026-01-31 --limit 10
"""
TYPES = ("create", "tombstone", "delete")
QUERY_TYPES = ("jmespath", "elasticsearch")
MAX_SECRET = 1024
"""Characters of a secret, as the store takes them."""
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@command("listen", help=ABOUT, epilog=EXAMPLES)
@click.option(
    "--query",
    type=SecretText(),
    help="JMESPath on the bundle's document, or an Elasticsearch query in JSON.  [default: all]",
)
@click.option(
    "--query-type",
    type=click.Choice(QUERY_TYPES),
    help="Which of them.  [default: elasticsearch for a JSON object]",
)
@click.option("--attachments", type=JsonValue(), help="Values to send, as subscriptions have them.")
@replica_option
@click.option(
    "--types",
    help="Only these, with commas: create (new bundles), tombstone (deleted), delete (purged).",
)
@click.option(
    "--since",
    help="Begin then: 2h, 7d, a date, a time of ISO 8601 (UTC) or a version.  [default: now]",
)
@click.option("--forward-to", metavar="URL", help="Send each as a signed webhook.")
@click.option(
    "--secret-file", type=click.File(), help="Holds the secret, or -.  [default: a new one]"
)
@click.option("--limit", type=click.IntRange(1), help="End after so many lines.")
def listen(
    here: CommandContext,
    replica: str | None,
    limit: int | None,
    **given: Any,
) -> None:
    query = _parse_query(given["query"], given["query_type"], given["attachments"])
    types, since = _parse_types(given["types"]), _parse_since(given["since"])
    here.check_fields(FIELDS)
    listener: Any = importlib.import_module("store_client.listener")
    chosen = here.replica(replica)
    finder = listener.MatchFinder(here.client, chosen, query)
    feed = listener.EventFeed(here.client, chosen)
    counts = ListenCounts()
    with ExitStack() as stack:
        forwarder = _open_forwarder(
            here, stack, given["forward_to"], given["secret_file"], finder.subscription_id
        )
        _begin(feed, finder, since)
        here.note(f"Listening to {chosen} at {here.config.url}. Ctrl-C ends.")
        stack.callback(lambda: here.note(str(counts)))
        for events in feed.follow():
            counts.events += len(events)
            wanted = [one for one in events if one["event_type"] in types]
            for match in finder.find(wanted):
                result = None if match.error or not forwarder else forwarder.send(match.payload)
                counts.add(match, result)
                _show(here, match, result)
                if counts.lines == limit:
                    return


FIELDS = ("timestamp", "event_type", "bundle", "payload", "error", "forward")


@dataclass
class ListenCounts:
    """What happened while listening; its text is the summary."""

    events: int = 0
    lines: int = 0
    matched: int = 0
    forwarded: int = 0
    failed: int = 0

    def add(self, match: "FeedMatch", result: "ForwardResult | None") -> None:
        """Count a match, or a query that failed."""
        self.lines += 1
        self.matched += not match.error
        self.forwarded += result is not None and result.is_delivered
        self.failed += bool(match.error) or (result is not None and not result.is_delivered)

    def __str__(self) -> str:
        events = format_count(self.events, "event")
        return f"{events}, {self.matched} matched, {self.forwarded} forwarded, {self.failed} failed"


def _open_forwarder(
    here: CommandContext,
    stack: ExitStack,
    url: str | None,
    secret_file: TextIO | None,
    subscription_id: str,
) -> "WebhookForwarder | None":
    """Open what forwards, and show a new secret."""
    if url is None:
        if secret_file is not None:
            raise Misused("--secret-file: signs what is forwarded", hint="give --forward-to URL")
        return None
    secret = _read_secret(secret_file) if secret_file else secrets.token_urlsafe(32)
    listener: Any = importlib.import_module("store_client.listener")
    opened: WebhookForwarder = stack.enter_context(
        listener.WebhookForwarder(url, secret, key_id=f"store:{subscription_id}")
    )
    here.note(f"Forwarding to {opened.url}")
    if secret_file is None:
        # Shown with --quiet, too: without it no receiver can verify anything.
        click.echo(f"The secret of this run is {secret}", err=True)
    return opened


def _begin(feed: Any, finder: Any, since: str | None) -> None:
    """Try query and feed once, so that errors show at once; name the missing permission."""
    try:
        # First, so that what happens while the query is checked is not missed.
        feed.open(since)
        finder.check()
    except NotAllowed as error:
        error.hint = (
            f"{error.hint}; listening needs the permissions store:GetEventsFeed and"
            " store:DryRunSubscription, as for subscriptions"
        ).lstrip("; ")
        raise


def _show(here: CommandContext, match: "FeedMatch", result: "ForwardResult | None") -> None:
    event = match.event
    bundle = f"{event['bundle_uuid']}.{event['bundle_version']}"
    if here.output == "table":
        moment = parse_version(str(event["timestamp"]))
        row = f"{moment:%Y-%m-%d %H:%M:%S}  {event['event_type']:9}  {bundle}"
        click.echo(escape_line(f"{row}  {_describe(match, result)}".rstrip()))
        return
    line: dict[str, Any] = {
        "timestamp": event["timestamp"],
        "event_type": event["event_type"],
        "bundle": bundle,
    }
    if match.error:
        line["error"] = match.error
    else:
        line["payload"] = match.payload
    if result is not None:
        line["forward"] = {
            "status": result.status,
            "seconds": round(result.seconds, 3),
            **({"error": result.error} if result.error else {}),
        }
    if fields := here.answer.fields:
        line = {name: line.get(name) for name in fields}
    click.echo(dump_json(line, indent=False))


def _describe(match: "FeedMatch", result: "ForwardResult | None") -> str:
    if match.error:
        return match.error
    if result is None:
        return ""
    return f"{result.status or result.error} ({result.seconds * 1000:.0f} ms)"


def _parse_query(text: str | None, kind: str | None, attachments: Any) -> dict[str, Any]:
    """Return the members of a subscription for a query; Misused."""
    query: dict[str, Any] = {}
    if attachments is not None:
        query["attachments"] = attachments
    if text is None:
        if kind == "elasticsearch":
            query["es_query"] = {}
        return query
    parsed = parse_json_object(text)
    if kind == "elasticsearch" and parsed is None:
        raise Misused("--query: must be a JSON object, as --query-type elasticsearch says")
    if parsed is not None and kind != "jmespath":
        return query | {"es_query": parsed}
    return query | {"jmespath_query": text}


def _parse_types(text: str | None) -> frozenset[str]:
    if text is None:
        return frozenset(one.upper() for one in TYPES)
    named = [one.strip().lower() for one in text.split(",")]
    for one in named:
        if one not in TYPES:
            raise Misused(f"--types: {one!r} is unknown", hint=f"give some of {','.join(TYPES)}")
    return frozenset(one.upper() for one in named)


def _parse_since(text: str | None) -> str | None:
    """Return the version of a time: a span before now, ISO 8601, or a version; Misused."""
    if text is None:
        return None
    try:
        if found := re.fullmatch(r"([0-9]{1,6})([smhdw])", text):
            return create_version(datetime.now(UTC) - timedelta(**{UNITS[found[2]]: int(found[1])}))
        moment = _parse_time(text)
    except (ValueError, OverflowError):
        raise Misused(
            f"--since: {text!r} is not a time",
            hint="for example 2h, 7d, 2026-01-31, 2026-01-31T12:00Z or a version",
        ) from None
    return create_version(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _parse_time(text: str) -> datetime:
    try:
        return parse_version(text)
    except Misused:
        return datetime.fromisoformat(text)


def _read_secret(file: TextIO) -> str:
    if file is sys.stdin and sys.stdin.isatty():
        click.echo("Type the secret, then Enter and Ctrl-D.", err=True)
    try:
        secret = file.read(MAX_SECRET + 2).rstrip("\r\n")
    except UnicodeDecodeError:
        raise Misused("--secret-file: is not text in UTF-8") from None
    if not secret or len(secret) > MAX_SECRET:
        raise Misused(f"--secret-file: must hold 1 to {MAX_SECRET} characters")
    return secret
