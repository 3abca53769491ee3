"""A running store with an invented atlas in it, and who visits its pages."""

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, StorageState

from ops import local_store
from ops.local_store import LocalStore
from ops.ports import find_free_port
from storage.catalog import Catalog, jobs
from storage.model import FQID, Job
from store_client import create_version
from tests.live.api import MATCH_ALL, ApiClient
from tests.live.deposits import DepositedBundle, Depositor
from tests.real.browser import chromium, samples
from tests.waiting import until

SETTINGS = {
    "STORE_WEB_NAME": "Atlas of Cells",
    "STORE_WEB_ABOUT": "Sequencing reads, images and counts of cells from five species.",
    "STORE_WEB_CONTACT": "data@example.org",
    "STORE_WEB_CARD_FIELDS": "organism,organ,assay",
}
ADMIN, READER = "admin@example.org", "reader@example.org"
GROUP, ROLE = "curators", "curator"
PASSWORD = "a long enough sentence 7"
OPTIONS = {"reduced_motion": "reduce", "locale": "en-GB", "timezone_id": "UTC"}


@dataclass
class BrowsedStore:
    """A store, a browser, and the cookies of those who are logged in."""

    store: LocalStore
    browser: Browser
    cookies: dict[str, StorageState]

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts and ports that pages may ask."""
        return frozenset(urlsplit(url).netloc for url in (self.store.api, self.store.auth))

    def open_context(
        self,
        watch: chromium.Watch,
        *,
        person: str = "",
        width: int = chromium.WIDE,
        scheme: str = "light",
        scripts: bool = True,
    ) -> BrowserContext:
        """Open an own browser window, logged in as this person or not at all."""
        context = self.browser.new_context(
            base_url=self.store.api,
            storage_state=self.cookies[person] if person else None,
            viewport={"width": width, "height": chromium.HEIGHT},
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=scripts,
            **OPTIONS,
        )
        context.set_default_timeout(chromium.TIMEOUT_MS)
        watch.attach(context)
        return context

    def log_in(self, person: str) -> None:
        """Log in by a one-time link, as operators let users in; keep the cookies."""
        words = ("login-link",) if person == ADMIN else ("login-link", person)
        link = self.store.run_command(*words).split()[0]
        context = self.browser.new_context(base_url=self.store.api)
        page = context.new_page()
        page.goto(link)
        if urlsplit(page.url).path != "/":
            page.get_by_role("button").first.click()
        page.wait_for_url(f"{self.store.api}/")
        self.cookies[person] = context.storage_state()
        context.close()


@dataclass
class Site(BrowsedStore):
    """A store with an atlas in it."""

    service: ApiClient
    deposited: list[DepositedBundle]
    area: str
    bundle: FQID
    """The bundle that pages of one bundle show: it has two versions, and is in a collection."""
    first_version: str
    file: FQID
    withdrawn: FQID
    collection: FQID
    subscription: str
    delivery: str
    own_area: str
    """An area with a few files, of which a bundle was made in the browser: `deposit`."""
    deposit: str


@contextmanager
def running_site(home: Path, browser: Browser) -> Iterator[Site]:
    """Start a store, fill it, and log its administrator and a reader in."""
    with local_store.running_store(home, SETTINGS) as store:
        service = ApiClient.open(store.api, store.token)
        with service.http:
            store.run_command("users", "add", READER, stdin=PASSWORD)
            site = fill(store, service, browser)
            for person in (ADMIN, READER):
                site.log_in(person)
            site.deposit = deposit_in_browser(site)
            yield site


def deposit_in_browser(site: Site) -> str:
    """Upload files into an area of their own and make a bundle of them; return the deposit's id."""
    site.service.call("POST", f"/area/{site.own_area}")
    context = site.open_context(chromium.Watch(site.hosts), person=ADMIN)
    page = context.new_page()
    for name, content in (("sample.json", b'{"organism": "Danio rerio"}'), ("notes.txt", b"fins")):
        path = f"/area/{site.own_area}/files/{name}"
        site.service.call("PUT", path, content=lambda: content)  # noqa: B023
    page.goto(f"/areas/{site.own_area}/bundle")
    page.get_by_label("Number of the creator").fill("8008")
    page.get_by_role("button", name="Make the bundle").click()
    page.wait_for_url("**/deposits/*")
    context.close()
    return urlsplit(page.url).path.split("/")[-1]


