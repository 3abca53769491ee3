"""Type operator commands in this process, and open the home that they worked on."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from config import Settings
from ops.__main__ import cli
from storage.catalog import Catalog, jobs
from storage.connect import connect
from storage.model import Job
from storage.pubsub import MemoryPubSub
from storage.stores import Stores


def typed(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, words, input=answer, catch_exceptions=False)


def run(*words: str) -> str:
    result = typed(*words)
    assert result.exit_code == 0, result.output
    return result.output


def opened(home: Path) -> Stores:
    return connect(
        Settings(home=home, secret_key="a secret for tests only"), notices=MemoryPubSub()
    )


def run_json(*words: str, answer: str = "") -> Any:
    result = typed(*words, "--json", answer=answer)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def park(home: Path, *rows: Job, reason: str = "it never works") -> None:
    with Catalog(Settings(home=home).catalog).write() as tx:
        jobs.insert(tx, rows)
        for row in rows:
            held = jobs.claim(tx, row, token="t", lease_s=1, max_claims=1)
            assert held is not None
            jobs.mark_dead(tx, held, reason=reason)
