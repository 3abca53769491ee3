"""Runs the processes of a store on one machine: starts, restarts and stops them.

Each is a group of its own and dies with us even when we are killed, so a crash leaves no orphan;
what was acknowledged is in the catalog. A thread keeps each process; the first one waits for
signals.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from config import Settings
from config.leash import leashed
from ops import home as homes
from ops import ports
from ops.procfile import ROOT, ProcessLine

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 10.0
STEADY_S = 5.0
"""Who ran this long before it died is restarted at once again."""
GRACE_S = 10.0
"""How long a process may take to end before it is killed."""
DRAIN_S = 1.0
PROBE_EVERY_S = 0.1
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Process = subprocess.Popen[bytes]
Say = Callable[[str, str], None]
"""Told who speaks and one line."""


class StartFailed(Exception):
    """The store cannot start; the text says why."""


@dataclass
class Supervisor:
    """One run of a store. `say` gets every line that is printed, by us or by a process; `prepare`
    has to end well before the others start."""

    settings: Settings
    lines: tuple[ProcessLine, ...]
    environ: Mapping[str, str]
    say: Say
    prepare: tuple[str, ...] = ()
    grace_s: float = GRACE_S
    _processes: dict[str, Process] = field(default_factory=dict)
    _starts: dict[str, int] = field(default_factory=dict)
    _threads: list[Thread] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _stopping: Event = field(default_factory=Event)
    _failure: str = ""

    def run(self) -> None:
        """Until SIGINT, SIGTERM or SIGHUP; StartFailed when it cannot begin."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self._do(self._begin)
        number = signal.Signals(signal.sigwait(ENDING))
        self._stopping.set()
        if not self._failure:
            self.say("store", f"stopping ({number.name}); again to kill")
        self._stop()
        if self._failure:
            raise StartFailed(self._failure)

    def _do(self, work: Callable[..., None], *given: ProcessLine) -> None:
        thread = Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _begin(self) -> None:
        if self.prepare:
            self._keep(ProcessLine("prepare", self.prepare, ""), once=True)
        if not self._stopping.is_set() and not self._failure:
            for line in self.lines:
                self._do(self._keep, line)
            self._announce()

    def _keep(self, line: ProcessLine, *, once: bool = False) -> None:
        """Start it, wait for its end, start it again: at once at first, then with longer pauses.
        EX_CONFIG says that this will not help; EX_TEMPFAIL of what runs `once` that it may."""
        delay_s = FIRST_DELAY_S
        while not self._stopping.is_set():
            began = time.monotonic()
            code, last = self._run_once(line)
            if self._stopping.is_set() or (once and code == 0):
                return
            if code == os.EX_CONFIG or (once and code != os.EX_TEMPFAIL):
                self._failure = last.removeprefix("Error: ") or f"{line.name}: exit code {code}"
                os.kill(os.getpid(), signal.SIGTERM)
                return
            delay_s = next_delay_s(delay_s, lived_s=time.monotonic() - began)
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self.say("store", f"{line.name} ended ({reason}), again in {delay_s:.1f} s")
            self._stopping.wait(delay_s)

    def _run_once(self, line: ProcessLine) -> tuple[int, str]:
        """Its exit code and the last line it printed, once nothing of its group is left."""
        process = subprocess.Popen(
            leashed(line.command),
            cwd=ROOT,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._note(line.name, process)
        # Asked to stop while it was starting: it has not been told yet.
        if self._stopping.is_set():
            _signal(process, signal.SIGTERM)
        said: list[str] = []
        reader = Thread(target=self._pass_on, args=(line.name, process, said), daemon=True)
        reader.start()
        code = process.wait()
        # What a killed process leaves behind would hold its port.
        _signal(process, signal.SIGKILL)
        reader.join(DRAIN_S)
        self._note(line.name, None)
        return code, "".join(said)

    def _pass_on(self, name: str, process: Process, last: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for raw in lines:
                last[:] = [raw.decode(errors="replace").rstrip("\n")]
                self.say(name, last[0])

    def _note(self, name: str, process: Process | None) -> None:
        """Keep who runs now, also for operators and drills."""
        with self._lock:
            self._processes.pop(name, None)
            if process is not None:
                self._processes[name] = process
                self._starts[name] = self._starts.get(name, 0) + 1
            running = {
                one: {"pid": process.pid, "starts": self._starts[one]}
                for one, process in self._processes.items()
            }
            facts = {"supervisor": os.getpid(), "processes": running}
            # On a full disk processes are started again all the same.
            homes.try_write(self.settings.home, homes.PROCESSES, facts)

    def _announce(self) -> None:
        """Say that the store is ready once both services answer."""
        began, settings = time.monotonic(), self.settings
        api, auth = settings.external_url or settings.internal_url, settings.auth_url
        ready = {"api": api, "auth": auth, "pid": os.getpid()}
        while not (self._is_healthy() and homes.try_write(settings.home, homes.READY, ready)):
            if self._stopping.wait(PROBE_EVERY_S):
                return
        took, token = f"{time.monotonic() - began:.1f} s", settings.home / homes.ADMIN_TOKEN
        where = f"API {api}, authorization {auth}, administrator's token in {token}"
        self.say("store", f"ready in {took}: {where}")

    def _is_healthy(self) -> bool:
        """Whether both services answer, and the API finds every part in order."""
        host, port = self.settings.host, self.settings.port
        both = (port, "/health"), (port + 1, "/.well-known/jwks.json")
        return all(ports.answers(host, *one) for one in both)

    def _stop(self) -> None:
        """End everything in bounded time."""
        with suppress(OSError):
            homes.remove(self.settings.home, homes.READY)
        self._tell_all(signal.SIGTERM)
        until = time.monotonic() + self.grace_s
        while any(thread.is_alive() for thread in self._threads):
            if signal.sigtimedwait(ENDING, 0.02) or time.monotonic() > until:
                self._tell_all(signal.SIGKILL)
        with suppress(OSError):
            homes.remove(self.settings.home, homes.PROCESSES)
        self.say("store", "stopped")

    def _tell_all(self, number: signal.Signals) -> None:
        for process in list(self._processes.values()):
            _signal(process, number)


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal the whole group; no error when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def next_delay_s(before_s: float, *, lived_s: float) -> float:
    """The pause before what died is started again, by the one before it and how long it lived."""
    return FIRST_DELAY_S if lived_s >= STEADY_S else min(before_s * 2, LONGEST_DELAY_S)
