"""The tour, step by step: each adds what it expected to the report and says whether it held."""

import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ops.demo import collecting, people
from ops.demo.board import Board
from ops.demo.bundles import SampleBundle
from ops.demo.depositing import Deposited, Depositor, new_version
from ops.demo.progress import (
    EVERYTHING,
    REPLICAS,
    STAGES,
    Progress,
    look,
    watch,
)
from ops.demo.questions import Question, questions
from ops.demo.receiver import Inbox
from ops.demo.report import Report
from ops.demo.service import Service
from ops.demo.stage import Stage

STALL_S = 90.0
"""Nothing moved for so long: it will not any more."""

EVENT_S = 60.0
JMESPATH, ELASTICSEARCH = "/jmespath", "/elasticsearch"
REASON = "Withdrawn at the donor's request."


@dataclass
class Story:
    """What the steps share."""

    store: Stage
    service: Service
    inbox: Inbox
    callbacks: str
    key: str
    bundles: tuple[SampleBundle, ...]
    board: Board
    report: Report
    asked: tuple[Question, Question]
    deposited: dict[str, Deposited] = field(default_factory=dict)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step: shown while it runs; what it could not do is a failed expectation."""
        self.board.say(title)
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            self.report.expect(f"{title}: {type(error).__name__}: {error}", False)
        self.report.took(title, time.monotonic() - began)

    def fqids(self, labels: frozenset[str]) -> set[str]:
        """The deposited versions of some bundles."""
        return {self.deposited[label].fqid for label in labels if label in self.deposited}


def tell(story: Story) -> None:
    """The whole tour."""
    subscribe(story)
    deposit(story)
    if len(story.deposited) < len(story.bundles):
        return
    search(story)
    read_back(story)
    check_out(story)
    collect(story)
    withdraw(story)
    misbehave(story)
    log_in(story)
    signatures(story)


def begin(
    store: Stage,
    service: Service,
    receiver: tuple[str, Inbox],
    bundles: tuple[SampleBundle, ...],
    board: Board,
    report: Report,
) -> Story:
    """A story that has not begun."""
    url, inbox = receiver
    key = inbox.key.decode()
    asked = questions(bundles)
    return Story(store, service, inbox, url, key, bundles, board, report, asked)


def new_key() -> bytes:
    """A signing key as a subscriber would choose one."""
    return secrets.token_urlsafe(24).encode()


# Before anything is there ---------------------------------------------------------------------


def subscribe(story: Story) -> None:
    """One subscription of each type, each to its own path of the receiver."""
    first, second = story.asked
    with story.step("subscribe"):
        for replica, path, query in (
            ("aws", JMESPATH, {"jmespath_query": first.fact.jmespath()}),
            ("gcp", ELASTICSEARCH, {"es_query": second.fact.es_query()}),
        ):
            story.service.call(
                "PUT",
                "/subscriptions",
                params={"replica": replica},
                json={
                    "callback_url": story.callbacks + path,
                    "hmac_secret_key": story.key,
                    "attachments": {
                        "fact": {"type": "jmespath", "expression": "bundle_info.version"}
                    },
                    **query,
                },
            )


# Depositing -----------------------------------------------------------------------------------


def notified_of(story: Story) -> set[str]:
    """The versions of which every subscription that matches was told."""
    told = {}
    for question, path in zip(story.asked, (JMESPATH, ELASTICSEARCH), strict=True):
        wanted = story.fqids(question.labels)
        told[path] = wanted - story.inbox.seen(path)
    outstanding = set().union(*told.values())
    # Copied at once: the threads that deposit add to it meanwhile.
    return {one.fqid for one in list(story.deposited.values())} - outstanding


def deposit(story: Story) -> None:
    """Deposit everything while watching how far each bundle has come."""
    notifiable = frozenset.union(*(question.labels for question in story.asked))
    progress = Progress(tuple(bundle.label for bundle in story.bundles), notifiable)
    story.board.follow(progress, story.bundles)
    with story.step("deposit"):
        _deposit_and_watch(story, progress)
    for stage in STAGES:
        wanted = len(progress.wanted(stage))
        story.report.expect(
            f"bundles {stage}: {progress.count(stage)} of {wanted}",
            progress.count(stage) == wanted,
            took_s=progress.finished_at(stage),
            missing=sorted(progress.missing(stage)),
        )
    _expect_etag(story)


def _deposit_and_watch(story: Story, progress: Progress) -> None:
    depositor = Depositor(story.service, str(uuid.uuid4()))
    depositor.open_area()

    def acknowledged(deposited: Deposited) -> None:
        story.deposited[deposited.bundle.label] = deposited
        progress.acknowledged(deposited.bundle.label, deposited.fqid)

    with depositor.depositing(story.bundles, acknowledged) as deposits:
        watch(
            progress,
            lambda: look(progress, story.service, lambda: notified_of(story)),
            shown=story.board.refresh,
            stop=deposits.failed,
            stall_s=STALL_S,
        )
        deposits.raise_if_failed()


def _expect_etag(story: Story) -> None:
    """A large file has the entity tag of a multipart upload, by the specification's rule."""
    placed = [item for one in story.deposited.values() for item in one.placed]
    large = [item for item in placed if item.parts > 1]
    for item in large:
        response = story.service.call("HEAD", f"/files/{item.uuid}", params={"replica": "gcp"})
        etag = response.headers.get("X-STORE-S3-ETAG", "")
        story.report.expect(
            f"{item.file.name} has the entity tag of {item.parts} parts", etag == item.s3_etag
        )


