"""The units, installed by the commands of docs/deployment.md on a machine that runs systemd."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.procfile import ROOT, read_procfile
from tests.engines.systemd import VARIABLE
from tests.systemd.machine import Machine, running_machine
from tests.waiting import until

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="make test-systemd names it")
PROCESSES = tuple(line.name for line in read_procfile())
UNITS = tuple(f"store@{name}.service" for name in PROCESSES)
WORKERS = tuple(name for name in PROCESSES if name not in ("api", "auth"))
PASSWORD = "test"
SECRET = "0123456789abcdef-test"
SETTINGS = f"""
STORE_DEPLOYMENT=machine.example
STORE_SECRET_KEY={SECRET}
STORE_CATALOG_URL=postgresql+psycopg://store:{PASSWORD}@127.0.0.1/store
STORE_REDIS_URL=redis://127.0.0.1:6379/0
STORE_ALLOW_PRIVATE_CALLBACKS=true
STORE_MIRROR_OF=
"""
"""Buckets and the search index are in the home; the receiver of callbacks is on loopback."""
STRICT = """
[Service]
# A denied system call ends the process, where the unit has it fail.
SystemCallErrorNumber=kill
"""
LIMIT_S = 300.0
HERE = Path(__file__).parent


def read_commands() -> list[str]:
    """Return the blocks of shell commands of the section without containers."""
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n### Without containers\n")
    section, _, _ = section.partition("\n#")
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the units of all processes, which have started."""
    root, folder = Path(os.environ[VARIABLE]), tmp_path_factory.mktemp("machine")
    with running_machine(root, folder) as one:
        copy_checkout(one)
        sql = f"CREATE ROLE store LOGIN PASSWORD '{PASSWORD}'"
        one.read("runuser", "-u", "postgres", "--", "psql", "-c", sql)
        one.read("runuser", "-u", "postgres", "--", "createdb", "--owner", "store", "store")
        install, begin = read_commands()
        one.run_shell(install)
        one.run_shell("cat > /etc/store/environment", SETTINGS.encode())
        strict = "/etc/systemd/system/store@.service.d/strict.conf"
        one.run_shell(f"install -D -m 644 /dev/stdin {strict}", STRICT.encode())
        one.run_shell(begin)
        yield one


