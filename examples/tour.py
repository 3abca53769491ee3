"""A tour of the data store with `store_client`: deposit, search, subscribe, check out, log in.

    python -m examples.tour --url http://127.0.0.1:8000 --token "$(cat .store-home/admin.token)"

Each step calls the store as a program of your own would, then checks the result. The exit code is 0
if every expectation holds. `make demo` starts a temporary store and runs this tour in it.

Every operation of the store is a method of `Client`: `store.get_bundle(uuid=..., replica="aws")`.
For lists, `.iterate(...)` fetches one page after another. The client retries what is worth a retry
and raises `Refused` (or a subclass, such as `NotFound`) when the store refuses a request.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import mimetypes
import random
import re
import secrets
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import click
import httpx

from examples.login import CLIENT_ID, log_in, refresh
from examples.webhooks import Receiver, running_receiver
from store_client import Client, Conflict, NotFound, Refused, StoreError, create_version

Replica = Literal["aws", "gcp"]
REPLICAS: tuple[Replica, Replica] = ("aws", "gcp")
STAGES = ("verified", "in both replicas", "indexed", "notified")
CREATOR = 8008  # `creator_uid`: a number for who deposits
PART = 64 << 20  # bytes of a part, by which the store computes ETags
TIMEOUT_S = 90.0  # for one event, such as a notification, or one step of any bundle
EVERYTHING: dict[str, Any] = {"query": {"match_all": {}}}
DONE = (200, "")
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass
class Bundle:
    """A folder that becomes a bundle; `version` and `entries` are set when it is deposited."""

    folder: Path
    uuid: str = field(default_factory=lambda: str(uuid4()))
    version: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What the tour calls it."""
        return self.folder.name

    @property
    def fqid(self) -> str:
        """The fully qualified identifier: UUID and version."""
        return f"{self.uuid}.{self.version}"

    def name(self) -> dict[str, Any]:
        """The UUID and the version as arguments."""
        return {"uuid": self.uuid, "version": self.version}

    def files(self) -> dict[str, Path]:
        """The files by their names in the bundle."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in found}

    def checksums(self) -> dict[str, str]:
        """The SHA-256 checksums of the files by name."""
        return {name: sha256(path) for name, path in self.files().items()}


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_samples(folder: Path) -> None:
    """Write six small bundles."""
    organisms, tissues = ("Homo sapiens", "Mus musculus", "Danio rerio"), ("heart", "kidney")
    for number, (organism, tissue) in enumerate(itertools.product(organisms, tissues)):
        (bundle := folder / f"sample-{number}").mkdir()
        (bundle / "sample.json").write_text(json.dumps({"organism": organism, "tissue": tissue}))
        (bundle / "reads.fastq.gz").write_bytes(random.randbytes(50_000))


@dataclass(frozen=True)
class Fact:
    """A member of a metadata file has a value in the bundles with these labels."""

    key: str
    member: str
    value: str
    labels: frozenset[str]
    path: str
    """Where the receiver gets the notifications of these bundles."""

    def jmespath(self) -> str:
        """The fact as the JMESPath query of a subscription."""
        return f'files."{self.key}"[?"{self.member}"==`{json.dumps(self.value)}`]'

    def es_query(self) -> dict[str, Any]:
        """The fact as a query of the search."""
        return {"query": {"term": {f"files.{self.key}.{self.member}.keyword": self.value}}}


def choose_facts(bundles: Iterable[Bundle]) -> tuple[Fact, Fact]:
    """Two facts on different members, unless there is only one."""
    labels: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for bundle in bundles:
        for text in find_texts(bundle):
            labels[text].add(bundle.label)
    half = len(set.union(set(), *labels.values())) / 2
    ranked = sorted(labels, key=lambda text: (abs(len(labels[text]) - half), text))
    if not ranked:
        raise click.ClickException("No metadata file has a text to search for.")
    other = next((text for text in ranked if text[1] != ranked[0][1]), ranked[0])
    first, second = (frozenset(labels[text]) for text in (ranked[0], other))
    return Fact(*ranked[0], first, "/jmespath"), Fact(*other, second, "/search")


def find_texts(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """The short texts in the metadata: key of the file in the index, member and value."""
    for name, path in bundle.files().items():
        content = json.loads(path.read_bytes()) if path.suffix == ".json" else None
        # The index puts sample_0.json, sample_1.json and so on into the list `sample_json`.
        key = re.sub(r"_\d+(?=_json$)", "", name.replace(".", "_"))
        for member, value in content.items() if isinstance(content, dict) else ():
            is_short = isinstance(value, str) and 0 < len(value) <= 80 and "://" not in value
            if is_short and "." not in member:
                yield key, member, value


@dataclass
class Tour:
    """What the steps share."""

    store: Client
    url: str
    token: str
    bundles: list[Bundle]
    facts: tuple[Fact, Fact]
    receiver: Receiver
    subscriptions: list[dict[str, Any]] = field(default_factory=list)
    results: list[bool] = field(default_factory=list)

    def run(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step; an exception in it is an expectation that does not hold."""
        title = step.__name__.replace("_", " ")
        click.secho(f"\n{title}", bold=True)
        began = time.monotonic()
        try:
            step(self, *arguments)
        except Exception as error:
            self.expect(f"{title}: {type(error).__name__}: {error}", False)
        click.echo(f"  {time.monotonic() - began:.1f} s")

    def expect(self, sentence: str, holds: bool, missing: Iterable[str] = ()) -> None:
        """Show and count an expectation."""
        self.results.append(holds)
        mark = click.style("ok  ", fg="green") if holds else click.style("FAIL", fg="red")
        examples = "".join(f"\n       {one}" for one in sorted(missing)[:5])
        click.echo(f"  {mark} {sentence}{examples}")

    def connect(self, token: str) -> Client:
        """The same store for another user."""
        return Client(self.url, token=token)

    def fqids(self, fact: Fact) -> set[str]:
        """The bundles with a fact."""
        return {one.fqid for one in self.bundles if one.label in fact.labels}

    def list_stored(self, replica: Replica) -> set[str]:
        """All bundles of a replica."""
        found = self.store.get_bundles_all.iterate(replica=replica)
        return {f"{one['uuid']}.{one['version']}" for one in found}

    def search(self, replica: Replica, query: Mapping[str, Any] = EVERYTHING) -> set[str]:
        """The bundles of this tour that a search finds."""
        found = self.store.post_search.iterate(replica=replica, es_query=query)
        return {one["bundle_fqid"] for one in found} & {one.fqid for one in self.bundles}


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether a condition is met in time; what is not found yet does not meet it."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(NotFound):
            if condition():
                return True
        time.sleep(0.2)
    return False


