"""The subscribers of a drill, and which notifications they must have received after it."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from examples.webhooks import Notification, Receiver
from tests.live.api import ApiClient

MOST_DUPLICATES = 0.01
"""The share of events that may come again."""
FEW_DUPLICATES = 20
"""So many may come again in drills that kill often: each kill repeats what was in flight, which in
a short drill alone can be more than that share."""
RELUCTANT_EVERY = 16
"""One notification of so many is refused when it comes first."""


SUBSCRIBERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "/all-aws": ("aws", {}),
    "/all-gcp": ("gcp", {"jmespath_query": "files.sample_json[0].number >= `0`"}),
    "/found-aws": ("aws", {"es_query": {"query": {"match_all": {}}}}),
    "/found-gcp": (
        "gcp",
        {"es_query": {"query": {"exists": {"field": "files.sample_json.number"}}}},
    ),
}
"""Their queries by the path of their callback; each matches every bundle."""


class Reluctance:
    """Refuses some notifications once, so that there are attempts to compare."""

    def __init__(self) -> None:
        self._met: set[tuple[str, str]] = set()

    def __call__(self, notice: Notification) -> bool:
        """Whether to accept this one; a matter of the event alone, whenever it comes."""
        event = (notice.path, notice.fqid)
        if event in self._met or zlib.crc32("".join(event).encode()) % RELUCTANT_EVERY:
            return True
        self._met.add(event)
        return False


@dataclass(frozen=True)
class Told:
    """How many events came to somebody, and how many came again."""

    events: int
    again: int

    @classmethod
    def of(cls, notices: Collection[Notification]) -> "Told":
        """By subscriber and event."""
        came = Counter((notice.path, notice.fqid) for notice in notices)
        return cls(len(came), len(notices) - len(came))

    def __str__(self) -> str:
        share = self.again / max(1, self.events)
        return f"{self.events} events told, {self.again} of them again ({share:.2%})"


def subscribe(service: ApiClient, inbox: Receiver) -> None:
    """Subscribe all of them."""
    for path, (replica, query) in SUBSCRIBERS.items():
        body = {"callback_url": inbox.url + path, "hmac_secret_key": inbox.key, **query}
        service.call("PUT", "/subscriptions", params={"replica": replica}, json=body)


def faults(inbox: Receiver, fqids: Collection[str], *, few: int = FEW_DUPLICATES) -> Iterator[str]:
    """Events that did not come, came too often, or came again as if they were others.

    `few` may come again, whatever their share is.
    """
    told = Told.of(inbox.accepted)
    if told.again > max(few, MOST_DUPLICATES * told.events):
        yield f"too many duplicates: {told}"
    notices = [*inbox.accepted, *inbox.rejected]
    idents: dict[tuple[str, str], set[str]] = defaultdict(set)
    for notice in notices:
        idents[notice.path, notice.fqid].add(notice.id)
    for path in SUBSCRIBERS:
        missing = sorted(set(fqids) - inbox.fqids(path))
        if missing:
            yield f"{path} was not told of {len(missing)} bundles, such as {missing[0]}"
    for (path, fqid), various in idents.items():
        if len(various) > 1 or "" in various:
            yield f"{path} was told of {fqid} under {len(various)} ids"
        if fqid not in fqids:
            yield f"{path} was told of {fqid}, which nobody acknowledged"
    yield from (
        f"a notification to {notice.path} is not signed: {', '.join(notice.errors)}"
        for notice in notices
        if notice.errors
    )