def copy_checkout(machine: Machine) -> None:
    """Copy what is under version control, and what is new."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    there = [name for name in names.split(b"\0") if name and (ROOT / name.decode()).exists()]
    pack = ("tar", "--create", "--null", "--files-from=-")
    packed = subprocess.run(
        pack, cwd=ROOT, input=b"\0".join(there), capture_output=True, check=True
    )
    unpack = "mkdir /srv/store && tar --extract --no-same-owner --directory /srv/store"
    machine.run_shell(unpack, packed.stdout)


def count_restarts(machine: Machine) -> dict[str, int]:
    """Return how often each unit was started again by itself."""
    return {unit: int(machine.show(unit, "NRestarts")) for unit in UNITS}


def test_every_process_has_started(machine: Machine) -> None:
    states = {unit: machine.show(unit, "ActiveState") for unit in UNITS}
    assert states == dict.fromkeys(UNITS, "active")
    # Active is then what has said so.
    assert {machine.show(f"store@{name}", "Type") for name in WORKERS} == {"notify"}
    until(lambda: is_healthy(machine), LIMIT_S, every_s=1)


def is_healthy(machine: Machine) -> bool:
    asked = "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"
    return machine.run("python3", "-c", asked).returncode == 0


def test_demonstration_holds_and_no_system_call_is_denied(machine: Machine) -> None:
    shown = machine.run_shell(
        "cd /srv/store && PYTHONPATH=client PYTHONDONTWRITEBYTECODE=1"
        " /opt/store/bin/python -m tests.systemd.tour 2>&1 || true"
    )
    assert re.search(r"^(\d+) of \1 expectations hold\.$", shown, re.MULTILINE), shown[-3000:]
    assert count_restarts(machine) == dict.fromkeys(UNITS, 0)
    for unit in UNITS:
        journal = machine.read_journal(unit)
        assert "Read-only file system" not in journal
        assert "Permission denied" not in journal
        assert SECRET not in journal


def test_processes_are_confined(machine: Machine) -> None:
    """A process in place of a line of the Procfile tries what none of them may do."""
    only = "[Service]\nType=oneshot\nRestart=no\nSystemCallErrorNumber=EPERM\nExecStart=\n"
    command = f"{only}ExecStart=/opt/store/bin/python /srv/store/tests/systemd/attempts.py\n"
    drop_in = "/run/systemd/system/store@attempts.service.d/z.conf"
    machine.run_shell(f"install -D -m 644 /dev/stdin {drop_in}", command.encode())
    machine.run_shell("systemctl daemon-reload && systemctl start store@attempts")
    journal = machine.read_journal("store@attempts")
    (report,) = (line for line in journal.splitlines() if line.startswith("{"))
    assert json.loads(report) == {
        "write code": "EROFS",
        "write settings": "EROFS",
        "read settings": "EACCES",
        "write home": None,
        "write temporary file": None,
        "writable code": "EPERM",
        "raw socket": "EAFNOSUPPORT",
        "user namespace": "EPERM",
        "become root": "EPERM",
        "priority": "EPERM",
        "mount": "EPERM",
        "processes seen": 1,
    }


def test_journal_has_json_by_the_names_of_processes(machine: Machine) -> None:
    for name in PROCESSES:
        lines = machine.read(
            "journalctl", "--boot", "--output=cat", "--no-pager", f"--identifier=store-{name}"
        ).splitlines()
        others = [line for line in lines if not line.startswith("{")]
        assert len(lines) > len(others)
        # Those of gunicorn.
        assert [
            line for line in others if not re.match(r"\[\d{4}-.*\] \[\d+\] \[INFO\]", line)
        ] == []
        assert all(json.loads(line)["level"] for line in lines if line.startswith("{"))


def test_killed_worker_is_restarted(machine: Machine) -> None:
    machine.read("systemctl", "kill", "--signal=KILL", "store@files")
    until(lambda: machine.show("store@files", "NRestarts") == "1", LIMIT_S, every_s=1)
    until(lambda: machine.show("store@files", "ActiveState") == "active", LIMIT_S, every_s=1)


def test_watchdog_restarts_hanging_worker(machine: Machine) -> None:
    machine.read("systemctl", "kill", "--signal=STOP", "store@index")
    until(lambda: machine.show("store@index", "NRestarts") == "1", LIMIT_S, every_s=1)
    until(lambda: machine.show("store@index", "ActiveState") == "active", LIMIT_S, every_s=1)
    journal = machine.read_journal("store@index")
    assert "Watchdog timeout (limit 1min 30s)!" in journal
    assert "status=9/KILL" in journal


def test_processes_stop_in_time(machine: Machine) -> None:
    machine.read("systemctl", "stop", *UNITS)
    for unit in UNITS:
        # Otherwise it is `timeout`, and the process was killed.
        assert machine.show(unit, "Result") == "success"
        assert machine.show(unit, "ExecMainStatus") == "0"
    machine.read("systemctl", "start", *UNITS)


def test_mirror_follows_another_store(machine: Machine) -> None:
    uploaded = json.loads(machine.run_shell((HERE / "other_store.sh").read_text()))
    machine.run_shell(
        "cd /srv/store\n"
        "sed -i s,^STORE_MIRROR_OF=.*,STORE_MIRROR_OF=http://127.0.0.1:9000, /etc/store/environment\n"
        "install -D -m 644 deploy/store-mirror.conf"
        " /etc/systemd/system/store@mirror.service.d/mirror.conf\n"
        "install -m 600 /dev/null /etc/store/mirror-token\n"
        "systemctl daemon-reload && systemctl enable --now store@mirror"
    )
    until(lambda: has_bundle(machine, uploaded["bundle_uuid"]), LIMIT_S, every_s=1)
    assert machine.show("store@mirror", "NRestarts") == "0"


def has_bundle(machine: Machine, uuid: str) -> bool:
    url = f"http://127.0.0.1:8000/v1/bundles/{uuid}?replica=aws"
    asked = f"import urllib.request as r; r.urlopen('{url}')"
    return machine.run("python3", "-c", asked).returncode == 0


def test_everything_starts_again_with_the_machine(machine: Machine) -> None:
    machine.reboot()
    for unit in (*UNITS, "store@mirror.service"):
        until(lambda u=unit: machine.show(u, "ActiveState") == "active", LIMIT_S, every_s=1)
    until(lambda: is_healthy(machine), LIMIT_S, every_s=1)
    engines = [read_start(machine, name) for name in ("postgresql.service", "redis-server.service")]
    for unit in UNITS:
        began = int(machine.show(unit, "ExecMainStartTimestampMonotonic"))
        assert began > max(engines)
    assert count_restarts(machine) == dict.fromkeys(UNITS, 0)


def read_start(machine: Machine, unit: str) -> int:
    """Return when a unit was active, on the monotonic clock."""
    return int(machine.show(unit, "ActiveEnterTimestampMonotonic"))
