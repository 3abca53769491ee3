"""The commands `store subscription list|show|create|deliveries|test|pause|resume|delete`."""

from typing import Any, TextIO

import click

from store_client.cli.arguments import JsonValue
from store_client.cli.context import CommandContext, command
from store_client.cli.nouns import (
    id_argument,
    ids_argument,
    limit_option,
    page_query,
    replica_option,
    web_option,
    yes_option,
)
from store_client.errors import Misused
from store_client.references import Reference

CREATE_EXAMPLES = """\b
Examples:
  store subscription create https://pipeline.example/notify --match "event_type == 'CREATE'"
  store subscription create https://pipeline.example/notify --es-query @query.json
  store subscription create URL --match "event_type == 'CREATE'" --secret-file secret.txt
Try the receiver first, without an address that the store can reach: store listen --help
"""
COLUMNS = ("uuid", "state", "subscription_type", "callback_url", "owner")
DELIVERY_COLUMNS = ("recorded", "event_type", "state", "id", "bundle")


@command("list", help="List your subscriptions.", as_answer=True, example="store subscription list")
@replica_option
def list_(here: CommandContext, replica: str | None) -> None:
    found = here.client.call("get_subscriptions", replica=here.replica(replica))
    here.show_rows(found["subscriptions"], COLUMNS, empty="You have no subscriptions.")


@command(
    "show", help="Show a subscription.", as_answer=True, example="store subscription show UUID"
)
@id_argument("subscription")
@replica_option
@web_option
def show(here: CommandContext, named: Reference, replica: str | None, web: bool) -> None:
    chosen = here.replica(replica or named.replica)
    path = _page_path(named.uuid, chosen)
    if web:
        here.open_page(path)
        return
    found = here.client.call("get_subscription", uuid=named.uuid, replica=chosen)
    here.show_record({**found, "page": here.page_url(path)})


@command("create", help="Subscribe a webhook.", epilog=CREATE_EXAMPLES, as_answer=True)
@click.argument("callback_url")
@click.option("--match", metavar="JMESPATH", help="Events for which this is true.")
@click.option("--es-query", type=JsonValue(), help="Bundles that this search query finds.")
@click.option(
    "--secret-file", type=click.File(), help="Holds the secret that signs deliveries, or -."
)
@click.option("--key-id", help="Tells receivers which secret it is.")
@replica_option
def create(
    here: CommandContext,
    callback_url: str,
    match: str | None,
    es_query: Any,
    secret_file: TextIO | None,
    key_id: str | None,
    replica: str | None,
) -> None:
    if (match is None) == (es_query is None):
        raise Misused("give --match or --es-query", hint="see: store subscription create --help")
    secret = None if secret_file is None else secret_file.read().rstrip("\r\n")
    here.check_fields_of("put_subscription", "page")
    chosen = here.replica(replica)
    made = here.client.call(
        "put_subscription",
        replica=chosen,
        callback_url=callback_url,
        jmespath_query=match,
        es_query=es_query,
        hmac_secret_key=secret,
        hmac_key_id=key_id,
    )
    here.show_record({**made, "page": here.page_url(_page_path(made["uuid"], chosen))})


@command(
    "deliveries",
    help="List the deliveries of a subscription.",
    as_answer=True,
    example="store subscription deliveries UUID --state dead",
)
@id_argument("subscription")
@replica_option
@click.option("--state", help="Only those: delivered, pending, dead and so on.")
@limit_option
def deliveries(
    here: CommandContext,
    named: Reference,
    replica: str | None,
    state: str | None,
    limit: int | None,
) -> None:
    chosen = here.replica(replica or named.replica)
    rows = here.client.items("get_deliveries", uuid=named.uuid, replica=chosen, state=state or None)
    found = (
        {**row, "bundle": f"{row.get('bundle_uuid')}.{row.get('bundle_version')}"} for row in rows
    )
    here.show_rows(found, DELIVERY_COLUMNS, empty="There are no such deliveries.", limit=limit)


def _build_change(name: str, operation: str, about: str) -> Any:
    """A command that calls one operation for a subscription, and shows the answer."""

    @command(name, help=about, as_answer=True, example=f"store subscription {name} UUID")
    @id_argument("subscription")
    @replica_option
    def change(here: CommandContext, named: Reference, replica: str | None) -> None:
        here.check_fields_of(operation)
        chosen = here.replica(replica or named.replica)
        here.show_record(here.client.call(operation, uuid=named.uuid, replica=chosen))

    return change


send_test = _build_change("test", "test_subscription", "Send a test delivery now.")
pause = _build_change("pause", "pause_subscription", "Stop the deliveries for now; none is lost.")
resume = _build_change("resume", "resume_subscription", "Send deliveries again, missed ones first.")


@command(
    "delete",
    help="Delete subscriptions of yours.",
    as_answer=True,
    example="store subscription delete UUID",
)
@ids_argument("subscription")
@replica_option
@yes_option
def delete(
    here: CommandContext, ids: tuple[Reference, ...], replica: str | None, yes: bool
) -> None:
    chosen = here.replica(replica or ids[0].replica)
    named = ", ".join(map(str, ids))
    here.confirm(
        f"This deletes the subscription {named}: nothing more is sent, and deliveries that wait "
        "are dropped. It cannot be undone; `store subscription pause` keeps it.",
        sure=yes,
    )
    for one in ids:
        here.client.call("delete_subscription", uuid=one.uuid, replica=chosen)
        here.note(f"Deleted {one}.")


def _page_path(uuid: str, replica: str) -> str:
    return f"/subscriptions/{uuid}{page_query(Reference(''), replica)}"
