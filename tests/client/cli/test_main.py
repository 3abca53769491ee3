"""The program: how it finds commands, how it ends, and what it costs to start."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from store_client.cli import registry, terminal
from store_client.cli.context import (
    CommandContext,
    EarlyOptions,
    StoreCommand,
    command,
    parse_early,
)
from store_client.cli.main import StoreGroup, cli
from store_client.configuration import Configuration, save_profile
from store_client.errors import (
    Conflict,
    Damaged,
    Misused,
    NotAllowed,
    NotFound,
    Refused,
    StoreError,
    TimedOut,
    Unreachable,
)
from tests.client.cli.people import PROGRAM, Typist, program, typed
from tests.client.conftest import Served

VERSION = re.compile(r"\d{4}-\d{2}-\d{2}T\d{6}\.\d{6}Z\n")
NOWHERE = {"STORE_CLIENT_URL": "http://127.0.0.1:9"}
LEVELS = "[WARNING|INFO|DEBUG|CRITICAL|ERROR]"


def failing(error: BaseException, *words: str) -> tuple[int, str]:
    """The exit code and the words of a program whose one command fails so."""

    @command("fail")
    def fail(here: CommandContext) -> None:
        raise error

    class One(StoreGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return fail

    done = CliRunner().invoke(One("store"), ["fail", *words])
    assert done.stdout == ""
    return done.exit_code, done.stderr


@pytest.mark.spec("CLI-52")
def test_client_commands_are_found_and_take_log_level(offline: Typist) -> None:
    for name in registry.COMMANDS:
        found = registry.load_command(name)
        assert isinstance(found, StoreCommand), name
        done = offline.types(*name.split(), "--help")
        assert done.output.startswith(f"Usage: store {name} ")
        assert LEVELS in done.output
        assert re.search(r"^ *(Examples?:|Completion works)", done.output, re.MULTILINE), name


@pytest.mark.spec("CLI-54")
def test_command_list_without_network_says_how_to_get_the_rest(
    offline: Typist,
) -> None:
    done = offline.types("--help")
    assert done.exit_code == 0
    shown = " ".join(done.output.split())
    for entry in registry.ENTRIES:
        assert (f"{entry.name} {entry.about}" in shown) == bool(entry.section)
    for noun, about in registry.NOUNS.items():
        assert f"{noun} {about}" in shown
        verbs = " ".join(offline.types(noun).output.split())
        for entry in registry.list_verbs(noun):
            assert f"{entry.name.removeprefix(noun)} {entry.about}".strip() in verbs
    assert "store login --url URL" in " ".join(offline.types("api").output.split())
    sections = [registry.EVERYDAY, registry.THINGS, registry.IDENTITY, registry.CLIENT]
    assert [shown.index(f"{one}: ") for one in sections] == sorted(
        shown.index(f"{one}: ") for one in sections
    )


@pytest.mark.spec("CLI-54")
def test_no_command_shows_help(offline: Typist) -> None:
    done = offline.types()
    assert done.exit_code == 0
    assert done.output == offline.types("--help").output
    assert len(done.output.splitlines()) <= 50


@pytest.mark.spec("CLI-53")
def test_suggests_names_for_mistyped_command(offline: Typist) -> None:
    done = offline.types("donwload")
    assert done.exit_code == 2
    assert done.stderr == "store: there is no command 'donwload'\n  did you mean: download?\n"


@pytest.mark.spec("CLI-49")
def test_unreachable_store_is_one_line_and_a_code(offline: Typist) -> None:
    done = offline.types("get-bundles-all", "--replica", "aws", "--log-level", "ERROR")
    assert done.exit_code == 7
    assert "127.0.0.1:9" in done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.spec("CLI-49")
@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (StoreError("it broke", hint="mend it"), 1, "store: it broke\n  mend it\n"),
        (NotFound("no\nsuch\x1b[2J thing"), 5, "store: no\\nsuch\\x1b[2J thing\n"),
        (Damaged("torn"), 8, "store: torn\n"),
        (KeyboardInterrupt(), 130, "\nstore: interrupted\n"),
        (click.UsageError("No."), 2, "store: No\n  see: store fail --help\n"),
        (FileNotFoundError(2, "No such file", "x"), 1, "store: x: No such file\n"),
    ],
)
def test_errors_end_with_one_line_and_code(error: BaseException, code: int, text: str) -> None:
    assert failing(error) == (code, text)


@pytest.mark.spec("CLI-50")
def test_internal_error_shows_traceback_only_in_debug() -> None:
    code, text = failing(ZeroDivisionError("by zero"))
    assert code == 1
    assert text.splitlines()[0] == "store: an error in this client: ZeroDivisionError: by zero"
    assert "--log-level DEBUG" in text
    assert "Traceback" not in text
    code, text = failing(ZeroDivisionError("by zero"), "--log-level", "debug")
    assert code == 1
    assert "Traceback" in text


@pytest.mark.spec("CLI-50")
def test_lookup_that_fails_may_be_due_to_the_answer() -> None:
    _, text = failing(KeyError("files"))
    assert "an error in this client, or an answer that it does not understand: KeyError" in text


@pytest.mark.spec("CLI-54")
def test_accepts_global_options_anywhere() -> None:
    assert parse_early(["get-x", "--url=http://a", "--env", "b"]) == EarlyOptions("http://a", "b")
    assert parse_early(["--log-level", "DEBUG", "--", "--url", "c"]) == EarlyOptions(
        log_level="DEBUG"
    )
    assert parse_early(["x", "--help"]).help


@pytest.mark.spec("CLI-52")
def test_a_log_level_that_there_is_not_is_refused(offline: Typist) -> None:
    done = offline.types("create-version", "--log-level", "LOUD")
    assert done.exit_code == 2
    assert "'LOUD'" in done.stderr


@pytest.mark.spec("CLI-52")
def test_logs_to_standard_error_by_level(store: Served, tmp_path: Path) -> None:
    there = {"STORE_CLIENT_URL": store.url}
    done = typed(tmp_path, "get-echo", "--log-level", "DEBUG", **there)
    assert "store_client.http" in done.stderr
    assert json.loads(done.stdout)["path"] == "/echo"
    assert typed(tmp_path, "get-echo", **there).stderr == ""


@pytest.mark.spec("CLI-52")
def test_quiet_command_prints_result_only(tmp_path: Path) -> None:
    assert "cleared" in typed(tmp_path, "clear-cache").stderr
    done = typed(tmp_path, "clear-cache", "-q")
    assert (done.stdout, done.stderr, done.exit_code) == ("", "", 0)


@pytest.mark.spec("CLI-55")
def test_installed_program_shows_version(tmp_path: Path) -> None:
    assert re.fullmatch(r"store \d+\.\d+\.\d+\n", program(tmp_path, "--version").stdout)


@pytest.mark.spec("CLI-55")
def test_a_version_is_printed_and_nothing_else(tmp_path: Path) -> None:
    done = typed(tmp_path, "create-version")
    assert VERSION.fullmatch(done.stdout)
    assert done.stderr == ""
    whole = json.loads(typed(tmp_path, "create-version", "--json").stdout)
    assert VERSION.fullmatch(whole["version"] + "\n")


@pytest.mark.spec("CLI-57")
@pytest.mark.parametrize("words", [["create-version"], ["--version"], ["clear-cache"]])
def test_a_small_command_imports_nothing_that_is_heavy(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(PROGRAM), *words],
        env={**os.environ, "STORE_CLIENT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {row.rpartition("|")[2].strip().partition(".")[0] for row in done.stderr.split("\n")}
    assert "click" in imported
    assert not {"httpx", "httpcore", "rich", "ssl", "joserfc", "boto3"} & imported


@pytest.mark.spec("CLI-57")
def test_the_list_of_known_commands_needs_no_network_code(store: Served, tmp_path: Path) -> None:
    there = {"STORE_CLIENT_URL": store.url}
    typed(tmp_path, "get-echo", **there)
    done = program(tmp_path, "api", "--help", PYTHONPROFILEIMPORTTIME="1", **there)
    assert "get-bundles-all" in done.stdout
    assert "httpx" not in done.stderr
    assert "rich" not in done.stderr


@pytest.mark.spec("CLI-51", "CLI-130")
@pytest.mark.parametrize(
    "words",
    [
        "get-definition",
        "get-definition --output raw",
        "profiles --output table",
        "--help",
        "profiles 2>&1",
    ],
)
def test_closed_pipe_ends_silently(store: Served, tmp_path: Path, words: str) -> None:
    environ = {**os.environ, "STORE_CLIENT_HOME": str(tmp_path), "STORE_CLIENT_URL": store.url}
    save_profile(Configuration(tmp_path, tmp_path, store.url), "here", default=True)
    piped = f"set -o pipefail; (sleep 0.5; {PROGRAM} {words}) | true"
    done = subprocess.run(
        ["bash", "-c", piped], env=environ, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, b"", b"")


@pytest.mark.spec("CLI-51")
def test_interrupt_ends_with_its_code(tmp_path: Path) -> None:
    environ = {**os.environ, "STORE_CLIENT_HOME": str(tmp_path), **NOWHERE}
    with subprocess.Popen(
        [str(PROGRAM), "get-echo"], env=environ, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert "again in" in running.stderr.readline()
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    assert said.endswith("store: interrupted\n")
    assert "Traceback" not in said


@pytest.mark.spec("CLI-56")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_calls_the_program(shell: str, offline: Typist) -> None:
    script = offline.types("completion", shell).output
    assert "_STORE_COMPLETE=" in script
    shown = offline.types("completion", "--help").output
    assert f"store completion {shell} >" in shown


@pytest.mark.spec("CLI-56")
def test_bash_accepts_completion_script(tmp_path: Path) -> None:
    script = program(tmp_path, "completion", "bash").stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


def completed(home: Path, line: str, at: int, **environ: str) -> list[str]:
    """What a shell is told that could stand there."""
    asked = {"_STORE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(at)}
    done = typed(home, **asked, **environ)
    assert done.stderr == ""
    return [row.partition(",")[2] for row in done.stdout.split()]


@pytest.mark.spec("CLI-56")
def test_completion_uses_cache_without_network(store: Served, tmp_path: Path) -> None:
    assert completed(tmp_path, "store create", 1, **NOWHERE) == ["create-version"]
    assert completed(tmp_path, "store get-bundles-a", 1, **NOWHERE) == []
    typed(tmp_path, "get-echo", "--url", store.url)
    line = f"store --url {store.url} get-bundles-a"
    assert completed(tmp_path, line, 3) == ["get-bundles-all"]
    options = completed(tmp_path, f"store --url {store.url} get-bundle --re", 4)
    assert options == ["--replica", "--replication"]
    assert completed(tmp_path, f"store --url {store.url} get-bundle --replica g", 5) == ["gcp"]


@pytest.mark.spec("CLI-56")
def test_completion_of_invalid_line_is_silent(tmp_path: Path) -> None:
    assert completed(tmp_path, "store --profile nobody get-b", 3) == []


@pytest.mark.spec("CLI-49")
def test_help_lists_exit_codes(offline: Typist) -> None:
    shown = " ".join(offline.types("-h").output.split())
    for kind in (Misused, Refused, NotAllowed, NotFound, Conflict, Unreachable, Damaged, TimedOut):
        assert f" {kind.exit_code} " in shown
    assert " 130 interrupted" in shown


@pytest.mark.spec("CLI-59")
def test_a_command_of_its_own_may_have_an_option_that_all_have() -> None:
    @command("own")
    @click.option("-q", "--quiet", is_flag=True)
    def own(here: CommandContext, quiet: bool) -> None:
        here.show({"quiet": quiet, "here": here.quiet})

    done = CliRunner().invoke(own, ["--quiet"])
    assert json.loads(done.output) == {"quiet": True, "here": False}


@pytest.mark.spec("CLI-49")
def test_unknown_error_has_name_without_message() -> None:
    def work() -> None:
        raise StoreError("")

    assert terminal.run_with_exit_code(work) == 1
    assert terminal.run_with_exit_code(lambda: 3) == 3
    assert cli.name == "store"
