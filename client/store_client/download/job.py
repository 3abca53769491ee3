"""One download from its beginning to its end: what its parts share, and the tasks they are made of.

A task that finds files answers one task for each; `laid` says where, beside the cache, a file goes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from store_client.download import cache, entries, linking, parallel
from store_client.download.cache import Cache
from store_client.download.entries import Store, Wanted
from store_client.download.fetching import Fetching
from store_client.download.options import Options
from store_client.download.parallel import Task
from store_client.download.reports import Tally
from store_client.download.slots import Slots
from store_client.download.space import Space
from store_client.download.stopping import Interrupted, Stop
from store_client.download.wire import Wire
from store_client.names import Places

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """What the tasks of one download share."""

    store: Store
    options: Options
    cache: Cache
    fetching: Fetching
    space: Space
    stop: Stop
    tally: Tally = field(default_factory=Tally)

    def files(self, wanted: Sequence[Wanted], directory: Path | None = None) -> list[Task]:
        """A task for each file, once it is known that there is room for all; none in a dry run."""
        laid = Places(directory) if directory else None
        # Every name is looked at before the first byte comes.
        targets = [laid.path(one.name) if laid else None for one in wanted]
        missing = self._missing(wanted)
        self.tally.add(files=len(wanted), bytes=sum(one.size for one in wanted))
        if self.options.dry_run:
            self.tally.add(fetched_files=len(missing), fetched_bytes=sum(missing.values()))
            return []
        self._check_space(wanted, missing, directory)
        self.options.tell.total(len(wanted), sum(missing.values()))
        return [self._task(one, to) for one, to in zip(wanted, targets, strict=True)]

    def bring(self, wanted: Wanted) -> Path:
        """One file into the cache, now; where it is."""
        came = self.fetching.fetch(wanted)
        if came:
            self.tally.add(fetched_files=1, fetched_bytes=wanted.size)
        self.space.came(wanted.sha256)
        self.options.tell.file()
        return self.cache.path(wanted.sha256)

    def run(self, source: Iterable[Task]) -> None:
        """All of the tasks, and those that they lead to."""
        parallel.run(source, self.options.jobs, stop=self.stop)

    def _task(self, wanted: Wanted, target: Path | None) -> Task:
        def task() -> None:
            path = self.bring(wanted)
            if target is not None:
                linking.lay(path, target, sha256=wanted.sha256)

        return task

    def _missing(self, wanted: Iterable[Wanted]) -> dict[str, int]:
        """Sizes of contents that are not in the cache, by digest; what lies there is not read."""
        return {
            one.sha256: one.size
            for one in wanted
            if not self.cache.seems_to_have(one.sha256, one.size)
        }

    def _check_space(
        self, wanted: Sequence[Wanted], missing: dict[str, int], directory: Path | None
    ) -> None:
        self.space.claim({one: self.cache.room(one, size) for one, size in missing.items()})
        if directory is not None and not linking.same_disk(directory, self.cache.root):
            absent = (one for one in wanted if not (directory / one.name).exists())
            Space(directory).claim({one.name: one.size for one in absent})


@contextmanager
def job(store: Store, options: Options) -> Iterator[Job]:
    """A download's parts, until its end; Interrupted after Ctrl-C."""
    options.check()
    kept = cache.opened(options.cache, make=not options.dry_run)
    wire, stop = Wire(), Stop()
    stop.wakes(wire.close)
    fetching = Fetching(
        cache=kept,
        wire=wire,
        url_of=_asking(store, options.replica),
        options=options,
        stop=stop,
        slots=Slots(options.jobs),
    )
    made = Job(store, options, kept, fetching, Space(options.cache), stop)
    try:
        yield made
    except KeyboardInterrupt as error:
        fetched = made.tally.counts().fetched_files
        raise Interrupted(fetched, kept.unfinished()) from error
    finally:
        wire.close()


def _asking(store: Store, replica: str) -> Callable[[Wanted], str]:
    return lambda wanted: entries.renewed(store, replica, wanted)