def fill(store: LocalStore, service: ApiClient, browser: Browser) -> Site:
    """Deposit the atlas, change some of it, and wait until it is found in both replicas."""
    area, deposited = str(uuid.uuid4()), list[DepositedBundle]()
    depositor = Depositor(service, area)
    depositor.create_area()
    bundles = [
        samples.make_bundle(number, one, reads=1 + number % 3)
        for number, one in enumerate(samples.list_projects())
    ]
    with depositor.depositing(bundles, deposited.append) as deposits:
        until(lambda: all(future.done() for future in deposits.futures))
        deposits.raise_if_failed()
    deposited.sort(key=lambda one: bundles.index(one.bundle))
    fqids = {one.fqid for one in deposited}
    for replica in ("aws", "gcp"):
        until(lambda: fqids <= service.list_bundles(replica))  # noqa: B023
    until(lambda: fqids <= service.search("aws", MATCH_ALL))
    first, other = deposited[0], FQID.parse(deposited[-1].fqid)
    version = FQID.parse(first.fqid).version
    counts = next(one for one in first.files if one.file.name.endswith(".tsv"))
    file = FQID(counts.uuid, version)
    subscription = _subscribe(service)
    bundle = _rename(service, FQID.parse(first.fqid), file)
    _withdraw(service, other)
    collection = _collect(service, [bundle, FQID.parse(deposited[1].fqid)])
    _add_accounts(store, service)
    leave_dead_job(store, bundle)
    delivery = _wait_for_delivery(service, subscription)
    changed = (bundle, version, file, other, collection, subscription, delivery, str(uuid.uuid4()))
    return Site(store, browser, {}, service, deposited, area, *changed, "")


def _subscribe(service: ApiClient) -> str:
    """Subscribe a receiver that does not answer."""
    body = {"callback_url": f"http://127.0.0.1:{find_free_port()}/new-bundles"}
    answer = service.call("PUT", "/subscriptions", params={"replica": "aws"}, json=body)
    return str(answer.json()["uuid"])


def _wait_for_delivery(service: ApiClient, subscription: str) -> str:
    """Return the id of a delivery that was tried."""
    path, found = f"/subscriptions/{subscription}/deliveries", list[dict[str, Any]]()

    def tried() -> bool:
        answer = service.call("GET", path, params={"replica": "aws"}).json()
        found[:] = [one for one in answer["deliveries"] if one["attempts"]]
        return bool(found)

    until(tried)
    return str(found[0]["id"])


def _add_accounts(store: LocalStore, service: ApiClient) -> None:
    """Add a group and a role of an administrator's own, and an application."""
    statement = {"Effect": "Allow", "Action": ["store:PutCollection"], "Resource": ["arn:store:*"]}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    service.call("POST", f"{store.auth}/v1/group", json={"group_id": GROUP})
    service.call("POST", f"{store.auth}/v1/role", json={"role_id": ROLE, "policy": policy})
    words = ("--name", "Lab notebook", "--redirect-uri", "https://notebook.example.org/login")
    store.run_command("clients", "add", "notebook", *words)


def leave_dead_job(store: LocalStore, bundle: FQID) -> None:
    """Leave a job that failed too often, as one that no bucket takes."""
    job = Job("sync", "gcp", f"bundle:{bundle}")
    catalog = Catalog(f"sqlite:///{store.home}/catalog.sqlite", connections=1)
    with closing(catalog), catalog.write() as tx:
        jobs.insert(tx, [job])
        claim = jobs.claim(tx, job, token="t", lease_s=60, max_claims=5)
        assert claim is not None
        jobs.mark_dead(tx, claim, reason="The bucket refused the object: 507 quota exceeded.")


def _rename(service: ApiClient, bundle: FQID, file: FQID) -> FQID:
    """Write a second version, in which a file has another name."""
    answer = service.call(
        "PATCH",
        f"/bundles/{bundle.uuid}",
        params={"version": bundle.version, "replica": "aws"},
        json={
            "remove_files": [{**file._asdict(), "name": "analysis/counts.tsv"}],
            "add_files": [{**file._asdict(), "name": "analysis/gene_counts.tsv"}],
        },
    ).json()
    return FQID(bundle.uuid, answer["version"])


def _withdraw(service: ApiClient, bundle: FQID) -> None:
    reason = {"reason": "The donor has withdrawn consent."}
    service.call("DELETE", f"/bundles/{bundle.uuid}", params={"replica": "aws"}, json=reason)


def _collect(service: ApiClient, bundles: list[FQID]) -> FQID:
    """Write a collection of bundles, and wait until it can be read."""
    collection = FQID(str(uuid.uuid4()), create_version())
    service.call(
        "PUT",
        "/collections",
        params={**collection._asdict(), "replica": "aws"},
        json={
            "name": "Human cohorts of the spring release",
            "description": "Donors over twenty whose consent covers secondary use.",
            "details": {"release": "2026.1"},
            "contents": [{"type": "bundle", **one._asdict()} for one in bundles],
        },
    )
    return collection
