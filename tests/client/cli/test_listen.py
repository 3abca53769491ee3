"""The command listen, against a served store."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.webhooks import running_receiver
from storage.catalog import events
from storage.stores import Stores
from store_client import Client
from store_client.identifiers import parse_version
from tests.client.cli.people import Typist, showing
from tests.client.download.deposits import Depositor

pytestmark = pytest.mark.spec("LSN-05")

ORGAN = "files.s_json[0].organ"


@pytest.fixture
def bundles(client: Client, stores: Stores) -> list[str]:
    """A heart, which is deleted again, and a liver."""
    depositor = Depositor(client)
    made = [
        depositor.bundle(number, {"s.json": json.dumps({"organ": organ}).encode()})
        for number, organ in enumerate(("heart", "liver"))
    ]
    client.call("delete_bundle", uuid=made[0], replica="aws", reason="wrong")
    with stores.catalog.write() as tx:
        events.assign_sequence(tx)
    return made


def lines(admin: Typist, count: int, *words: str) -> list[dict[str, Any]]:
    """What it prints until so many lines came."""
    done = admin.types("listen", "--since", "1h", "--limit", str(count), *words)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_prints_matches_as_json_lines(admin: Typist, bundles: list[str]) -> None:
    found = lines(admin, 3)
    assert [(one["event_type"], one["bundle"].partition(".")[0]) for one in found] == [
        ("CREATE", bundles[0]),
        ("CREATE", bundles[1]),
        ("TOMBSTONE", bundles[0]),
    ]
    for one in found:
        assert one.keys() == {"timestamp", "event_type", "bundle", "payload"}
        match = one["payload"]["match"]
        assert one["bundle"] == f"{match['bundle_uuid']}.{match['bundle_version']}"
    assert len({one["payload"]["subscription_id"] for one in found}) == 1


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (("--query", f"{ORGAN} == 'heart'"), ["CREATE", "TOMBSTONE"]),
        (("--query", '{"match": {"files.s_json.organ": "heart"}}'), ["CREATE"]),
        (("--query", "{}", "--query-type", "elasticsearch"), ["CREATE", "CREATE"]),
        (("--query-type", "elasticsearch"), ["CREATE", "CREATE"]),
        (("--query", '{"a": event_type}', "--query-type", "jmespath"), ["CREATE"] * 2),
        (("--types", "tombstone"), ["TOMBSTONE"]),
        (("--types", "Tombstone, create"), ["CREATE", "CREATE", "TOMBSTONE"]),
    ],
)
def test_prints_what_a_subscription_would_be_told(
    admin: Typist, bundles: list[str], words: tuple[str, ...], kinds: list[str]
) -> None:
    assert [one["event_type"] for one in lines(admin, len(kinds), *words)] == kinds


def test_prints_rows_where_a_table_is_wanted(admin: Typist, bundles: list[str]) -> None:
    done = admin.types("listen", "--since", "1h", "--limit", "3", "--output", "table")
    assert done.exit_code == 0
    row = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  (CREATE   |TOMBSTONE)  [-0-9a-f]{36}\.[-0-9T.]+Z"
    assert all(re.fullmatch(row, line) for line in done.stdout.splitlines())
    assert done.stderr.splitlines() == [
        f"Listening to aws at {admin.environ['STORE_CLIENT_URL']}. Ctrl-C ends.",
        "3 events, 3 matched, 0 forwarded, 0 failed",
    ]


def test_forwards_signed_webhooks(admin: Typist, bundles: list[str], tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret ä\n")
    with running_receiver(
        "the secret ä", accept=lambda one: one.event_type == "CREATE"
    ) as receiver:
        words = ("--forward-to", f"{receiver.url}/hook", "--secret-file", str(secret))
        found = lines(admin, 3, *words, "--attachments", _attachments())
        assert [one["forward"]["status"] for one in found] == [200, 200, 503]
        assert all(one["forward"]["seconds"] >= 0 for one in found)
    got = [*receiver.accepted, *receiver.rejected]
    assert [one.payload for one in got] == [one["payload"] for one in found]
    assert [one.errors for one in got] == [[], [], []]
    assert [one.payload["attachments"]["organ"] for one in got] == ["heart", "liver", "heart"]


def _attachments() -> str:
    return json.dumps({"organ": {"type": "jmespath", "expression": ORGAN}})


def test_shows_a_new_secret_once(admin: Typist, bundles: list[str]) -> None:
    words = ("listen", "--since", "1h", "--limit", "3", "--output", "table")
    seen = set()
    for more in ((), ("--quiet",)):
        with running_receiver("unknown") as receiver:
            done = admin.types(*words, "--forward-to", f"{receiver.url}/hook", *more)
        (secret,) = re.findall(r"The secret of this run is (\S{40,})\n", done.stderr)
        assert secret not in done.stdout
        assert done.stdout.count("  200 (") == 3
        seen.add(secret)
    assert len(seen) == 2
    assert "matched" not in done.stderr, "quiet"


def test_continues_after_failures_and_counts_them(admin: Typist, bundles: list[str]) -> None:
    words = ("listen", "--since", "1h", "--limit", "3", "--output", "table")
    done = admin.types(*words, "--forward-to", "http://127.0.0.1:9/")
    assert done.exit_code == 0
    assert done.stdout.count("nothing listens there (") == 3
    assert "3 events, 3 matched, 0 forwarded, 3 failed" in done.stderr
    failing = admin.types(*words, "--query", "abs(event_type)")
    assert failing.stdout.count("abs()") == 3
    assert "3 events, 0 matched, 0 forwarded, 3 failed" in failing.stderr


@pytest.mark.parametrize(
    "since",
    [
        lambda now: "60s",
        lambda now: "2w",
        lambda now: f"{now - timedelta(minutes=1):%Y-%m-%dT%H:%M:%S}",
        lambda now: f"{now - timedelta(days=1):%Y-%m-%d}",
        lambda now: (now - timedelta(minutes=1)).isoformat(),
        lambda now: f"{now - timedelta(minutes=1):%Y-%m-%dT%H%M%S}.000000Z",
    ],
)
def test_begins_in_the_past(
    admin: Typist, bundles: list[str], since: Callable[[datetime], str]
) -> None:
    done = admin.types("listen", "--since", since(datetime.now(UTC)), "--limit", "1")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["bundle"].startswith(bundles[0])
    moment = parse_version(json.loads(done.stdout)["timestamp"])
    assert datetime.now(UTC) - moment < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--types", "created"), "--types: 'created' is unknown"),
        (("--types", ""), "--types: '' is unknown"),
        (("--since", "yesterday"), "--since: 'yesterday' is not a time"),
        (("--since", "99999999d"), "--since: "),
        (("--since", "999999w"), "--since: "),
        (("--query", "[]", "--query-type", "elasticsearch"), "--query: must be a JSON object"),
        (("--forward-to", "ftp://x"), "--forward-to: must be an http or https URL"),
        (("--secret-file", "-"), "--secret-file: signs what is forwarded"),
        (("--forward-to", "http://x", "--secret-file", "-"), "--secret-file: must hold 1 to"),
        (("--limit", "0"), "--limit"),
        (("--replica", "azure"), "--replica"),
    ],
)
def test_wrong_options_are_named(admin: Typist, words: tuple[str, ...], said: str) -> None:
    done = admin.types("listen", *words, given="")
    assert done.exit_code == 2, done.output
    assert said in done.stderr


@pytest.mark.parametrize("content", [b"\n", b"x" * 1025, b"\xff\xfe"])
def test_unusable_secrets_are_not_shown(admin: Typist, tmp_path: Path, content: bytes) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_bytes(content)
    done = admin.types("listen", "--forward-to", "http://x", "--secret-file", str(secret))
    assert done.exit_code == 2, done.output
    assert "--secret-file: " in done.stderr
    assert "xxx" not in done.stderr


def test_invalid_queries_end_it_at_once(admin: Typist) -> None:
    done = admin.types("listen", "--query", "a[")
    assert done.exit_code == 3
    assert "Not a JMESPath expression" in done.stderr


def test_missing_permissions_are_named(store: Any, tmp_path: Path) -> None:
    anonymous = Typist(tmp_path / "x", showing(""), {"STORE_CLIENT_URL": store.url})
    done = anonymous.types("listen")
    assert done.exit_code == 4
    assert "store:DryRunSubscription" in done.stderr
    assert "store login" in done.stderr


def test_a_store_that_is_not_there_ends_it(offline: Typist) -> None:
    assert offline.types("listen").exit_code == 7
