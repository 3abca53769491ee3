"""The tour from its beginning to its end."""

from ops.demo.arriving import deposit
from ops.demo.hearing import signatures, subscribe, withdraw
from ops.demo.reading import check_out, collect, read_back, search
from ops.demo.refusing import log_in, misbehave
from ops.demo.story import Story


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
