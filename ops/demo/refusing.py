"""What may not be is refused: bad input, forged tokens, people who may not write."""

import uuid
from typing import Any

from ops.demo import people
from ops.demo.depositing import Deposited, new_version
from ops.demo.progress import REPLICAS
from ops.demo.story import Story


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


def log_in(story: Story) -> None:
    """Two people log in: one may read, the other write until somebody says no."""
    with story.step("log in"):
        entry = _entry(story.deposited[story.bundles[0].label])
        people.tell(story.store, story.service, entry, story.report)


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
