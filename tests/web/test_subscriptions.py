"""Pages of subscriptions: list, create, live tester, and what owners do."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import deliveries as webhooks
from pipelines import events, formats, subscriptions
from pipelines.deliveries import build_request
from storage.catalog.events import assign_sequence
from storage.catalog.subscriptions import Subscription
from storage.stores import Stores
from tests.pipelines.delivery_builders import a_due
from tests.web.conftest import Visit, text_of
from web.pages import FormErrors
from web.subscription_forms import parse_time
from web.subscriptions import VERIFIERS

FORM = {"callback_url": "https://receiver.example/notify", "replica": "aws"}
READER = "reader@example.org"


def owned(stores: Stores, owner: str = READER) -> list[Subscription]:
    return [one.subscription for one in subscriptions.list_statuses(stores, owner)]


def make(visit: Visit, stores: Stores, **form: str) -> Subscription:
    page = visit("reader").post("/subscriptions/new", **{**FORM, "signing": "none", **form})
    assert page.status_code == 303, page.text
    return owned(stores)[0]


def test_lists_own_subscriptions_with_state_and_failures(visit: Visit, stores: Stores) -> None:
    assert "You have no subscriptions." in visit("reader").get("/subscriptions").text
    made = make(visit, stores, kind="jmespath", query="files.a_json")
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE subscriptions SET failures = 1234, failing_us = 1000000")
    shown = text_of(visit("reader").get("/subscriptions"))
    assert "https://receiver.example/notify files.a_json aws active never 1,234 since" in shown
    assert made.uuid not in visit("other").get("/subscriptions").text
    assert visit().get("/subscriptions").status_code == 303


def test_generated_secret_is_shown_once(visit: Visit, stores: Stores) -> None:
    visitor = visit("reader")
    page = visitor.post("/subscriptions/new", **FORM)
    (made,) = owned(stores)
    assert page.headers["Location"] == f"/subscriptions/{made.uuid}"
    visitor.client.head(page.headers["Location"])
    first = visitor.get(page.headers["Location"])
    secret = re.search(r'data-copy="([\w-]{43})"', first.text)
    assert secret is not None
    context = subscriptions.secret_context(made.uuid)
    unseal = visitor.site.services.unseal
    assert unseal(made.hmac_secret or b"", context).decode() == secret[1]
    assert secret[1] not in visitor.get(page.headers["Location"]).text


@pytest.mark.parametrize(
    ("form", "name", "message"),
    [
        ({"callback_url": ""}, "callback_url", "required"),
        ({"callback_url": "ftp://receiver.example/"}, "callback_url", "http"),
        ({"kind": "jmespath", "query": "a["}, "query", "JMESPath"),
        ({"kind": "jmespath"}, "query", "Enter a query"),
        ({"kind": "search", "query": "{"}, "query", "line 1, column 2"),
        ({"kind": "search", "query": "[1]"}, "query", "JSON object"),
        ({"kind": "search", "query": '{"nonsense": {}}'}, "query", "nonsense"),
        ({"attachments": "no colon"}, "attachments", "Line 1"),
        ({"attachments": "a: b\na: c"}, "attachments", "Line 2"),
        ({"attachments": "a: b["}, "attachments", "a: Not a JMESPath"),
        ({"attachments": "_a: b"}, "attachments", "_a"),
        ({"form_fields": "payload: x"}, "form_fields", "payload"),
        ({"signing": "own"}, "hmac_secret_key", "Enter your secret"),
        ({"replica": "azure"}, "replica", "Must be"),
    ],
)
@pytest.mark.parametrize("action", ["new", "try"])
def test_errors_stand_at_their_fields(
    visit: Visit, stores: Stores, action: str, form: dict[str, str], name: str, message: str
) -> None:
    if action == "try" and "signing" in form:
        form = {**form, "kind": "jmespath"}
        name, message = "query", "Enter a query"
    page = visit("reader").post(f"/subscriptions/{action}", **{**FORM, **form})
    assert page.status_code == 400
    hint = re.search(rf'<small id="h-{name}">(.*?)</small>', page.text, re.DOTALL)
    assert hint is not None
    assert 'class="message"' in hint[1]
    assert message in hint[1]
    assert f'href="#f-{name}"' in page.text
    assert owned(stores) == []


def test_form_keeps_what_was_given_but_no_secret(visit: Visit) -> None:
    given = {**FORM, "kind": "jmespath", "query": 'a["<b>', "hmac_secret_key": "my secret"}
    page = visit("reader").post("/subscriptions/new", **given)
    assert "a[&#34;&lt;b&gt;" in page.text
    assert "my secret" not in page.text
    assert '<option value="jmespath" selected>' in page.text


def test_query_of_a_search_fills_the_form(visit: Visit) -> None:
    query = json.dumps({"match": {"files.sample_json.organ": "eye"}})
    page = visit("reader").get("/subscriptions/new?es_query=" + query.replace(" ", "%20"))
    assert '<option value="search" selected>' in page.text
    assert "&#34;files.sample_json.organ&#34;: &#34;eye&#34;" in page.text
    other = visit("reader").get("/subscriptions/new?jmespath_query=files.a&replica=gcp")
    assert '<option value="jmespath" selected>' in other.text
    assert '<option value="gcp" selected>' in other.text
    # What is no JSON is shown for its owner to mend.
    assert "{broken" in visit("reader").get("/subscriptions/new?es_query={broken").text


def test_trial_shows_matches_and_payload_and_saves_nothing(
    visit: Visit, stores: Stores, depositor
) -> None:
    first, second = (depositor.bundle(number) for number in (1, 2))
    page = visit("reader").post(
        "/subscriptions/try",
        **FORM,
        kind="jmespath",
        query="event_type == 'CREATE'",
        attachments="which: bundle_info.uuid",
    )
    assert page.status_code == 200
    assert "2 of the last 2 bundles match." in text_of(page)
    assert f"&#34;which&#34;: &#34;{second}&#34;" in page.text
    assert f"&#34;which&#34;: &#34;{first}&#34;" not in page.text
    chosen = visit("reader").post(
        "/subscriptions/try", **FORM, attachments="which: bundle_info.uuid", bundle_uuid=first
    )
    assert "2 of the last 2 bundles match." in text_of(chosen)
    assert f"&#34;which&#34;: &#34;{first}&#34;" in chosen.text
    assert owned(stores) == []


def test_trial_says_why_a_query_fails(visit: Visit, depositor) -> None:
    depositor.bundle(1)
    page = visit("reader").post(
        "/subscriptions/try", **FORM, kind="jmespath", query="abs(event_type)"
    )
    assert "0 of the last 1 bundle match." in text_of(page)
    assert "The query fails for 1 bundle" in text_of(page)


def test_trial_of_a_search_names_the_nearest_fields(visit: Visit, depositor) -> None:
    query = '{"match": {"bundle_uid": "x"}}'
    page = visit("ingest").post("/subscriptions/try", **FORM, kind="search", query=query)
    assert "The query names no field bundle_uid" in text_of(page)


def test_trial_ends_in_time(visit: Visit, depositor) -> None:
    depositor.bundle(1)
    visitor = visit("reader")
    services = visitor.site.services
    hasty = replace(services, settings=replace(services.settings, dry_run_s=0.0))
    object.__setattr__(visitor.site, "services", hasty)
    page = visitor.post("/subscriptions/try", **FORM)
    assert page.status_code == 200
    assert "Time ran out after 0 bundles" in text_of(page)


def test_quota_is_explained_in_the_form(visit: Visit, stores: Stores) -> None:
    make(visit, stores)
    with stores.catalog.write() as tx:
        columns = tx.exec_driver_sql("SELECT * FROM subscriptions").mappings().one()
        names = ", ".join(name for name in columns if name not in ("id", "uuid"))
        for _ in range(99):
            tx.exec_driver_sql(
                f"INSERT INTO subscriptions (uuid, {names})"
                f" SELECT '{formats.new_uuid()}', {names} FROM subscriptions LIMIT 1"
            )
    page = visit("reader").post("/subscriptions/new", **FORM)
    assert page.status_code == 406
    assert "100 subscriptions" in text_of(page)


def test_hostile_settings_are_shown_as_text(visit: Visit, stores: Stores) -> None:
    script = "<script>alert(1)</script>"
    made = make(visit, stores, kind="jmespath", query=f"'{script}'", attachments=f"{script}: a")
    for path in ("/subscriptions", f"/subscriptions/{made.uuid}"):
        page = visit("reader").get(path)
        assert page.status_code == 200
        assert script not in page.text


def test_pauses_and_resumes(visit: Visit, stores: Stores) -> None:
    path = f"/subscriptions/{make(visit, stores).uuid}"
    visitor = visit("reader")
    assert visitor.post(f"{path}/pause").headers["Location"] == path
    assert owned(stores)[0].state == "paused"
    shown = visitor.get(path)
    assert "Paused: matches are kept" in shown.text
    assert f'action="{path}/resume"' in shown.text
    visitor.post(f"{path}/resume")
    assert owned(stores)[0].state == "active"


def test_replaces_secret_and_keeps_the_former_one_for_a_while(visit: Visit, stores: Stores) -> None:
    made = make(visit, stores, signing="own", hmac_secret_key="first")
    path = f"/subscriptions/{made.uuid}"
    visitor = visit("reader")
    page = visitor.post(f"{path}/secret", overlap_s="3600")
    assert page.status_code == 303
    (changed,) = owned(stores)
    assert changed.hmac_previous == made.hmac_secret
    assert "Copy the secret now" in visitor.get(path).text
    assert "Copy the secret now" not in visitor.get(path).text
    visitor.post(f"{path}/secret", overlap_s="0", hmac_secret_key="mine")
    assert "Copy the secret now" not in visitor.get(path).text
    unseal = visitor.site.services.unseal
    context = subscriptions.secret_context(made.uuid)
    assert unseal(owned(stores)[0].hmac_secret or b"", context) == b"mine"


@pytest.mark.parametrize("overlap", ["-1", "x", "9999999"])
def test_rejects_invalid_overlap(visit: Visit, stores: Stores, overlap: str) -> None:
    made = make(visit, stores)
    page = visit("reader").post(f"/subscriptions/{made.uuid}/secret", overlap_s=overlap)
    assert page.status_code == 400
    assert 'href="#f-overlap_s"' in page.text
    assert owned(stores)[0].hmac_secret is None


def test_test_delivery_leads_to_its_page(visit: Visit, stores: Stores, job_queue) -> None:
    made = make(visit, stores)
    page = visit("reader").post(f"/subscriptions/{made.uuid}/test")
    (sent,) = subscriptions.list_deliveries(stores, made, limit=9)
    assert page.headers["Location"] == f"/subscriptions/{made.uuid}/deliveries/{sent.uuid}"
    assert job_queue.sent[-1][0].ref == str(made.endpoint_id)


def test_replay_is_confirmed_with_the_number_of_events(
    visit: Visit, stores: Stores, depositor, drain
) -> None:
    depositor.bundle(1)
    with stores.catalog.write() as tx:
        assign_sequence(tx)
    made = make(visit, stores)
    visitor, path = visit("reader"), f"/subscriptions/{made.uuid}/replay"
    asked = visitor.get(f"{path}?from_date=2020-01-01T00:00&to_date=2100-01-01T00:00:30")
    assert "1 event from 2020-01-01 00:00 UTC" in text_of(asked)
    assert events.list_replays(stores, made, limit=9) == []
    window = {"from_date": "2020-01-01T00:00", "to_date": "2100-01-01T00:00:30"}
    assert visitor.post(path, **window).status_code == 303
    again = visitor.post(path, **window)
    assert again.status_code == 409
    assert "Another replay" in again.text
    drain()
    assert len(subscriptions.list_deliveries(stores, made, limit=9)) == 1
    assert "finished" in text_of(visitor.get(f"/subscriptions/{made.uuid}"))


@pytest.mark.parametrize(
    ("window", "name"),
    [
        ({"from_date": "yesterday"}, "from_date"),
        ({"from_date": "2026-01-02T00:00", "to_date": "2026-01-01T00:00"}, "to_date"),
    ],
)
def test_rejects_invalid_window(
    visit: Visit, stores: Stores, window: dict[str, str], name: str
) -> None:
    made = make(visit, stores)
    path = f"/subscriptions/{made.uuid}/replay"
    query = "&".join(f"{key}={value}" for key, value in window.items())
    for page in (visit("reader").get(f"{path}?{query}"), visit("reader").post(path, **window)):
        assert page.status_code == 400
        assert f'href="#f-{name}"' in page.text
    assert events.list_replays(stores, made, limit=9) == []


def test_deletes_after_confirmation(visit: Visit, stores: Stores) -> None:
    made = make(visit, stores)
    path = f"/subscriptions/{made.uuid}/delete"
    assert "cannot be undone" in visit("reader").get(path).text
    assert owned(stores) == [made]
    assert visit("reader").post(path).headers["Location"] == "/subscriptions"
    assert owned(stores) == []
    assert visit("reader").post(path).status_code == 404


@pytest.mark.parametrize("person", ["other", "ingest"])
def test_subscriptions_of_others_are_not_found(visit: Visit, stores: Stores, person: str) -> None:
    made = make(visit, stores)
    path, visitor = f"/subscriptions/{made.uuid}", visit(person)
    assert visitor.get(path).status_code == 404
    for below in ("replay", "delete"):
        assert visitor.get(f"{path}/{below}").status_code == 404
    for below in ("test", "pause", "resume", "secret", "replay", "delete"):
        assert visitor.post(f"{path}/{below}").status_code == 404, below
    assert owned(stores) == [made]


SECRET = 'a secret with ümlauts and " quotes'


def _signed() -> dict[str, object]:
    now_us = time.time_ns() // 1000
    due = a_due()
    sent = build_request(due, attempt=1, now_us=now_us, keys=[b"newer", SECRET.encode()])
    signed = build_request(due, attempt=1, now_us=now_us, keys=[SECRET.encode()])
    headers = {name.lower(): value for name, value in signed.headers.items()}
    both = {name.lower(): value for name, value in sent.headers.items()}
    target = webhooks.parse_callback_url(due.callback_url, allow_private=True).target
    body = signed.body.decode()
    return {
        "headers": headers,
        "both": both,
        "body": body,
        "secret": SECRET,
        "method": signed.method,
        "target": target,
    }


_PYTHON_CHECKS = """
import json, sys
given = json.load(sys.stdin)
body, headers, secret = given["body"].encode(), given["headers"], given["secret"]
where = given["method"], given["target"]
print(json.dumps([
    verify_webhook(headers, body, [secret]),
    verify_webhook(given["both"], body, [secret]),
    verify_webhook(headers, body + b" ", [secret]),
    verify_webhook(headers, body, ["other"]),
    verify_webhook({**headers, "webhook-timestamp": "1000"}, body, [secret]),
    verify_http_signature(headers, body, secret, *where),
    verify_http_signature(headers, body + b" ", secret, *where),
    verify_http_signature(headers, body, "other", *where),
    verify_http_signature(headers, body, secret, where[0], where[1] + "x"),
]))
"""
_NODE_CHECKS = """
const given = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
import(process.argv[1]).then(({ verifyWebhook, verifyHttpSignature }) => {
  const { headers, both, secret, method, target } = given;
  const body = Buffer.from(given.body), changed = Buffer.from(given.body + " ");
  console.log(JSON.stringify([
    verifyWebhook(headers, body, [secret]),
    verifyWebhook(both, body, [secret]),
    verifyWebhook(headers, changed, [secret]),
    verifyWebhook(headers, body, ["other"]),
    verifyWebhook({ ...headers, "webhook-timestamp": "1000" }, body, [secret]),
    verifyHttpSignature(headers, body, secret, method, target),
    verifyHttpSignature(headers, changed, secret, method, target),
    verifyHttpSignature(headers, body, "other", method, target),
    verifyHttpSignature(headers, body, secret, method, target + "x"),
  ]));
});
"""
VERDICTS = [True, True, False, False, False, True, False, False, False]


def _run(command: list[str]) -> object:
    done = subprocess.run(
        command, input=json.dumps(_signed()), capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_printed_python_verifies_real_signatures() -> None:
    assert _run([sys.executable, "-c", VERIFIERS["Python"] + _PYTHON_CHECKS]) == VERDICTS


VERIFIED_NODE = "ef294319b9d8770bd1f1455bbadd1af6fe2faaed04b7146f34c7c48191a8323c"
"""SHA-256 of the code that passed these checks, for machines without Node."""


def test_printed_node_verifies_real_signatures(tmp_path: Path) -> None:
    assert hashlib.sha256(VERIFIERS["Node"].encode()).hexdigest() == VERIFIED_NODE
    node = shutil.which("node")
    if node is not None:
        module = tmp_path / "verify_signature.mjs"
        module.write_text(VERIFIERS["Node"])
        assert _run([node, "-e", _NODE_CHECKS, str(module)]) == VERDICTS


def test_code_is_shown_on_the_page(visit: Visit, stores: Stores) -> None:
    page = visit("reader").get(f"/subscriptions/{make(visit, stores).uuid}")
    assert "def verify_webhook" in page.text
    assert "export function verifyWebhook" in page.text


@pytest.mark.parametrize("text", ["0001-01-01T00:00", "0999-01-01", "9" * 39])
def test_rejects_dates_before_all_events(text: str) -> None:
    with pytest.raises(FormErrors):
        parse_time("from_date", text)


def test_rejects_number_of_too_many_digits_in_a_query(visit: Visit) -> None:
    query = '{"query": {"match_all": {}}, "x": ' + "9" * 5000 + "}"
    form = {"callback_url": "https://example.org/", "replica": "aws", "kind": "search"}
    assert visit("ingest").post("/subscriptions/try", query=query, **form).status_code == 400
