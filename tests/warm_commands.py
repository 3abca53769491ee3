"""The commands `store` and `python -m ops`, each run in a fork of one process that has imported them.

To import them takes longer than most commands run, and the pages of the documentation type a
hundred of them. `install` puts programs of those names into a folder for PATH; each sends its
arguments, environment, folder and open files to the process, which forks a child for it.
"""

import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("store", "ops")

PROGRAM = """#!{python} -ISs
import json, os, signal, socket, sys

command, arguments = {command!r}, sys.argv[1:]
if command == "ops":
    if arguments[:2] != ["-m", "ops"]:
        os.execv({python!r}, [{python!r}, *arguments])
    arguments = arguments[2:]
words = json.dumps([command, arguments, dict(os.environ), os.getcwd()]).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [len(words).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(words)
    status = int(server.recv(16) or b"1")
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextmanager
def install(folder: Path) -> Iterator[Path]:
    """Start the process; yield a folder that has both programs. The process ends with the block.

    The folder stays empty where a child cannot be waited for beside a socket: only Linux can.
    """
    address, programs = folder / "commands.sock", folder / "bin"
    programs.mkdir()
    if not hasattr(os, "pidfd_open"):
        yield programs
        return
    for command, name in zip(COMMANDS, ("store", "python"), strict=True):
        program = programs / name
        text = PROGRAM.format(python=sys.executable, command=command, address=str(address))
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    command = (sys.executable, "-m", "tests.warm_commands", str(address))
    with subprocess.Popen(command, cwd=ROOT) as server:
        try:
            until(address.exists)
            yield programs
        finally:
            server.kill()


def _serve(address: str) -> None:
    for package in ("store_client", "ops"):
        _import_all(package)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen()
        os.rename(f"{address}.new", address)
        while True:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                _answer(connection)
            connection.close()


def _import_all(package: str) -> None:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _answer(connection: socket.socket) -> None:
    """Run one command in a child; kill it if its program is killed. Does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        words = stream.read(int.from_bytes(length, "big"))
    if len(words) < int.from_bytes(length, "big"):
        os._exit(1)  # The program was killed while it wrote.
    child = os.fork()
    if not child:
        connection.close()
        _run(files, *json.loads(words))
    for descriptor in (0, 1, 2, *files):
        os.close(descriptor)
    ended = os.pidfd_open(child)
    if connection in select.select([connection, ended], [], [])[0]:
        os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    with connection:
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(
    files: list[int], command: str, arguments: list[str], environ: dict[str, str], folder: str
) -> None:
    """Become a process like one that was started with these; does not return."""
    for standard, given in enumerate(files):
        os.dup2(given, standard)
        os.close(given)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    status = _exit_status(_main_of(command, arguments))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _main_of(command: str, arguments: list[str]) -> Callable[[], object]:
    if command == "ops":
        sys.argv = ["ops", *arguments]
        return lambda: runpy.run_module("ops", run_name="__main__", alter_sys=True)
    sys.argv = [shutil.which("store") or "store", *arguments]
    from store_client.cli.main import main

    return main


def _exit_status(main: Callable[[], object]) -> int:
    try:
        main()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        sys.stderr.write(f"{stop.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
