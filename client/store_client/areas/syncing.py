"""Whether a file of the same content lies in the area already, under the same name."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from store_client.areas import asking
from store_client.areas.reading import Outgoing, read
from store_client.areas.sent import Sending, Sent, checked
from store_client.checksums import Checksums, compute
from store_client.errors import Damaged, TimedOut

Listed = Mapping[str, Mapping[str, Any]]
"""What the area says of its files, by their names."""

BY = ("sha256", "crc32c")
"""The checksums that tell content from other content."""


def listed(sending: Sending) -> Listed:
    """Everything that lies there now."""
    return {found["name"]: found for found in asking.files(sending.client, sending.area)}


def there(sending: Sending, outgoing: Outgoing, *, files: Listed) -> Sent | None:
    """What lies there, if it is that very content; None when it has to be sent.

    The local file is read only when the size is the same.
    """
    found = files.get(outgoing.name)
    if found is None or found["size"] != outgoing.size:
        return None
    status = found["status"]
    if status != asking.CHECKSUMMED and status not in asking.UNDER_WAY:
        return None
    ours = compute(read(outgoing.path, outgoing.size, stop=sending.stop), outgoing.size)
    same = (
        _same(found["checksums"], ours)
        if status == asking.CHECKSUMMED
        else _becomes(sending, outgoing, ours=ours)
    )
    return Sent(str(found["url"]), outgoing.size, ours) if same else None


def _same(theirs: Mapping[str, Any] | None, ours: Checksums) -> bool:
    mine = asdict(ours)
    return theirs is not None and all(theirs.get(name) == mine[name] for name in BY)


def _becomes(sending: Sending, outgoing: Outgoing, *, ours: Checksums) -> bool:
    """Once the store has looked at what came just now."""
    try:
        checked(sending, outgoing, ours)
    except (Damaged, TimedOut):
        return False
    return True
