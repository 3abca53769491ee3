"""What subscribers are told, from the first bundle to the tombstone of one."""

import secrets

from ops.demo.progress import EVERYTHING, REPLICAS
from ops.demo.service import Service
from ops.demo.story import EVENT_S, Story, within

JMESPATH, ELASTICSEARCH = "/jmespath", "/elasticsearch"
REASON = "Withdrawn at the donor's request."


def new_key() -> bytes:
    """A signing key as a subscriber would choose one."""
    return secrets.token_urlsafe(24).encode()


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


def notified_of(story: Story) -> set[str]:
    """The versions of which every subscription that matches was told."""
    told = {}
    for question, path in zip(story.asked, (JMESPATH, ELASTICSEARCH), strict=True):
        wanted = story.fqids(question.labels)
        told[path] = wanted - story.inbox.seen(path)
    outstanding = set().union(*told.values())
    # Copied at once: the threads that deposit add to it meanwhile.
    return {one.fqid for one in list(story.deposited.values())} - outstanding


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
        told = within(EVENT_S, lambda: fqid in story.inbox.seen(JMESPATH, "TOMBSTONE"))
        story.report.expect("its subscriber got the TOMBSTONE", told)
        unfound = within(EVENT_S, lambda: fqid not in _found_anywhere(story.service))
        story.report.expect("no search finds it any more", unfound)


def _found_anywhere(service: Service) -> set[str]:
    return set().union(*(service.found(one, EVERYTHING) for one in REPLICAS))


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