def subscribe(tour: Tour) -> None:
    """Subscribe to each fact: by JMESPath in one replica, by a search query in the other."""
    first, second = tour.facts
    queries: tuple[tuple[str, Fact, dict[str, Any]], ...] = (
        ("jmespath", first, {"jmespath_query": first.jmespath()}),
        ("elasticsearch", second, {"es_query": second.es_query()}),
    )
    for replica, (type_, fact, query) in zip(REPLICAS, queries, strict=True):
        made = tour.store.put_subscription(
            replica=replica,
            callback_url=tour.receiver.url + fact.path,
            hmac_secret_key=tour.receiver.key,
            attachments={"fact": {"type": "jmespath", "expression": "bundle_info.version"}},
            **query,
        )
        name = {"uuid": made["uuid"], "replica": replica, "subscription_type": type_}
        tour.subscriptions.append(name)


def deposit(tour: Tour) -> None:
    """Deposit all bundles, several at a time, and watch how far they come."""
    (first, second), area = tour.facts, str(uuid4())
    everything = {one.label for one in tour.bundles}
    wanted = dict.fromkeys(STAGES, everything) | {"notified": {*first.labels, *second.labels}}
    tour.store.post_area(uuid=area)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(deposit_bundle, tour.store, area, one) for one in tour.bundles]
        watch(tour, wanted, lambda: any(one.done() and one.exception() for one in futures))
        pool.shutdown(cancel_futures=True)
    for future in futures:
        future.result()  # raises the error of a deposit that failed
    tour.store.delete_area(uuid=area)
    for bundle in tour.bundles:
        for entry in bundle.entries:
            if (bundle.folder / entry["name"]).stat().st_size > PART:
                check_etag(tour, bundle.folder / entry["name"], entry["uuid"])


