"""Values with markup in them, stored or sent: no page makes an element or attribute of one."""

import json
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import quote, urlencode, urlsplit

import pytest
from sqlalchemy import text
from werkzeug.test import TestResponse

from auth import accounts
from auth.accounts import AuditContext, NewAccount
from auth.login.sessions import SessionLifetimes, create_session
from auth.policies.grammar import parse_policy
from config import Settings
from storage.catalog import integrity, jobs
from storage.catalog.accounts import AccountKey
from storage.model import Job
from storage.stores import Stores
from tests.api.builders import AREA, INGEST, VERSION, Depositor, uuid_of
from tests.subscription_builders import subscribe, tell
from tests.web.conftest import Visit, Visitor
from tests.web.test_deliveries import attempt
from web.pages import list_pages

MINE = "ingest@example.org"
LATER = "2026-03-01T000000.000000Z"
MOST_PAGES = 500


def mark(name: str) -> str:
    """Return a value that becomes an element or an attribute wherever it is not escaped."""
    return f"{name}\"'><xss onx=1>{{{{7*7}}}}</title></pre><xss-"


def is_shown(name: str, text: str) -> bool:
    """Return whether a page shows a marker, escaped, perhaps as JSON."""
    return re.search(re.escape(name) + r"\\*&#34;&#39;&gt;&lt;xss", text) is not None


class MarkupReader(HTMLParser):
    """Reads the links and forms of a page; refuses elements, attributes and URLs of markers."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.where, self.links = where, list[str]()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self._fields: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        assert not tag.startswith("xss"), f"{self.where} has the element of a marker"
        strange = [name for name in values if name == "onx" or not re.fullmatch("[a-z-]+", name)]
        assert not strange, f"{self.where} has the attributes {strange} in <{tag}>"
        for name in ("href", "src", "action", "formaction"):
            if name in values:
                self._check_url(tag, values[name])
        if tag == "form" and values.get("method") == "post":
            self._fields = {}
            self.forms.append((values.get("action") or self.where, self._fields))
        is_free = tag == "textarea" or values.get("type", "text") in ("text", "search", "url")
        if tag in ("input", "textarea", "select", "button") and "name" in values:
            self._fields[values["name"]] = mark("sent") if is_free else values.get("value", "x")

    def _check_url(self, tag: str, url: str) -> None:
        parts = urlsplit(url)
        assert parts.scheme in ("", "http", "https", "mailto", "data"), f"{self.where}: {url}"
        assert parts.scheme != "data" or tag == "img", f"{self.where}: {url}"
        if tag == "a" and not parts.netloc and url.startswith("/"):
            self.links.append(parts._replace(fragment="").geturl())


class Crawler:
    """Opens all pages of this site that others link to; keeps their forms and texts."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.texts: dict[str, str] = {}
        self.forms: dict[str, dict[str, str]] = {}

    def crawl(self, *starts: str) -> None:
        waiting = deque(starts)
        while waiting and len(self.texts) < MOST_PAGES:
            path = waiting.popleft()
            if path not in self.texts:
                waiting += self.read(path, self.visitor.get(path))

    def read(self, path: str, page: TestResponse) -> list[str]:
        """Check a page and return its links."""
        assert page.status_code != 500, path
        self.texts[path] = ""
        if page.mimetype != "text/html":
            return []
        self.texts[path] = page.text
        found = MarkupReader(path, page.text)
        self.forms |= dict(found.forms)
        return found.links

    def send_forms(self) -> None:
        """Send every form with markers in its free fields."""
        for path, fields in sorted(self.forms.items()):
            if path != "/logout":
                form = {name: value for name, value in fields.items() if name != "csrf"}
                self.read(f"POST {path}", self.visitor.post(path, **form))


@pytest.fixture
def keyed_settings(keyed_settings: Settings) -> Settings:
    """Settings of a consortium with a strange name."""
    return replace(keyed_settings, web_name=mark("store"), web_title_fields=("title",))


@pytest.fixture
def hostile(
    stores: Stores, depositor: Depositor, visit: Visit, drain: Callable[[], int]
) -> Callable[[], None]:
    """Fill the store with markers, in every text that somebody outside can choose."""

    def fill() -> None:
        mine = visit("ingest")
        put_bundles(depositor, stores)
        put_deposit(depositor, mine, drain)
        put_collection(mine)
        put_subscription(stores)
        put_accounts(stores, mine, visit("admin"))
        put_operations(stores)

    return fill


def put_bundles(depositor: Depositor, stores: Stores) -> None:
    """Two versions of a bundle, and one that is withdrawn."""
    for number, version in ((0x10, VERSION), (0x20, LATER)):
        metadata = {"title": mark("title"), mark("key"): mark(version), "url": "javascript:x"}
        source = depositor.stage(json.dumps(metadata).encode(), "m.json", "application/json")
        assert depositor.put_file(uuid_of(number), source=source).status_code < 300
        source = depositor.stage(mark(version).encode(), f"t{number}", f"a/b; {mark('type')}")
        assert depositor.put_file(uuid_of(number + 1), source=source).status_code < 300
        depositor.drain()
        files = [
            {"uuid": uuid_of(number), "name": f"{mark('json').replace('/', '')}.json"},
            {"uuid": uuid_of(number + 1), "name": f"{mark('dir')}/{mark('file')}{version}.md"},
        ]
        entries = [{**one, "version": VERSION, "indexed": True} for one in files]
        assert depositor.put_bundle(uuid_of(1), entries, version=version).status_code == 201
    assert depositor.put_bundle(uuid_of(2), entries).status_code == 201
    depositor.drain()
    gone = depositor.client.delete(
        f"/v1/bundles/{uuid_of(2)}?replica=aws", json={"reason": mark("reason")}, headers=INGEST
    )
    assert gone.status_code == 200
    depositor.drain()


