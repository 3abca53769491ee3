"""The options --json and --watch of the operator commands, as typed in a pipe and on a terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ops import home as homes
from ops.__main__ import COMMANDS, cli
from ops.output import CommandOutput, OutputTable, prints_output
from ops.procfile import ROOT
from storage.model import FQID, Job
from tests.ops.commands import park, run_json, typed
from tests.waiting import until

STREAMS = {"run", "demo", "prepare", "settings example"}
"""They run in the foreground and print as they go, or print a file."""
CHANGES = {
    *("backup", "import", "login-link", "migrate", "mirror", "partition", "purge", "reconcile"),
    *("restore", "rotate-key", "sweep", "token", "dead drop", "dead retry"),
    *("read-only off", "read-only on"),
    *("clients add", "clients remove", "quotas count", "quotas remove", "quotas set"),
    *("rebuild catalog", "rebuild index", "secrets rotate"),
    *("service-accounts add", "service-accounts remove"),
    *(f"users {word}" for word in ("add", "disable", "enable", "passwd", "remove", "unlock")),
}
"""They change something or make something new, which once is enough."""
RUNS = {"fixity-report", "verify", "probe"}
"""They read every byte, or answer by their exit status to platforms that repeat them."""


def list_commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for one, below in command.commands.items():
            yield from list_commands(below, f"{name} {one}")
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command


def find_commands_without(option: str) -> set[str]:
    context = click.Context(cli)
    return {
        name
        for word in COMMANDS
        for name, command in list_commands(cli.get_command(context, word) or cli, word)
        if not any(option in one.opts for one in command.params)
    }


@pytest.mark.spec("OPS-40")
def test_every_command_prints_json() -> None:
    assert find_commands_without("--json") == STREAMS


@pytest.mark.spec("OPS-40")
def test_every_command_that_shows_something_can_be_watched() -> None:
    assert find_commands_without("--watch") == STREAMS | CHANGES | RUNS


@pytest.mark.spec("OPS-40")
@pytest.mark.parametrize("words", [("status",), ("dead", "list"), ("settings",)], ids=" ".join)
def test_state_is_watched_in_a_pipe_until_interrupted(home: Path, words: tuple[str, ...]) -> None:
    with watching(home, *words, "--watch", "0.1", "--json") as process:
        assert process.stdout is not None
        states = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert states[0] == states[2]


@contextmanager
def watching(home: Path, *words: str, **streams: Any) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "ops", *words],
        cwd=ROOT,
        env={**os.environ, "STORE_HOME": str(home)},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.spec("OPS-40")
def test_state_is_redrawn_on_a_terminal(home: Path) -> None:
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with watching(home, "dead", "list", "--watch", "0.1", **streams) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"\x1b[2J") < 3:
            shown += os.read(ours, 4096)
        os.write(ours, b"\x03")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    os.close(ours)
    assert b"Traceback" not in shown
    assert b"Aborted" not in shown
    assert "│".encode() in shown or "┃".encode() in shown


@pytest.mark.spec("OPS-40")
@pytest.mark.parametrize("seconds", ["0", "nan", "often", "1e9"])
def test_rejects_invalid_interval(home: Path, seconds: str) -> None:
    result = typed("status", "--watch", seconds)
    assert result.exit_code == 2
    assert "--watch" in result.output


@pytest.mark.spec("OPS-40")
def test_watch_outlives_a_store_that_is_away(home: Path) -> None:
    with watching(home, "dead", "list", "--watch", "0.1", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == []
        (home / "catalog.sqlite").rename(home / "away")
        until(lambda: "There is no store" in str(json.loads(process.stdout.readline())))
        (home / "away").rename(home / "catalog.sqlite")
        until(lambda: json.loads(process.stdout.readline()) == [])


@pytest.mark.spec("OPS-40")
@pytest.mark.parametrize("options", [["--json"], ["--watch", "1"]], ids=" ".join)
def test_options_of_a_group_before_a_command_are_refused(options: list[str]) -> None:
    ran = CliRunner().invoke(cli, ["settings", *options, "check"])
    assert ran.exit_code == 2
    assert "behind the name of the command" in ran.output


@pytest.mark.spec("OPS-40")
def test_watch_of_settings_outlives_a_wrong_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, changed = home / "store.toml", home / "changed.toml"
    file.write_text("[locations]\nport = 8100\n")
    monkeypatch.setenv("STORE_SETTINGS_FILE", str(file))
    with watching(home, "settings", "--watch", "0.1", "--json") as process:
        assert process.stdout is not None
        shown = json.loads(process.stdout.readline())
        assert ("STORE_PORT", "8100") in {(one["variable"], one["value"]) for one in shown}
        changed.write_text("[locations]\nport = 0\n")
        changed.rename(file)
        until(lambda: "error" in json.loads(process.stdout.readline()))


@pytest.mark.spec("OPS-40")
def test_group_with_a_state_leaves_printing_to_its_commands(home: Path) -> None:
    assert run_json("settings", "check")["problems"] == []


@pytest.mark.spec("OPS-40")
def test_status_as_json_has_every_part(home: Path) -> None:
    park(home, Job("sync", "gcp", "file:x"))
    status = run_json("status")
    assert status["dead"] == 1
    assert {one["state"] for one in status["health"]} == {"failed"}
    assert status.keys() == {"processes", "health", "backlog", "purges", "damaged", "dead"}


@pytest.mark.spec("OPS-40")
def test_errors_of_commands_stay_sentences(home: Path) -> None:
    homes.write_json(home, homes.READY, {})
    result = CliRunner().invoke(cli, ["users", "disable", "eve@example.org", "--json"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")


@pytest.mark.spec("OPS-40")
def test_purge_shows_what_would_go_as_json(home: Path, bundle: FQID) -> None:
    found = run_json("purge", str(bundle), "--reason", "consent", "--dry-run")
    assert found == {
        "kind": "bundle",
        "versions": [str(bundle)],
        "files": 1,
        "kept_files": 0,
        "ordered": False,
    }


@pytest.mark.spec("OPS-40")
def test_cells_keep_their_line_and_their_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @prints_output
    def show() -> CommandOutput:
        rows = [("two\nlines\tand [/b] brackets", None, ["a", "b"])]
        return CommandOutput(OutputTable("Shown", ("text", "none", "new list"), rows))

    assert CliRunner().invoke(show).output == (
        "text\tnone\tnew list\ntwo lines and [/b] brackets\t\ta b\n"
    )
    assert json.loads(CliRunner().invoke(show, ["--json"]).output) == [
        {"text": "two\nlines\tand [/b] brackets", "none": None, "new_list": ["a", "b"]}
    ]