# Asking ---------------------------------------------------------------------------------------


def search(story: Story) -> None:
    """Both questions, in both replicas, against what we know."""
    with story.step("search"):
        for question in story.asked:
            wanted = story.fqids(question.labels)
            found = [story.service.found(one, question.fact.es_query()) for one in REPLICAS]
            story.report.expect(
                f"search for {question.fact}: {len(wanted)} bundles in each replica",
                all(one == wanted for one in found),
            )


def read_back(story: Story) -> None:
    """The files of one bundle come back from the replica that they were not put into."""
    with story.step("read back"):
        chosen = story.deposited[story.bundles[0].label]
        entries = story.service.manifest("gcp", chosen.fqid)
        wanted = {item.file.name: item.sha256 for item in chosen.placed}
        got = {
            entry["name"]: sha256(
                story.service.read("gcp", entry["uuid"], entry["version"])
            ).hexdigest()
            for entry in entries
        }
        story.report.expect(
            f"{chosen.bundle.label} reads back from gcp, byte for byte", got == wanted
        )


def check_out(story: Story) -> None:
    """One bundle is copied to the checkout area and compared there."""
    with story.step("check out"):
        chosen = story.deposited[story.bundles[-1].label]
        uuid, _, version = chosen.fqid.partition(".")
        params = {"replica": "gcp", "version": version}
        job = story.service.call("POST", f"/bundles/{uuid}/checkout", params=params).json()
        status = _finished(story.service, job["checkout_job_id"])
        story.report.expect(
            f"checkout of {chosen.bundle.label} is {status['status']}",
            status["status"] == "SUCCEEDED",
        )
        location = urlsplit(status.get("location", ""))
        if location.scheme == "file":
            copied = _hashes(Path(unquote(location.path)))
            wanted = {item.file.name: item.sha256 for item in chosen.placed}
            story.report.expect("what was checked out is what was deposited", copied == wanted)


def collect(story: Story) -> None:
    """Links to some of it, kept by one person in both replicas."""
    with story.step("collect"):
        wanted = collecting.links(story.deposited[story.bundles[-1].label])
        ident, params = collecting.collect(story.service, wanted)
        found = collecting.shown(story.service, ident, params)
        story.report.expect(
            f"a collection of {len(wanted)} links, one given twice, is the same in both replicas",
            found == [wanted] * len(REPLICAS),
        )


