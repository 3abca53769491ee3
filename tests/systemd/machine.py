"""A machine that runs systemd, in namespaces of this one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import until

BOOT = Path(__file__).with_name("boot.sh")
BOOT_S, COMMAND_S = 300.0, 1800.0
"""A busy machine takes minutes to start a dozen processes at once."""
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")


@dataclass(frozen=True)
class Machine:
    """Has no network but its own loopback; what it writes is in memory, until it is switched off."""

    shell: "subprocess.Popen[bytes]"
    """Runs systemd-nspawn, again after a restart."""
    log: Path

    def find_init(self) -> int:
        """Return the process of systemd, seen from outside; 0 while there is none."""
        pid = self.shell.pid
        for name in ("systemd-nspawn", "systemd"):
            pid = _find_child(pid, name)
        return pid

    def run(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """Run a command as root of the machine."""
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
        enter = ("nsenter", "--target", str(self.find_init()), *namespaces)
        return subprocess.run(
            [*enter, "env", "-i", *ENVIRONMENT, *words],
            input=stdin,
            capture_output=True,
            timeout=COMMAND_S,
        )

    def read(self, *words: str, stdin: bytes = b"") -> str:
        """Run a command that must succeed; return what it prints."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout.decode().strip()

    def run_shell(self, script: str, stdin: bytes = b"") -> str:
        """Run a script of bash that must succeed; return what it prints."""
        return self.read("bash", "-euo", "pipefail", "-c", script, stdin=stdin)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.read("systemctl", "show", "--value", "--property", name, unit)

    def read_journal(self, unit: str) -> str:
        """Return the messages of units since the machine was switched on."""
        return self.read("journalctl", "--boot", "--output=cat", "--no-pager", "--unit", unit)

    def wait_until_booted(self) -> None:
        """Wait until systemd has started all that it is to start."""

        def has_booted() -> bool:
            assert self.shell.poll() is None, self.log.read_text(errors="replace")[-3000:]
            if not self.find_init():
                return False
            state = self.run("systemctl", "is-system-running").stdout.strip()
            return state in (b"running", b"degraded")

        until(has_booted, BOOT_S, every_s=0.5)

    def reboot(self) -> None:
        """Restart the machine, and wait until it has booted."""
        before = self.find_init()
        self.read("systemctl", "reboot")
        until(lambda: self.find_init() not in (0, before), BOOT_S)
        self.wait_until_booted()


def _find_child(pid: int, name: str) -> int:
    """Return the child of a process with this name; 0 while there is none."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                return int(child)
    return 0


@contextmanager
def running_machine(root: Path, folder: Path) -> Iterator[Machine]:
    """Boot a machine with the files of `root`, which stay as they are; switch it off at the end."""
    name, log = f"store-test-{os.getpid()}", folder / "boot.log"
    command = ("sh", str(BOOT), str(root), name, "--private-network", "--boot")
    with (
        log.open("ab") as output,
        # Without its standard input, which ends with this process, it ends too.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output) as shell,
    ):
        machine = Machine(shell, log)
        machine.wait_until_booted()
        yield machine
