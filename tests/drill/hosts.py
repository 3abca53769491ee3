"""The drill on seven hosts: two web, three worker and two engine hosts in network namespaces.

The hosts run the last release, the network is slow and loses packets, and the clocks of two hosts
are wrong. While bundles are deposited through both web hosts, the catalog is migrated and each host
is upgraded to this code, one after the other. Then, during more deposits, hosts are cut off from
others for a while, and one worker host is lost for good. Afterwards everything that was
acknowledged must be there, and at most 1 % of the notifications may have come twice. Search is
embedded in each host, so it is not compared.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import click
import httpx

import config
from bench.harness import checkout_of
from config.process import bind_command_to_parent
from examples.webhooks import Receiver, running_receiver
from ops.procfile import ROOT
from storage.catalog import deliveries, jobs
from storage.connect import connect
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.drill import checks, notification_checks, samples
from tests.drill.buckets import S3Bucket
from tests.drill.network import HERE, Network, create_network
from tests.drill.upgrade import RELEASE
from tests.engines import engine, packages, postgres, redis, s3
from tests.engines.versions import S3_SERVER
from tests.live.api import ApiClient, UnexpectedAnswer
from tests.live.deposits import DepositedBundle, Depositor, SampleBundle
from tests.waiting import until

ENGINES, WEB, WORKERS = ("engine1", "engine2"), ("web1", "web2"), ("worker1", "worker2", "worker3")
HOSTS = (*ENGINES, *WEB, *WORKERS)
SKEWED_CLOCK = "skewed_clock.so"
SKEWS_S = {"web2": 300, "worker3": -90}
"""By how many seconds clocks are fast, or slow."""
DELAY_S, LOSS = 0.025, 0.02
"""Of each packet: 50 ms a round trip."""
LOST = "worker2"
CUTS: Sequence[tuple[float, str, Sequence[str], float]] = (
    (0.10, "worker1", ("engine1",), 30.0),
    (0.25, "web1", ("engine2",), 20.0),
    (0.45, "worker3", tuple(name for name in (HERE, *HOSTS) if name != "worker3"), 75.0),
    (0.60, LOST, tuple(name for name in (HERE, *HOSTS) if name != LOST), 0.0),
    (0.75, "web2", ("engine1",), 20.0),
)
"""Share of acknowledged bundles, host, from which others it is cut off, and for how many seconds;
0 is for good."""
WORKER_QUEUES = (
    "verify chores purge sync verify_large sync_large checkout index match",
    "deliver",
    "clock",
)
"""The queues of each process of a worker host."""
PORT, POSTGRES_PORT, REDIS_PORT, S3_PORT = 8000, 5432, 6379, 7070
PATIENCE_S, STARTING_S, STOPPING_S = 600.0, 180.0, 60.0
BUSY_EXIT_CODE = 75
"""Of a migration that found a table busy, and is to be tried again."""
DEPOSITS_AT_ONCE, UPGRADE_BUNDLES = 8, 800
"""During the upgrade, which takes as long as it takes: bundles that each depositor has in hand, and
the most of all."""
TOKEN_HOURS = "2"


@dataclass
class Hosts:
    """A store on hosts, and its processes by host."""

    network: Network
    folder: Path
    root: Path
    """The code of processes that are started."""
    credentials: Mapping[str, str]
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    processes: dict[str, list["subprocess.Popen[bytes]"]] = field(default_factory=dict)

    def start(self, host: str, words: Sequence[str | Path], **environ: str) -> None:
        """Start a program on a host; it ends with this process."""
        if host in SKEWS_S:
            environ["LD_PRELOAD"] = str(self.folder / SKEWED_CLOCK)
            environ["SKEW_S"] = str(SKEWS_S[host])
        command = self.network.command(host, [str(word) for word in words])
        with (self.folder / f"{host}.log").open("ab") as log:
            process = subprocess.Popen(
                bind_command_to_parent(tuple(command)),
                cwd=self.root,
                env={**_inherited(), **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.setdefault(host, []).append(process)

    def kill(self, host: str) -> None:
        """End everything on a host at once, as a lost host does."""
        for process in self.processes.pop(host, []):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self, host: str) -> None:
        """Stop the processes of a host as an operator does; TimeoutExpired if one does not end."""
        stopping = self.processes[host]
        for process in stopping:
            process.terminate()
        for process in stopping:
            process.wait(STOPPING_S)
        del self.processes[host]

    def dead(self) -> Iterator[str]:
        """Which hosts have processes that ended by themselves."""
        for host, processes in self.processes.items():
            for process in processes:
                if process.poll() is not None:
                    yield f"a process of {host} ended with {process.returncode}"

    def environ(self, host: str) -> dict[str, str]:
        """The settings of a host's processes."""
        first, second = (self.network.address(name) for name in ENGINES)
        web = [self.network.address(name) for name in WEB]

        def bucket(name: str, address: str) -> str:
            return f"s3://{name}?endpoint=http://{address}:{S3_PORT}&region=us-east-1"

        return {
            **self.credentials,
            "STORE_HOME": str(self.folder / host),
            "STORE_HOST": "0.0.0.0",
            "STORE_PORT": str(PORT),
            "STORE_ALLOWED_HOSTS": ",".join(web),
            "STORE_AUTH_EXTERNAL_URL": f"http://{web[0]}:{PORT + 1}",
            "STORE_SECRET_KEY": self.secret,
            "STORE_CATALOG_URL": f"postgresql+psycopg://postgres@{first}:{POSTGRES_PORT}/postgres",
            "STORE_REDIS_URL": f"redis://{first}:{REDIS_PORT}/0",
            "STORE_REPLICA_AWS": bucket("aws", second),
            "STORE_REPLICA_GCP": bucket("gcp", first),
            "STORE_AREAS_URL": bucket("areas", second),
            "STORE_ALLOW_PRIVATE_CALLBACKS": "true",
            "STORE_DELIVERY_DELAYS_S": "0,1,2,5,10,30,60",
            "STORE_SWEEP_S": "20",
        }

    def run_command(self, host: str, *words: str) -> str:
        """Run an operator's command on a host; return what it prints. CalledProcessError."""
        done = self.try_command(host, *words)
        done.check_returncode()
        return done.stdout.strip()

    def try_command(self, host: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run an operator's command on a host, which may fail."""
        command = self.network.command(host, [sys.executable, "-m", "ops", *words])
        environ = {**_inherited(), **self.environ(host)}
        return subprocess.run(command, cwd=self.root, env=environ, capture_output=True, text=True)


def _inherited() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {name: raw for name, raw in os.environ.items() if not name.startswith("STORE_")} | {
        "PATH": path
    }


def _start_engines(hosts: Hosts) -> None:
    """Start PostgreSQL, Redis and a server of buckets on the first host, another on the second."""
    data = hosts.folder / "postgres"
    data.mkdir(mode=0o700)
    postgres.hand_over(data)
    initdb = [packages.found("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
    made = postgres.as_account([*initdb, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"])
    subprocess.run(made, cwd="/", check=True, stdout=subprocess.DEVNULL)
    with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
        rules.write("host all all samenet trust\n")
    options = {"listen_addresses": "*", "unix_socket_directories": "", "max_connections": "300"}
    words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    first = ENGINES[0]
    hosts.start(first, postgres.as_account([packages.found("postgres"), "-D", data, *words]))
    everywhere = ("--bind", "0.0.0.0", "--protected-mode", "no")
    kept = ("--save", "", "--appendonly", "no", "--dir", hosts.folder)
    hosts.start(first, [packages.found("redis-server"), *everywhere, *kept])
    for host in ENGINES:
        folder, versions = hosts.folder / f"{host}-s3", hosts.folder / f"{host}-versions"
        folder.mkdir()
        versions.mkdir()
        listen = ("--port", f":{S3_PORT}", "--health", "/health", "--keep-alive", "--quiet")
        hosts.start(
            host,
            [S3_SERVER.path, *listen, "posix", "--versioning-dir", versions, folder],
            ROOT_ACCESS_KEY=hosts.credentials["AWS_ACCESS_KEY_ID"],
            ROOT_SECRET_KEY=hosts.credentials["AWS_SECRET_ACCESS_KEY"],
        )
    health = [f"http://{hosts.network.address(host)}:{S3_PORT}/health" for host in ENGINES]
    until(lambda: all(s3.answers(url) for url in health))
    ready = [packages.found("pg_isready"), "-q", "-h", hosts.network.address(first)]
    until(lambda: subprocess.run(ready).returncode == 0)


def _open_buckets(hosts: Hosts) -> dict[str, S3Bucket]:
    where = {"aws": "engine2", "areas": "engine2", "gcp": "engine1"}
    return {
        name: S3Bucket(
            f"s3://{name}?endpoint=http://{hosts.network.address(host)}:{S3_PORT}",
            hosts.credentials,
        )
        for name, host in where.items()
    }


def _start_store(hosts: Hosts) -> str:
    """Migrate, start the processes of all hosts, and return an administrator's token."""
    first, *others = (*WEB, *WORKERS)
    (hosts.folder / first).mkdir(mode=0o700)
    hosts.run_command(first, "migrate")
    words = ("token", "--email", "drill@example.org", "--groups", "store_admin")
    token = hosts.run_command(first, *words, "--hours", TOKEN_HOURS)
    for host in others:
        (hosts.folder / host).mkdir(mode=0o700)
        shutil.copytree(hosts.folder / first / "secrets", hosts.folder / host / "secrets")
    for host in (*WORKERS, *WEB):
        _start_processes(hosts, host)
    # Not `/readyz`, which the release may lack.
    until(lambda: all(_answers(f"{_api(hosts, host)}/health") for host in WEB), STARTING_S)
    return token


def _start_processes(hosts: Hosts, host: str) -> None:
    """Start the processes of a web or worker host."""
    if host in WEB:
        words = ["-m", "gunicorn", "-c", "api/gunicorn.py", "web.wsgi:application"]
        hosts.start(host, [sys.executable, *words], **hosts.environ(host))
        return
    for queues in WORKER_QUEUES:
        command = [sys.executable, "-m", "workers", *queues.split()]
        hosts.start(host, command, **hosts.environ(host))


def _is_ready(hosts: Hosts, host: str) -> bool:
    """Return whether a host serves requests, or whether its workers make progress."""
    if host in WEB:
        return _answers(f"{_api(hosts, host)}/readyz")
    probes = (("probe", *queues.split()) for queues in WORKER_QUEUES)
    return all(hosts.try_command(host, *words).returncode == 0 for words in probes)


def _api(hosts: Hosts, host: str) -> str:
    return f"http://{hosts.network.address(host)}:{PORT}"


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(url, trust_env=False, timeout=10.0).status_code == 200
    return False


@contextmanager
def _running(folder: Path, root: Path, seed: int) -> Iterator[Hosts]:
    credentials = {
        "AWS_ACCESS_KEY_ID": secrets.token_hex(10),
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
        "AWS_REGION": "us-east-1",
    }
    with create_network(HOSTS, seed) as network:
        hosts = Hosts(network, folder, root, credentials)
        try:
            yield hosts
        finally:
            for host in (*WEB, *WORKERS, *ENGINES):
                hosts.kill(host)


def _upgrade_hosts(hosts: Hosts, deposited: Sequence[DepositedBundle]) -> None:
    """Migrate the catalog, then upgrade one host after the other to this code."""
    _wait_for(deposited, 1)
    hosts.root = ROOT
    while (migrated := hosts.try_command(WEB[0], "migrate")).returncode == BUSY_EXIT_CODE:
        click.echo("hosts: a table was busy, so the migration is tried again")
    migrated.check_returncode()
    click.echo(f"hosts: migrated: {migrated.stdout.strip() or 'nothing to do'}")
    for host in (*WORKERS, *WEB):
        count, began = len(deposited), time.monotonic()
        hosts.stop(host)
        _start_processes(hosts, host)
        until(partial(_is_ready, hosts, host), STARTING_S)
        took_s, ready = time.monotonic() - began, len(deposited)
        # The next one follows only when the store is seen to work with this one.
        _wait_for(deposited, ready + 1)
        click.echo(
            f"hosts: {host} was upgraded in {took_s:.0f} s after {count} bundles;"
            f" {ready - count} were acknowledged meanwhile"
        )


def _cut_hosts(hosts: Hosts, deposited: Sequence[DepositedBundle], bundles: int) -> None:
    """Cut links between hosts and restore them, by the share of these bundles."""
    first = len(deposited)
    for share, host, others, seconds in CUTS:
        _wait_for(deposited, first + share * bundles)
        count = len(deposited)
        hosts.network.cut(host, others)
        if not seconds:
            hosts.kill(host)
            click.echo(f"hosts: {host} is lost for good after {count} bundles")
            continue
        time.sleep(seconds)
        hosts.network.heal(host, others)
        from_what = f"{len(others)} hosts" if len(others) > 1 else others[0]
        click.echo(
            f"hosts: {host} was cut off from {from_what} for {seconds:.0f} s"
            f" after {count} bundles; now {len(deposited)} are acknowledged"
        )


def _wait_for(deposited: Sequence[DepositedBundle], count: float) -> None:
    until(lambda: len(deposited) >= count, PATIENCE_S)


class Load:
    """Deposits through both web hosts in the background; `acknowledged` are those of both."""

    def __init__(self, hosts: Hosts, token: str, bundles: Sequence[SampleBundle]) -> None:
        self.acknowledged: list[DepositedBundle] = []
        self._bundles = iter(bundles)
        self._depositors = []
        for host in WEB:
            service = ApiClient.open(_api(hosts, host), token, retry_for_s=PATIENCE_S)
            depositor = Depositor(service, str(uuid.uuid4()))
            depositor.create_area()
            self._depositors.append(depositor)

    @contextmanager
    def depositing(self, count: int) -> Iterator[None]:
        """Deposit so many bundles, half of them through each host, beside the block."""
        with self._working(lambda depositor: self._deposit(depositor, count // len(WEB))):
            yield

    @contextmanager
    def continuing(self) -> Iterator[None]:
        """Deposit through both hosts until the block ends."""
        stopping = threading.Event()

        def work(depositor: Depositor) -> None:
            while not stopping.is_set():
                self._deposit(depositor, DEPOSITS_AT_ONCE)

        with self._working(work):
            try:
                yield
            finally:
                stopping.set()

    @contextmanager
    def _working(self, work: Callable[[Depositor], None]) -> Iterator[None]:
        with ThreadPoolExecutor(len(self._depositors)) as pool:
            futures = [pool.submit(work, depositor) for depositor in self._depositors]
            yield
            for future in futures:
                future.result()

    def _deposit(self, depositor: Depositor, count: int) -> None:
        bundles = list(islice(self._bundles, count))
        if not bundles:
            raise RuntimeError("the upgrade took longer than all deposits")
        with depositor.depositing(bundles, self.acknowledged.append) as deposits:
            for future in deposits.futures:
                future.result(2 * PATIENCE_S)


def _wait_for_work(stores: Stores, inbox: Receiver, fqids: set[str]) -> Iterator[str]:
    """Wait until nothing is left to do and all was told; what is left after a while."""
    deadline = time.monotonic() + PATIENCE_S

    def left() -> list[str]:
        with stores.catalog.read() as tx:
            rows = [f"open: {rows} rows of {step}" for step, rows in jobs.count_open(tx).items()]
            if pending := deliveries.count_pending(tx):
                rows.append(f"{pending} deliveries are neither made nor given up")
        paths = notification_checks.SUBSCRIBERS
        return rows + [f"{path} lacks some" for path in paths if fqids - inbox.fqids(path)]

    while (lines := left()) and time.monotonic() < deadline:
        time.sleep(1.0)
    yield from lines


def _find_faults(
    hosts: Hosts, token: str, inbox: Receiver, deposited: list[DepositedBundle], rng: Random
) -> Iterator[str]:
    given = hosts.environ("web1")
    os.environ.update(hosts.credentials)
    named = {name: raw for name, raw in given.items() if name.startswith("STORE_")}
    settings = config.load_settings({**named, "STORE_HOME": str(hosts.folder / HERE)})
    stores = connect(replace(settings, secret_key=hosts.secret), notices=MemoryPubSub())
    fqids = {one.fqid for one in deposited}
    buckets = _open_buckets(hosts)
    try:
        yield from _wait_for_work(stores, inbox, fqids)
        # What is compared now would take long on a slow network, and finds the same.
        hosts.network.impair(delay_s=0.0, loss=0.0)
        yield from checks.wanting(stores)
        yield from checks.tidied(stores, buckets)
        for host in WEB:
            service = ApiClient.open(_api(hosts, host), token)
            yield from checks.unreadable(service, deposited, rng)
            for replica in stores.replicas:
                if missing := fqids - service.list_bundles(replica):
                    yield f"{host} does not list {len(missing)} bundles of {replica}"
        yield from checks.misplaced(buckets, deposited)
        yield from checks.uncatalogued(stores, buckets)
        yield from notification_checks.faults(inbox, fqids, few=0)
        yield from hosts.dead()
    finally:
        stores.catalog.close()


@click.command()
@click.option("--release", default=RELEASE, show_default=True, metavar="COMMIT")
@click.option("--seed", type=int, help="Repeat the drill of this seed.")
@click.option(
    "--bundles",
    default=250,
    show_default=True,
    help="Bundles of the second part; few of them may fail by the share of duplicates.",
)
def drill(release: str, seed: int | None, bundles: int) -> None:
    """Deposit on seven hosts during an upgrade, and while the network fails; then count.

    The homes and logs of a failed drill are kept.
    """
    seed = secrets.randbelow(2**31) if seed is None else seed
    lacking = [name for name in ("ip", "cc") if shutil.which(name) is None]
    if os.geteuid() != 0 or lacking:
        sys.exit(f"hosts: needs root, and the programs ip and cc (lacks {lacking})")
    for one in (postgres, redis, s3):
        if lacks := one.missing():
            sys.exit(f"hosts: this machine lacks {lacks}")
        one.install(engine.CACHE)
    click.echo(f"hosts: seed {seed}, {bundles} bundles, {DELAY_S * 2_000:.0f} ms, {LOSS:.0%} loss")
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    folder.chmod(0o711)
    found = ["it did not end"]
    try:
        built = ("cc", "-shared", "-fPIC", "-O", "-o", str(folder / SKEWED_CLOCK))
        subprocess.run(
            [*built, str(Path(__file__).with_name("skewed_clock.c")), "-ldl"], check=True
        )
        with checkout_of(release) as code, _running(folder, code.root, seed) as hosts:
            found = _carry_out(hosts, bundles, Random(seed), began)
    finally:
        if found:
            click.echo(f"hosts: homes and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for fault in found[:25]:
        click.echo(f"hosts: FAIL {fault}")
    took_s = time.monotonic() - began
    click.echo(f"hosts: {'failed' if found else 'held'} after {took_s:.0f} s (seed {seed})")
    sys.exit(1 if found else 0)


def _carry_out(hosts: Hosts, bundles: int, rng: Random, began: float) -> list[str]:
    """Start the store, disturb it while bundles are deposited; return the faults afterwards."""
    most = UPGRADE_BUNDLES + bundles
    waiting = samples.bundles(most, rng, large_every=most + 1)
    _start_engines(hosts)
    for bucket in _open_buckets(hosts).values():
        bucket.create()
    token = _start_store(hosts)
    click.echo(f"hosts: {len(HOSTS)} hosts run after {time.monotonic() - began:.0f} s")
    hosts.network.impair(delay_s=DELAY_S, loss=LOSS)
    address, key = hosts.network.address(HERE), secrets.token_urlsafe(24)
    accept = notification_checks.Reluctance()
    with running_receiver(key, host=address, accept=accept) as inbox:
        service = ApiClient.open(_api(hosts, "web1"), token, retry_for_s=PATIENCE_S)
        notification_checks.subscribe(service, inbox)
        load = Load(hosts, token, waiting)
        with load.continuing():
            _upgrade_hosts(hosts, load.acknowledged)
        upgraded = len(load.acknowledged)
        refused = []
        try:
            with load.depositing(bundles):
                _cut_hosts(hosts, load.acknowledged, bundles)
        except UnexpectedAnswer as error:
            refused.append(str(error))
        click.echo(
            f"hosts: {upgraded} bundles during the upgrade and {len(load.acknowledged) - upgraded}"
            f" after it are acknowledged after {time.monotonic() - began:.0f} s"
        )
        faults = _find_faults(hosts, token, inbox, load.acknowledged, rng)
        found = [*refused, *faults]
        click.echo(f"hosts: {notification_checks.Told.of(inbox.accepted)}")
    return found


if __name__ == "__main__":
    drill()