def _finished(service: Service, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + EVENT_S
    while True:
        reply = service.call("GET", f"/bundles/checkout/{job_id}", params={"replica": "gcp"})
        status: dict[str, Any] = reply.json()
        if status["status"] != "RUNNING" or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


def _hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


# Taking away ----------------------------------------------------------------------------------


def withdraw(story: Story) -> None:
    """A tombstone hides a bundle everywhere, and its subscriber hears of it."""
    with story.step("withdraw"):
        label = min(story.asked[0].labels)
        fqid = story.deposited[label].fqid
        uuid, _, version = fqid.partition(".")
        story.service.call(
            "DELETE",
            f"/bundles/{uuid}",
            params={"replica": "aws", "version": version},
            json={"reason": REASON},
        )
        params = {"replica": "gcp", "version": version}
        gone = story.service.try_once("GET", f"/bundles/{uuid}", params=params)
        story.report.expect(f"{label} is hidden in both replicas at once", gone.status_code == 404)
        told = _within(EVENT_S, lambda: fqid in story.inbox.seen(JMESPATH, "TOMBSTONE"))
        story.report.expect("its subscriber got the TOMBSTONE", told)
        unfound = _within(EVENT_S, lambda: fqid not in _found_anywhere(story.service))
        story.report.expect("no search finds it any more", unfound)


def _found_anywhere(service: Service) -> set[str]:
    return set().union(*(service.found(one, EVERYTHING) for one in REPLICAS))


def _within(limit_s: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


# Bad input ------------------------------------------------------------------------------------


def misbehave(story: Story) -> None:
    """Three kinds of bad input: each is refused by name, and nothing has changed after it."""
    with story.step("bad input"):
        before = [story.service.listed(one) for one in REPLICAS]
        entry = _entry(story.deposited[story.bundles[0].label])
        absent = {**entry, "uuid": str(uuid.uuid4())}
        leaving = {**entry, "name": "../../etc/passwd"}
        _refused(story, "a file that nobody deposited", (400, "file_missing"), absent)
        _refused(story, "a name that leaves its folder", (400, "illegal_arguments"), leaving)
        _refused(story, "a forged token", (401, "unauthorized"), entry, token=_forged(story))
        after = [story.service.listed(one) for one in REPLICAS]
        story.report.expect("bad input has changed nothing", before == after)


def _entry(deposited: Deposited) -> dict[str, Any]:
    placed = deposited.placed[0]
    version = deposited.fqid.partition(".")[2]
    return {"uuid": placed.uuid, "version": version, "name": placed.file.name, "indexed": True}


def _refused(
    story: Story,
    what: str,
    expected: tuple[int, str],
    entry: dict[str, Any],
    *,
    token: str | None = None,
) -> None:
    response = story.service.try_once(
        "PUT",
        f"/bundles/{uuid.uuid4()}",
        params={"version": new_version(), "replica": "aws"},
        json={"creator_uid": 1, "files": [entry]},
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    got = (response.status_code, response.json().get("code"))
    story.report.expect(f"{what} is refused: {expected[0]} {expected[1]}", got == expected)


def _forged(story: Story) -> str:
    """The administrator's token with a signature of somebody else."""
    token = str(story.service.http.headers["Authorization"]).partition(" ")[2]
    head, _, signature = token.rpartition(".")
    return f"{head}.{signature[::-1]}"


# People ---------------------------------------------------------------------------------------


def log_in(story: Story) -> None:
    """Two people log in: one may read, the other write until somebody says no."""
    with story.step("log in"):
        entry = _entry(story.deposited[story.bundles[0].label])
        people.tell(story.store, story.service, entry, story.report)


# In the end -----------------------------------------------------------------------------------


def signatures(story: Story) -> None:
    """Every callback of the whole tour carried signatures that hold."""
    forged = story.inbox.forged()
    faults = sorted({fault for notice in forged for fault in notice.faults})
    story.report.expect(
        f"signatures hold on all {len(story.inbox.notices)} notifications",
        bool(story.inbox.notices) and not forged,
        missing=faults,
    )
    story.report.expect(
        "nobody was told of what does not match",
        story.inbox.seen(JMESPATH, "CREATE") <= story.fqids(story.asked[0].labels)
        and story.inbox.seen(ELASTICSEARCH) <= story.fqids(story.asked[1].labels),
    )