def check_etag(tour: Tour, path: Path, uuid: str) -> None:
    """A large file has the ETag of a multipart upload with parts of 64 MiB."""
    with path.open("rb") as file:
        digests = [hashlib.md5(part).digest() for part in iter(lambda: file.read(PART), b"")]
    etag = f"{hashlib.md5(b''.join(digests)).hexdigest()}-{len(digests)}"
    stored = tour.store.head_file(uuid=uuid, replica="gcp")["x-store-s3-etag"]
    tour.expect(f"{path.name} has the ETag of {len(digests)} parts", stored == etag)


def deposit_bundle(store: Client, area: str, bundle: Bundle) -> None:
    """Upload the files to an upload area, have the store take them in, and make the bundle."""
    version, entries = create_version(), []
    for name, path in bundle.files().items():
        uploaded = store.put_area_file(
            uuid=area,
            filename=f"{bundle.uuid}/{name}",
            content=path,
            headers={"Content-Type": mimetypes.guess_type(name)[0] or "application/octet-stream"},
        )
        if uploaded["checksums"]["sha256"] != sha256(path):
            raise StoreError(f"{name} was damaged on its way")
        file: dict[str, Any] = {"uuid": str(uuid4()), "version": version}
        source: dict[str, Any] = {"source_url": uploaded["url"], "creator_uid": CREATOR}
        # The store verifies a file while the next ones are uploaded.
        store.put_file(**file, **source, replica="aws", headers={"Prefer": "respond-async"})
        entries.append({**file, "name": name, "indexed": path.suffix == ".json"})
    while True:
        try:
            put_bundle(store, entries, uuid=bundle.uuid, version=version)
        except Conflict as error:
            if error.code != "file_pending":
                raise
            time.sleep(1)  # some of its files are still being verified
        else:
            bundle.entries, bundle.version = entries, version
            return


def put_bundle(store: Client, entries: list[dict[str, Any]], **name: Any) -> None:
    """Make a bundle of files, with a new UUID and version if none are given."""
    name = {"uuid": str(uuid4()), "version": create_version(), **name}
    store.put_bundle(**name, replica="aws", creator_uid=CREATOR, files=entries)


def watch(tour: Tour, wanted: dict[str, set[str]], has_failed: Callable[[], bool]) -> None:
    """Show how many bundles are at each stage until all are, or none gets any further."""
    began = changed = time.monotonic()
    line, found = "", {stage: set[str]() for stage in STAGES}
    while found != wanted and not has_failed() and time.monotonic() - changed < TIMEOUT_S:
        time.sleep(1)
        found = {stage: labels & wanted[stage] for stage, labels in find_progress(tour).items()}
        now = ", ".join(f"{one} {len(found[one])}/{len(wanted[one])}" for one in STAGES)
        if now != line:
            line, changed = now, time.monotonic()
            click.echo(f"  {changed - began:6.1f} s  {line}")
    for stage in STAGES:
        sentence = f"bundles {stage}: {len(found[stage])} of {len(wanted[stage])}"
        tour.expect(sentence, found[stage] == wanted[stage], missing=wanted[stage] - found[stage])


def find_progress(tour: Tour) -> dict[str, set[str]]:
    """The bundles at each stage, found with a few requests for all of them."""
    deposited = {one.fqid: one.label for one in tour.bundles if one.version}
    waiting = set.union(*(tour.fqids(fact) - tour.receiver.fqids(fact.path) for fact in tour.facts))
    stored, indexed = (
        set.intersection(*(find(replica) for replica in REPLICAS))
        for find in (tour.list_stored, tour.search)
    )
    found = (deposited.keys(), stored, indexed, deposited.keys() - waiting)
    return {
        stage: {deposited[fqid] for fqid in deposited.keys() & fqids}
        for stage, fqids in zip(STAGES, found, strict=True)
    }


def search(tour: Tour) -> None:
    """Search for each fact in both replicas."""
    for fact in tour.facts:
        wanted = tour.fqids(fact)
        found = [tour.search(replica, fact.es_query()) for replica in REPLICAS]
        sentence = f"search for {fact.member} = {fact.value}: {len(wanted)} bundles in each replica"
        tour.expect(sentence, found == [wanted, wanted])


def download(tour: Tour) -> None:
    """Read a bundle from the other replica than the one it was deposited into."""
    bundle, downloaded = tour.bundles[0], {}
    for entry in tour.store.get_bundle.iterate(**bundle.name(), replica="gcp"):
        # The store answers with a URL of this one file, which is good for a while.
        found = tour.store.get_file(uuid=entry["uuid"], version=entry["version"], replica="gcp")
        content = httpx.get(found["location"]).raise_for_status().content
        downloaded[entry["name"]] = hashlib.sha256(content).hexdigest()
    same = downloaded == bundle.checksums()
    tour.expect(f"{bundle.label} reads back from gcp, byte for byte", same)