def put_deposit(depositor: Depositor, mine: Visitor, drain: Callable[[], int]) -> None:
    """A deposit that failed, of an area's file."""
    name = mark("area").replace("/", "")
    depositor.stage(b"x", quote(name))
    drain()
    form = {"replica": "aws", "file": name, "name": mark("name").replace("/", ""), "take": "0"}
    made = mine.post(f"/areas/{AREA}/bundle", **form)
    assert made.status_code == 303, made.text
    fill = {"file": [name, "gone"], "name": ["a", "b"], "take": ["0", "1"]}
    assert mine.post(f"/areas/{AREA}/bundle", replica="aws", **fill).status_code == 303
    drain()


def put_collection(mine: Visitor) -> None:
    """A collection with the bundle."""
    made = mine.client.put(
        f"/v1/collections?uuid={uuid_of(3)}&version={VERSION}&replica=aws",
        json={
            "name": mark("collection"),
            "description": mark("description"),
            "details": {mark("detail"): mark("details")},
            "contents": [{"type": "bundle", "uuid": uuid_of(1), "version": VERSION}],
        },
        headers=INGEST,
    )
    assert made.status_code == 201, made.text


def put_subscription(stores: Stores) -> None:
    """A subscription, and a delivery of it with a response."""
    own = subscribe(
        stores.catalog,
        "https://example.org/?" + mark("callback").replace(" ", ""),
        owner=MINE,
        query=mark("query"),
        encoding="multipart/form-data",
        form_fields={mark("field"): mark("value")},
        payload_form_field=mark("payload"),
        hmac_key_id=mark("keyid"),
        hmac_secret=b"sealed",
        attachments={mark("attachment"): {"type": "jmespath", "expression": mark("expression")}},
    )
    tell(stores.catalog, [own])
    with stores.catalog.write() as tx:
        disable = "UPDATE subscriptions SET state = 'disabled', state_reason = :reason"
        tx.execute(text(disable), {"reason": mark("state")})
    attempt(stores, own, body=mark("body"), error=mark("error"))


def put_accounts(stores: Stores, mine: Visitor, admin: Visitor) -> None:
    """Accounts with policies, an application, a token, sessions, and their records."""
    statement = {
        "Effect": "Deny",
        "Action": ["store:PutBundle"],
        "Resource": ["arn:store:local:" + mark("resource")],
        "Condition": {"StringLike": {"store:replica": mark("condition")}},
    }
    policy = parse_policy({"Version": "2012-10-17", "Statement": [statement]})
    by = AuditContext(mark("who"), mark("request"))
    for key in (AccountKey("user", MINE), AccountKey("role", "reviewer")):
        accounts.create_account(stores.catalog, NewAccount(key, policy), by)
    app = {"id": "portal", "name": mark("application"), "kind": "confidential"}
    uris = "https://portal.example/" + mark("uri").replace(" ", "")
    made = admin.post("/admin/applications", **app, redirect_uris=uris)
    assert made.status_code == 200, made.text
    assert mine.post("/account/tokens", name=mark("token")[:60], days="3").status_code == 200
    with stores.catalog.write() as tx:
        create_session(
            tx, MINE, mark("provider"), now=time.time(), lifetimes=SessionLifetimes(3600, 3600)
        )


def put_operations(stores: Stores) -> None:
    """A dead job and a damaged object."""
    job = Job("sync", "gcp", mark("ref"))
    with stores.catalog.write() as tx:
        jobs.insert(tx, [job])
        claim = jobs.claim(tx, job, token="t", lease_s=60, max_claims=5)
        assert claim is not None
        jobs.mark_dead(tx, claim, reason=mark("dead"))
        integrity.record_damage(tx, "aws", mark("object"), mark("damage"))


SHOWN = (
    *("store", "title", "key", VERSION, LATER, "type", "json", "dir", "file", "reason"),
    *("area", "name", "collection", "description", "detail", "details"),
    *("callback", "query", "keyid", "attachment", "expression"),
    *("state", "body", "error", "resource", "condition", "who", "application", "uri"),
    *("token", "provider", "dead", "ref"),
)


def list_starts() -> list[str]:
    """List all pages, with a marker in each query parameter."""
    values = {
        "uuid": uuid_of(1),
        "user_id": MINE,
        "group_id": "store_ingest",
        "role_id": "reviewer",
    }
    found = []
    for one in list_pages():
        if one.method == "GET" and not one.acts:
            path = re.sub(r"<(\w+)>", lambda name: values.get(name[1], uuid_of(1)), one.path)
            found.append(path)
            for field in (*one.query.load_fields.values(), None):
                name = "filter" if field is None else field.data_key or field.name
                found.append(f"{path}?{urlencode({name: 'a.b:' + mark('parameter')})}")
    return found


def test_no_page_makes_markup_of_values(
    visit: Visit, stores: Stores, hostile: Callable[[], None]
) -> None:
    hostile()
    shown: set[str] = set()
    for person in ("", "ingest", "admin"):
        crawler = Crawler(visit(person))
        crawler.crawl("/", f"/bundles/{uuid_of(2)}", *list_starts())
        if person:
            crawler.send_forms()
        texts = crawler.texts.values()
        shown |= {name for name in SHOWN if any(is_shown(name, shown_text) for shown_text in texts)}
        assert len(crawler.texts) < MOST_PAGES
    assert sorted(set(SHOWN) - shown) == []
