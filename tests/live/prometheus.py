"""A Prometheus server that scrapes stores, with the alerts of `deploy/alerts.yml` made shorter."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from ops import ports
from tests.engines import packages
from tests.engines.engine import start, stop, wait_until
from tests.monitoring import DEPLOY

SCRAPE_S = 4
"""Longer than a scrape waits for a health check that hangs."""
MINUTE_S = 3
"""A minute of an alert's durations lasts so long …"""
LONGEST_S = 45
"""… and no duration lasts longer."""
UNIT_MINUTES = {"m": 1, "h": 60, "d": 1440}
_DURATION = re.compile(r"(?<=for: )(\d+)([mhd])$|(?<=\[)(\d+)([mhd])(?=\])", re.MULTILINE)

Labels = Mapping[str, str]


def shorten_durations(rules: str) -> str:
    """Shorten each `for` and each range of alert rules; nothing else changes."""

    def shorten(found: re.Match[str]) -> str:
        number, unit = found[1] or found[3], found[2] or found[4]
        return f"{min(LONGEST_S, int(number) * UNIT_MINUTES[unit] * MINUTE_S)}s"

    return _DURATION.sub(shorten, rules)


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str
    targets: Path
    """Folder of files that name targets, which it watches."""

    def add_target(self, address: str) -> None:
        """Scrape the store with this address of `/metrics` from now on."""
        written = self.targets / f"{address}.new"
        written.write_text(json.dumps([{"targets": [address]}]), encoding="utf-8")
        written.rename(self.targets / f"{address}.json")

    def list_firing(self) -> list[Labels]:
        """Return the labels of all alerts that fire now."""
        answer = httpx.get(f"{self.url}/api/v1/alerts", timeout=30.0, trust_env=False)
        alerts = answer.raise_for_status().json()["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def query_range(self, expression: str, began: float) -> list[Labels]:
        """Return the labels of the series that an expression has had since this time."""
        answer = httpx.get(
            f"{self.url}/api/v1/query_range",
            params={"query": expression, "start": began, "end": time.time(), "step": SCRAPE_S},
            timeout=60.0,
            trust_env=False,
        )
        if not answer.is_success:
            raise ValueError(f"{expression}: {answer.text}")
        return [series["metric"] for series in answer.json()["data"]["result"]]

    def is_firing(self, alert: str, **labels: str) -> bool:
        """Return whether an alert fires with these labels."""
        wanted = {"alertname": alert, **labels}.items()
        return any(wanted <= one.items() for one in self.list_firing())


@contextmanager
def running_prometheus(folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus until the block ends; it scrapes the targets that are added."""
    rules = (DEPLOY / "alerts.yml").read_text(encoding="utf-8")
    (folder / "alerts.yml").write_text(shorten_durations(rules), encoding="utf-8")
    every = f"{SCRAPE_S}s"
    targets = folder / "targets"
    targets.mkdir()
    watched = {"files": [f"{targets}/*.json"], "refresh_interval": "5s"}
    scrape = {"job_name": "store", "file_sd_configs": [watched]}
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [scrape],
    }
    path, log = folder / "prometheus.yml", folder / "prometheus.log"
    path.write_text(json.dumps(config), encoding="utf-8")
    address = f"127.0.0.1:{ports.find_free_port()}"
    process = start(
        [
            packages.found("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        log,
    )
    try:
        wait_until(lambda: _is_ready(f"http://{address}/-/ready"), process, log)
        yield Prometheus(f"http://{address}", targets)
    finally:
        stop(process, signal.SIGTERM)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).is_success
    except httpx.TransportError:
        return False


def measure_until(holds: Callable[[], bool], limit_s: float) -> float | None:
    """Return the seconds until it holds; None if it does not in time."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > limit_s:
            return None
        time.sleep(0.5)
    return time.monotonic() - began
