"""The command `run` and its supervisor: start, restart and stop a store's processes.

Each is its own process group and dies with us even when we are killed, so a crash leaves no orphan;
what was acknowledged is in the catalog. A thread keeps each process; the first one waits for
signals.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TextIO

import click

from auth.secret_files import load_secret
from config import Settings, logs
from config.process import bind_command_to_parent
from config.settings import FILE_VARIABLE
from ops import home, ports, procfile
from ops.procfile import ROOT, ProcessLine

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 10.0
STEADY_AFTER_S = 5.0
"""Who ran this long before it died is restarted at once again."""
STOP_GRACE_S = 10.0
"""How long a process may take to end before it is killed."""
OUTPUT_DRAIN_S = 1.0
PROBE_INTERVAL_S = 0.1
NEXT_STEPS = "try `make demo KEEP=1` for sample data, or deposit files with `store upload`"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Process = subprocess.Popen[bytes]
PrintLine = Callable[[str, str], None]
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
    say: PrintLine
    prepare: tuple[str, ...] = ()
    grace_s: float = STOP_GRACE_S
    _processes: dict[str, Process] = field(default_factory=dict)
    _starts: dict[str, int] = field(default_factory=dict)
    _threads: list[Thread] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _stopping: Event = field(default_factory=Event)
    _failure: str = ""

    def run(self) -> None:
        """Until SIGINT, SIGTERM or SIGHUP; StartFailed when it cannot begin."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        self._start_thread(self._start_processes)
        number = signal.Signals(signal.sigwait(STOP_SIGNALS))
        self._stopping.set()
        if not self._failure:
            self.say("store", f"stopping ({number.name}); again to kill")
        self._stop_processes()
        if self._failure:
            raise StartFailed(self._failure)

    def _start_thread(self, work: Callable[..., None], *given: ProcessLine) -> None:
        thread = Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _start_processes(self) -> None:
        if self.prepare:
            self._keep_running(ProcessLine("prepare", self.prepare, ""), once=True)
        if not self._stopping.is_set() and not self._failure:
            for line in self.lines:
                self._start_thread(self._keep_running, line)
            self._announce_ready()

    def _keep_running(self, line: ProcessLine, *, once: bool = False) -> None:
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
            delay_s = compute_restart_delay_s(delay_s, lived_s=time.monotonic() - began)
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self.say("store", f"{line.name} ended ({reason}), again in {delay_s:.1f} s")
            self._stopping.wait(delay_s)

    def _run_once(self, line: ProcessLine) -> tuple[int, str]:
        """Its exit code and the last line it printed, once nothing of its group is left."""
        process = subprocess.Popen(
            bind_command_to_parent(line.command),
            cwd=ROOT,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._record_process(line.name, process)
        # The stop came while it was starting: it got no signal yet.
        if self._stopping.is_set():
            _signal_group(process, signal.SIGTERM)
        said: list[str] = []
        reader = Thread(target=self._forward_output, args=(line.name, process, said), daemon=True)
        reader.start()
        code = process.wait()
        # What a killed process leaves behind would hold its port.
        _signal_group(process, signal.SIGKILL)
        reader.join(OUTPUT_DRAIN_S)
        self._record_process(line.name, None)
        return code, "".join(said)

    def _forward_output(self, name: str, process: Process, last: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for raw in lines:
                last[:] = [raw.decode(errors="replace").rstrip("\n")]
                self.say(name, last[0])

    def _record_process(self, name: str, process: Process | None) -> None:
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
            home.try_write_json(self.settings.home, home.PROCESSES, facts)

    def _announce_ready(self) -> None:
        """Say that the store is ready once both services answer."""
        began, settings = time.monotonic(), self.settings
        api, auth = settings.external_url or settings.internal_url, settings.auth_url
        ready = {"api": api, "auth": auth, "pid": os.getpid()}
        while not (self._is_healthy() and home.try_write_json(settings.home, home.READY, ready)):
            if self._stopping.wait(PROBE_INTERVAL_S):
                return
        took, token = f"{time.monotonic() - began:.1f} s", settings.home / home.ADMIN_TOKEN
        where = f"API {api}, authorization {auth}, administrator's token in {token}"
        self.say("store", f"ready in {took}: {where}")
        self.say("store", self._describe_first_steps(api))

    def _describe_first_steps(self, api: str) -> str:
        """Describe how to look at the store in a browser, and what to try next.

        The login link is a secret: it appears at the terminal of an embedded store only, never in
        the log of a service or of a deployment on several machines.
        """
        settings = self.settings
        is_shown = sys.stdout.isatty() and not settings.redis_url and not settings.policies_url
        link = self._create_login_link() if is_shown else ""
        log_in = (
            f"log in once as administrator with {link}"
            if link
            else "`python -m ops login-link` prints a login link for the administrator"
        )
        return f"open {api} in a browser; {log_in}; {NEXT_STEPS}"

    def _create_login_link(self) -> str:
        """Create the administrator's link in a separate process; empty if that fails."""
        command = (sys.executable, "-m", "ops", "login-link")
        # The supervisor stays small: it does not open the catalog itself.
        done = subprocess.run(
            bind_command_to_parent(command),
            cwd=ROOT,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def _is_healthy(self) -> bool:
        """Whether both services answer, and the API finds every part in order."""
        host, port = self.settings.host, self.settings.port
        both = (port, "/health"), (port + 1, "/.well-known/jwks.json")
        return all(ports.is_answering(host, *one) for one in both)

    def _stop_processes(self) -> None:
        """End everything in bounded time."""
        with suppress(OSError):
            home.remove_file(self.settings.home, home.READY)
        self._signal_all(signal.SIGTERM)
        until = time.monotonic() + self.grace_s
        while any(thread.is_alive() for thread in self._threads):
            if signal.sigtimedwait(STOP_SIGNALS, 0.02) or time.monotonic() > until:
                self._signal_all(signal.SIGKILL)
        with suppress(OSError):
            home.remove_file(self.settings.home, home.PROCESSES)
        self.say("store", "stopped")

    def _signal_all(self, number: signal.Signals) -> None:
        for process in list(self._processes.values()):
            _signal_group(process, number)


def _signal_group(process: Process, number: signal.Signals) -> None:
    """Signal the whole group; no error when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def compute_restart_delay_s(before_s: float, *, lived_s: float) -> float:
    """The pause before what died is started again, by the one before it and how long it lived."""
    return FIRST_DELAY_S if lived_s >= STEADY_AFTER_S else min(before_s * 2, LONGEST_DELAY_S)


PREPARE_COMMAND = (sys.executable, "-m", "ops", "prepare")


@click.command()
@click.option("--only", multiple=True, help="Run only these processes.")
@click.pass_obj
def run(settings: Settings, only: tuple[str, ...]) -> None:
    """Run the store here, until Ctrl-C.

    It has two processes, or with STORE_REDIS_URL those of the Procfile.
    """
    lines = (
        procfile.read_procfile()
        if settings.redis_url
        else procfile.build_embedded_processes(settings)
    )
    lines = _select_processes(lines, only)
    prepare = PREPARE_COMMAND if settings.redis_url else ()
    say = partial(_print_line, max(len(line.name) for line in lines))
    try:
        environ = {**os.environ, **log_variables(settings, sys.stdout, os.environ)}
        supervise(settings, lines, environ=environ, say=say, prepare=prepare)
    except (home.HomeTaken, home.HomeExposed, ports.PortTaken, StartFailed) as error:
        raise click.ClickException(str(error)) from error


def log_variables(settings: Settings, stream: TextIO, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that let processes log for a terminal, which they reach through a pipe."""
    if not logs.wants_text(settings.log_format, stream):
        return {}
    colours = {"FORCE_COLOR": "1"} if logs.wants_colours(stream, environ) else {}
    return {"STORE_LOG_FORMAT": "text", **colours}


def _select_processes(
    lines: tuple[procfile.ProcessLine, ...], only: tuple[str, ...]
) -> tuple[procfile.ProcessLine, ...]:
    unknown = set(only) - {line.name for line in lines}
    if unknown:
        raise click.BadParameter(f"no such process: {', '.join(sorted(unknown))}")
    return tuple(line for line in lines if not only or line.name in only)


def _print_line(width: int, who: str, line: str) -> None:
    # The reader of our output may be gone (`make run | head`): the store keeps running.
    with suppress(OSError):
        click.echo(f"{click.style(who.ljust(width), fg='cyan')} | {line}")


def _absolute_settings_file(environ: Mapping[str, str]) -> dict[str, str]:
    """Processes run in another folder than the supervisor."""
    path = environ.get(FILE_VARIABLE)
    return {FILE_VARIABLE: str(Path(path).absolute())} if path else {}


def supervise(
    settings: Settings,
    lines: tuple[procfile.ProcessLine, ...],
    *,
    environ: Mapping[str, str],
    say: PrintLine,
    prepare: tuple[str, ...] = (),
    grace_s: float = STOP_GRACE_S,
) -> None:
    """Run the store until it is stopped.

    Raise StartFailed, HomeTaken, HomeExposed or PortTaken if it cannot run.
    """
    with home.lock_home(settings.home):
        ports.require_free_ports(settings.host, settings.port, settings.ops_port)
        # Left by one that was killed: it must not speak for us.
        for name in (home.READY, home.PROCESSES):
            home.remove_file(settings.home, name)
        # Reset counters: process ids of a former run may be in use again.
        shutil.rmtree(settings.metrics_folder, ignore_errors=True)
        given = {
            **environ,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), environ.get("PATH", ""))),
            "PYTHONUNBUFFERED": "1",
            **_absolute_settings_file(environ),
            "STORE_HOME": str(settings.home.absolute()),
            "STORE_PORT": str(settings.port),
            "STORE_SECRET_KEY": load_secret(settings.home, given=settings.secret_key).decode(),
        }
        Supervisor(settings, lines, given, say, prepare, grace_s).run()
