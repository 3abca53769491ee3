"""What was deposited is found, read, checked out and collected, and is what was deposited."""

import time
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ops.demo import collecting
from ops.demo.progress import REPLICAS
from ops.demo.service import Service
from ops.demo.story import EVENT_S, Story


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
