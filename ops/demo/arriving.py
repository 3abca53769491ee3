"""Bundles arrive, and are watched until each is wherever it belongs."""

import uuid

from ops.demo.depositing import Deposited, Depositor
from ops.demo.hearing import notified_of
from ops.demo.progress import STAGES, Progress, look, watch
from ops.demo.story import Story

STALL_S = 90.0
"""Nothing moved for so long: it will not any more."""


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