def check_out(tour: Tour) -> None:
    """Have the store copy a bundle to where people compute."""
    bundle, replica = tour.bundles[-1], REPLICAS[1]
    job = tour.store.post_bundles_checkout(**bundle.name(), replica=replica)["checkout_job_id"]
    show = functools.partial(tour.store.get_bundles_checkout, checkout_job_id=job, replica=replica)
    wait_until(lambda: show()["status"] != "RUNNING")
    checkout = show()
    tour.expect(f"checkout of {bundle.label} has SUCCEEDED", checkout["status"] == "SUCCEEDED")
    location = urlsplit(checkout.get("location", ""))
    if location.scheme == "file":  # a store on this machine
        same = Bundle(Path(unquote(location.path))).checksums() == bundle.checksums()
        tour.expect("the files checked out are the files deposited", same)


def collect(tour: Tour) -> None:
    """Make a collection of links to a bundle, to a file of it, and to a file's metadata."""
    bundle = tour.bundles[-1]
    name: dict[str, Any] = {"uuid": str(uuid4()), "version": create_version()}
    files = [{"uuid": one["uuid"], "version": bundle.version} for one in bundle.entries]
    metadata = [file for file, one in zip(files, bundle.entries, strict=True) if one["indexed"]]
    links = [
        {"type": "bundle", **bundle.name()},
        {"type": "file", **files[0]},
        *({"type": "metadata", **file, "path": ""} for file in metadata[:1]),
    ]
    text: dict[str, Any] = {"name": "Tour", "description": "What the *tour* deposited."}
    content: dict[str, Any] = {**text, "details": {}, "contents": [*links, links[0]]}
    tour.store.put_collection(**name, **content, replica="aws")

    def is_complete() -> bool:
        found = [tour.store.get_collection(**name, replica=one) for one in REPLICAS]
        return all(one["contents"] == links for one in found)

    sentence = f"a collection of {len(links)} links, one given twice, is the same in both replicas"
    tour.expect(sentence, wait_until(is_complete))


def withdraw(tour: Tour) -> None:
    """Delete a bundle: a tombstone hides it at once, and its subscriber is notified."""
    fact = tour.facts[0]
    bundle = next(one for one in tour.bundles if one.label in fact.labels)
    tour.store.delete_bundle(**bundle.name(), replica="aws", reason="The donor asked for it.")
    status, _ = find_refusal(lambda: tour.store.get_bundle(**bundle.name(), replica="gcp"))
    tour.expect(f"{bundle.label} is hidden in both replicas at once", status == 404)
    notified = wait_until(lambda: bundle.fqid in tour.receiver.fqids(fact.path, "TOMBSTONE"))
    tour.expect("its subscriber received the TOMBSTONE", notified)
    gone = wait_until(lambda: all(bundle.fqid not in tour.search(one) for one in REPLICAS))
    tour.expect("no search finds it any more", gone)


def send_bad_input(tour: Tour) -> None:
    """The store refuses bad input, says why, and changes nothing."""
    before = [tour.list_stored(replica) for replica in REPLICAS]
    entry, (head, _, signature) = tour.bundles[0].entries[0], tour.token.rpartition(".")
    forger = tour.connect(f"{head}.{signature[::-1]}")
    unknown, outside = {**entry, "uuid": str(uuid4())}, {**entry, "name": "../../etc/passwd"}
    for what, store, sent, expected in (
        ("a file that was never deposited", tour.store, unknown, (400, "file_missing")),
        ("a name outside its folder", tour.store, outside, (400, "illegal_arguments")),
        ("a forged token", forger, entry, (401, "unauthorized")),
    ):
        refusal = find_refusal(put_bundle, store, [sent])
        tour.expect(f"{what} is refused: {expected[0]} {expected[1]}", refusal == expected)
    after = [tour.list_stored(replica) for replica in REPLICAS]
    tour.expect("bad input has changed nothing", before == after)


def find_refusal(call: Callable[..., object], *arguments: Any) -> tuple[int, str]:
    """The status and the code with which the store refuses a call, or DONE."""
    try:
        call(*arguments)
    except Refused as error:
        # OAuth endpoints have their code in `error` (RFC 6749), all others in `code`.
        return error.status, error.code or error.problem.get("error", "")
    return DONE


