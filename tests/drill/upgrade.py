"""The drill of an upgrade: the last release, this code, and both together on the same engines.

The release is filled with bundles. Its catalog is migrated while its processes run, and this code's
processes start beside them; deposits go to both. Then the release is stopped under load. At the
end, as who goes back would, this code is stopped, its migrations are undone, and the release takes
deposits again. After another upgrade everything that either acknowledged must be there. Both run with the libraries of this code.
"""

import os
import secrets
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import click

from bench.harness import checkout_of
from examples.webhooks import Receiver, running_receiver
from ops import local_store
from ops.local_store import LocalStore
from ops.procfile import ROOT
from storage.catalog import revisions
from storage.model import REPLICAS
from tests.drill import checks, environment, notification_checks, samples
from tests.drill.buckets import Bucket, Folder
from tests.engines import optional_engines
from tests.live.api import ApiClient
from tests.live.deposits import DepositedBundle, Depositor, SampleBundle

RELEASE = "0fb5b940"
"""The commit of the last release."""
PATIENCE_S = 120.0


@dataclass
class Upgrade:
    """Two versions of the code on one stand, and what they took in."""

    stand: environment.Stand
    folder: Path
    inbox: Receiver
    waiting: list[SampleBundle]
    deposited: list[DepositedBundle] = field(default_factory=list)

    @contextmanager
    def running(self, name: str, root: Path) -> Iterator[LocalStore]:
        """Run a version with a home of its own, and the secrets of the first one."""
        home, first = self.folder / name, self.folder / "release"
        if not home.exists():
            home.mkdir(mode=0o700)
            if first != home:
                shutil.copytree(first / "secrets", home / "secrets")
        began = time.monotonic()
        with local_store.running_store(home, self.stand.settings, root) as store:
            click.echo(f"upgrade: {name} runs after {time.monotonic() - began:.0f} s")
            yield store
            began = time.monotonic()
        click.echo(f"upgrade: {name} stopped after {time.monotonic() - began:.0f} s")

    @contextmanager
    def deposits(self, store: LocalStore, share: int) -> Iterator[None]:
        """Deposit some of what waits into one version while the block runs; all are acknowledged
        when it ends."""
        bundles, self.waiting = self.waiting[:share], self.waiting[share:]
        depositor = Depositor(self.service(store), str(uuid.uuid4()))
        depositor.create_area()
        with depositor.depositing(bundles, self.deposited.append) as deposits:
            yield
            for future in deposits.futures:
                future.result(PATIENCE_S)

    def service(self, store: LocalStore) -> ApiClient:
        """Return a client of one version."""
        return ApiClient.open(store.api, store.token, retry_for_s=PATIENCE_S)

    def faults(self, store: LocalStore, rng: Random) -> Iterator[str]:
        """What is missing, seen through one version."""
        service = self.service(store)
        with environment.opened(store, self.stand) as stores:
            folders: dict[str, Bucket] = {
                replica: Folder(stores.replicas[replica]) for replica in REPLICAS
            }
            buckets = {**folders, **self.stand.buckets}
            yield from checks.settled(stores, service, self.deposited)
            yield from checks.wanting(stores)
            yield from checks.unreadable(service, self.deposited, rng)
            yield from checks.tidied(stores, buckets)
            yield from checks.misplaced(buckets, self.deposited)
            yield from checks.uncatalogued(stores, buckets)
        yield from checks.absent(store)


def _carry_out(upgrade: Upgrade, release: Path, rng: Random) -> list[str]:
    """Go from the release to this code and back under load; what is missing afterwards."""
    share = len(upgrade.waiting) // 5
    with ExitStack() as leaving:
        old = leaving.enter_context(upgrade.running("release", release))
        notification_checks.subscribe(upgrade.service(old), upgrade.inbox)
        with upgrade.deposits(old, share):
            pass
        with environment.opened(old, upgrade.stand) as stores:
            revision = revisions.read_current_revision(stores.catalog)
        told = old.run_command("migrate")
        click.echo(f"upgrade: migrated: {told.strip() or 'nothing to do'}")
        with upgrade.running("this", ROOT) as new:
            with upgrade.deposits(old, share), upgrade.deposits(new, share):
                pass
            with upgrade.deposits(new, share):
                leaving.close()
            found = list(upgrade.faults(new, rng))
        click.echo(f"upgrade: undone: {new.run_command('migrate', '--to', revision).strip()}")
        with upgrade.running("release", release) as back, upgrade.deposits(back, share):
            pass
        with upgrade.running("this", ROOT) as again:
            found += upgrade.faults(again, rng)
    fqids = {one.fqid for one in upgrade.deposited}
    found += notification_checks.faults(upgrade.inbox, fqids)
    click.echo(f"upgrade: {notification_checks.Told.of(upgrade.inbox.accepted)}")
    if upgrade.waiting or len(fqids) != 5 * share:
        found.append(f"{len(fqids)} of {5 * share} bundles were acknowledged")
    return found


@click.command()
@click.option("--release", default=RELEASE, show_default=True, metavar="COMMIT")
@click.option("--seed", type=int, help="Repeat the drill of this seed.")
@click.option("--bundles", default=100, show_default=True, help="A multiple of 5.")
@optional_engines.option
def drill(release: str, seed: int | None, bundles: int, excuse: set[str]) -> None:
    """Upgrade a store under load, and go back."""
    seed = secrets.randbelow(2**31) if seed is None else seed
    click.echo(f"upgrade: from {release}, seed {seed}, {bundles} bundles")
    began, rng = time.monotonic(), Random(seed)
    waiting = list(samples.bundles(bundles - bundles % 5, rng, large_every=25))
    with ExitStack() as stack:
        homes = Path(stack.enter_context(local_store.temporary_home()))
        engines = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="upgrade-")))
        code = stack.enter_context(checkout_of(release))
        try:
            stand = stack.enter_context(environment.real(engines, rng, excused=frozenset(excuse)))
        except environment.Lacking as error:
            sys.exit(f"upgrade: {error}; excuse it by --excuse")
        # The checks open the buckets, too.
        os.environ.update(
            {key: raw for key, raw in stand.settings.items() if not key.startswith("STORE_")}
        )
        accept = notification_checks.Reluctance()
        inbox = stack.enter_context(running_receiver(secrets.token_urlsafe(24), accept=accept))
        found = _carry_out(Upgrade(stand, homes, inbox, waiting), code.root, rng)
    for fault in found[:25]:
        click.echo(f"upgrade: FAIL {fault}")
    click.echo(f"upgrade: {'failed' if found else 'held'} after {time.monotonic() - began:.0f} s")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    drill()
