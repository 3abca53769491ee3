"""A whole store as `make run` starts it, with the README's tour."""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from ops.local_store import LocalStore, running_store
from ops.procfile import ROOT
from tests import open_ports

TOUR = "## A tour in five lines"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    with running_store(tmp_path_factory.mktemp("store"), {}) as found:
        yield found


@pytest.mark.spec("OPS-04")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_embedded_store_listens_on_two_http_ports_only(stage: LocalStore) -> None:
    running = stage.read_processes()
    roots = [
        running["supervisor"],
        *(fact["pid"] for fact in running["processes"].values()),
    ]
    tree = open_ports.tree(roots)
    assert len(tree) > len(roots), "gunicorn has processes of its own"
    port = int(stage.api.rpartition(":")[2])
    assert open_ports.ports(tree) == {port, port + 1}
    assert len(tree) <= 4
    assert open_ports.unix_sockets(tree) == set()


@pytest.fixture(scope="module")
def toured(stage: LocalStore) -> "subprocess.CompletedProcess[str]":
    """What the tour said, typed once."""
    # A busy machine may take longer to index than a reader has to wait.
    lines = tour().replace("http://127.0.0.1:8000", stage.api).replace("sleep 2;", "sleep 6;")
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines.replace(".store-home", str(stage.home))],
        cwd=ROOT,
        env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.spec("SVC-12")
@pytest.mark.skipif(not shutil.which("curl"), reason="the tour is typed with curl")
def test_the_tour_of_the_readme_finds_what_it_deposited(
    toured: "subprocess.CompletedProcess[str]",
) -> None:
    assert toured.returncode == 0, toured.stderr
    assert '"total_hits":1' in toured.stdout.replace(" ", ""), toured.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="the tour is typed with curl")
@pytest.mark.usefixtures("toured")
def test_metrics_count_what_the_actors_did(stage: LocalStore) -> None:
    """After the tour; the worker counts, and the API shows it."""
    request = urllib.request.Request(
        f"{stage.api}/metrics", headers={"Authorization": f"Bearer {stage.token}"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        page = answer.read().decode()
    for step in ("verify", "sync", "index", "match"):
        counted = rf'dramatiq_messages_total{{actor_name="{step}",queue_name="{step}"}} ([0-9.]+)'
        found = re.search(counted, page)
        assert found, page
        assert float(found[1]) >= 1


def test_the_tour_has_five_lines_of_curl() -> None:
    assert len(re.findall(r"\bcurl -sS", tour())) == 5


def tour() -> str:
    """Both blocks of the tour, as one script."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition(TOUR)[2]
    section = section.partition("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


@pytest.mark.spec("OPS-04", "OPS-08")
def test_an_operator_sees_the_store_that_runs(stage: LocalStore) -> None:
    port = stage.api.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "ops", "status"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "STORE_HOME": str(stage.home),
            "STORE_PORT": port,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "catalog\tok\tSQLite" in done.stdout
    assert "parked: 0" in done.stdout