def log_in_people(tour: Tour, logins: Mapping[str, str]) -> None:
    """Log in two users. One may only read; the other may write until the account is disabled."""
    admin, entries, (_, ingester) = tour.store, tour.bundles[0].entries[:1], logins
    admin.put_v1_user_role(user_id=ingester, action="add", roles=["store_ingest"])
    first, second = (log_in(admin, email, password) for email, password in logins.items())
    for email, tokens in zip(logins, (first, second), strict=True):
        user = tour.connect(tokens["access_token"]).get_oauth_userinfo()
        tour.expect(f"{email} logs in with a browser without scripts", user["email"] == email)

    def write(token: Mapping[str, Any]) -> tuple[int, str]:
        return find_refusal(put_bundle, tour.connect(token["access_token"]), entries)

    def read(token: Mapping[str, Any]) -> tuple[int, str]:
        query: dict[str, Any] = {"callback_url": tour.receiver.url, "jmespath_query": "manifest"}
        store = tour.connect(token["access_token"])
        return find_refusal(lambda: store.dry_run_subscription(**query, replica="aws", bundles=1))

    sentence = "the reader may try out a subscription, but not write: 403 forbidden"
    tour.expect(sentence, (read(first), write(first)) == (DONE, (403, "forbidden")))
    tour.expect("the ingester may write", write(second) == DONE)
    third = refresh(admin, second)
    is_new = all(second[name] != third[name] for name in ("access_token", "refresh_token"))
    tour.expect("refreshed tokens are new, and may write", is_new and write(third) == DONE)

    ended = (400, "invalid_grant")
    admin.put_v1_user(user_id=ingester, status="disabled")
    refused = write(third) == (401, "unauthorized")
    sentence = "a disabled user is refused at the next request: 401 unauthorized"
    tour.expect(sentence, refused and find_refusal(refresh, admin, third) == ended)
    admin.post_oauth_revoke(client_id=CLIENT_ID, token=first["refresh_token"])
    status, _ = find_refusal(tour.connect(first["access_token"]).get_oauth_userinfo)
    refused = (status, read(first)[0]) == (401, 401)
    sentence = "a revoked login is refused: 401, 400 invalid_grant"
    tour.expect(sentence, refused and find_refusal(refresh, admin, first) == ended)


def check_notifications(tour: Tour) -> None:
    """Verify the notifications of the whole tour."""
    count = len(tour.receiver.accepted)
    valid = count > 0 and not tour.receiver.invalid()
    tour.expect(f"signatures hold on all {count} notifications", valid)
    own = {one.fqid for one in tour.bundles}
    expected = [tour.receiver.fqids(one.path) & own <= tour.fqids(one) for one in tour.facts]
    tour.expect("bundles that do not match are not notified", all(expected))
    for subscription in tour.subscriptions:  # so that the tour leaves none behind
        tour.store.delete_subscription(**subscription)


@click.command()
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The store.")
@click.option("--token", envvar="TOUR_TOKEN", required=True, help="An administrator's token.")
@click.option("--from", "source", type=FOLDER, help="Deposit the folders in this folder.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where notifications go.")
@click.option("--login", "logins", multiple=True, envvar="TOUR_LOGINS", metavar="EMAIL:PASSWORD")
def main(url: str, token: str, source: Path | None, host: str, logins: tuple[str, ...]) -> None:
    """Show what a store does, with samples or with folders that become bundles.

    Give --login twice, for a user who may read and for one who is to write, to show logins, too.
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_receiver(secrets.token_urlsafe(24), host=host) as receiver,
        Client(url, token=token) as store,
    ):
        if source is None:
            write_samples(source := Path(scratch))
        bundles = [Bundle(one) for one in sorted(source.iterdir()) if one.is_dir()]
        tour = Tour(store, url, token, bundles, choose_facts(bundles), receiver)
        tour.run(subscribe)
        tour.run(deposit)
        if all(one.version for one in bundles):
            for step in (search, download, check_out, collect, withdraw, send_bad_input):
                tour.run(step)
            if logins:
                tour.run(log_in_people, dict(one.split(":", 1) for one in logins))
        tour.run(check_notifications)
    failed, count = tour.results.count(False), len(tour.results)
    click.echo(f"\n{count - failed} of {count} expectations hold.")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
