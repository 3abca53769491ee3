"""Operator commands, run as they are typed."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from api.app import build_verifier
from config import Settings
from ops import commands, ports
from ops.__main__ import cli
from storage.catalog import Catalog, jobs
from storage.errors import Unauthorized
from storage.model import Job


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STORE_HOME", str(tmp_path))
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def settings(home: Path, put_catalog: Callable[[Path], None]) -> Settings:
    put_catalog(home)
    run("migrate")
    return Settings(home=home)


@pytest.mark.spec("OPS-06")
def test_a_token_is_one_that_the_store_accepts(settings: Settings) -> None:
    token = run("token", "--email", "ada@example.org", "--groups", "store_ingest, readers").strip()
    principal = build_verifier(settings, clock=time.time).verify(token)
    assert principal.email == "ada@example.org"
    assert principal.groups == {"store_ingest", "readers"}


@pytest.mark.spec("OPS-21")
def test_rotation_ends_tokens_only_after_a_leak(settings: Settings) -> None:
    token = run("token", "--email", "ada@example.org", "--hours", "8000").strip()
    for _ in range(3):
        run("rotate-key")
    assert "4 before it" in run("rotate-key", "--algorithm", "ES256")
    assert build_verifier(settings, clock=time.time).verify(token).email == "ada@example.org"
    assert "0 before it" in run("rotate-key", "--leaked")
    with pytest.raises(Unauthorized):
        build_verifier(settings, clock=time.time).verify(token)


@pytest.mark.spec("OPS-05")
def test_migrating_twice_changes_nothing(settings: Settings) -> None:
    run("migrate")


@pytest.mark.spec("OPS-05")
def test_a_catalog_that_is_away_may_be_migrated_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{ports.find_free_port()}"
    monkeypatch.setenv("STORE_CATALOG_URL", f"postgresql+psycopg://store:word@{address}/store")
    result = CliRunner().invoke(cli, ["migrate"])
    assert result.exit_code == os.EX_TEMPFAIL
    assert "cannot be reached" in result.output


def park(settings: Settings, *rows: Job) -> None:
    with Catalog(settings.catalog).write() as tx:
        jobs.insert(tx, rows)
        for row in rows:
            held = jobs.claim(tx, row, token="t", lease_s=1, max_claims=1)
            assert held is not None
            jobs.mark_dead(tx, held, reason="it never works")


@pytest.mark.spec("OPS-09")
def test_parked_rows_are_listed_with_their_reason(settings: Settings) -> None:
    park(settings, Job("sync", "gcp", "file:x"))
    assert "sync\tgcp\tfile:x" in run("parked", "list")
    assert "it never works" in run("parked", "list")


@pytest.mark.spec("OPS-09")
def test_retry_makes_chosen_jobs_due(settings: Settings) -> None:
    park(settings, Job("sync", "gcp", "file:x"), Job("index", "aws", "y"))
    assert run("parked", "retry", "--step", "index") == "1 rows are due again\n"
    with Catalog(settings.catalog).read() as tx:
        assert jobs.count_dead(tx) == 1
        assert jobs.count_open(tx) == {("index", "aws"): 1}


@pytest.mark.spec("OPS-08")
def test_status_reports_stopped_store(settings: Settings) -> None:
    shown = run("status")
    assert "does not answer" in shown
    assert "parked: 0" in shown


@pytest.mark.parametrize("words", [[], ["parked"], ["read-only"], ["rebuild"]])
def test_command_help_fits_a_narrow_terminal(words: list[str]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).output
    commands = shown.partition("Commands:\n")[2].splitlines()
    assert commands
    assert [line for line in commands if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.spec("OPS-07")
def test_an_unknown_setting_stops_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PROT", "8000")
    result = CliRunner().invoke(cli, ["settings"])
    assert result.exit_code == 1
    assert "STORE_PROT" in result.output


@pytest.mark.spec("OPS-07")
def test_settings_are_printed_with_their_values(home: Path) -> None:
    assert f"STORE_HOME\t{home}" in run("settings")


def test_a_process_that_the_procfile_lacks_cannot_be_run(home: Path) -> None:
    result = CliRunner().invoke(cli, ["run", "--only", "nobody"])
    assert result.exit_code == 2
    assert "nobody" in result.output
    assert json.dumps(list(home.iterdir())) == "[]"


@pytest.mark.spec("OPS-11")
def test_read_only_is_switched_on_and_off_and_shown(settings: Settings) -> None:
    assert run("read-only", "show") == "off\n"
    run("read-only", "on", "--reason", "Moving house.")
    run("read-only", "on", "--reason", "Moving on.")
    assert run("read-only", "show") == "on: Moving on.\n"
    assert run("read-only", "off") == "off\n"
    assert run("read-only", "show") == "off\n"


@pytest.mark.spec("OPS-10")
def test_a_dry_sweep_shows_every_comparison(settings: Settings) -> None:
    shown = run("sweep", "--dry-run")
    assert "blob\tgcp\t0\t0\t0" in shown
    assert "document\taws\t0\t0\t0" in shown
    assert "Missing" not in shown


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("parked", "list"),
        ("read-only", "show"),
        ("users", "list"),
        ("clients", "list"),
    ],
    ids=" ".join,
)
def test_a_home_without_a_store_is_named_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    for home in (tmp_path / "nowhere", tmp_path / "empty"):
        monkeypatch.setenv("STORE_HOME", str(home))
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 1
        assert result.output.startswith(f"Error: There is no store in {home} (catalog.sqlite ")
        assert result.output.count("\n") == 1
    assert [*tmp_path.iterdir(), *home.iterdir()] == [home]


@pytest.mark.skipif(not Path("/proc/1").exists(), reason="needs a folder that takes no files")
@pytest.mark.parametrize("words", [("status",), ("migrate",), ("run",)], ids=" ".join)
def test_names_unwritable_home_with_reason(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    home = Path(f"/proc/{os.getpid()}")
    monkeypatch.setenv("STORE_HOME", str(home))
    assert refusal(*words) == f"Error: STORE_HOME {home}: No such file or directory"


@pytest.mark.parametrize("words", [("status",), ("users", "list")], ids=" ".join)
def test_reports_catalog_without_tables_in_one_sentence(home: Path, words: tuple[str, ...]) -> None:
    home.mkdir(exist_ok=True)
    (home / "catalog.sqlite").touch()
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 1
    assert "`python -m ops migrate` first" in result.output


def test_reports_unreachable_catalog_in_one_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_CATALOG_URL", "nonsense")
    result = CliRunner().invoke(cli, ["clients", "list"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "Error: STORE_CATALOG_URL: must be a URL that begins with" in result.output


def test_reports_unwritable_backup_in_one_sentence(settings: Settings) -> None:
    nowhere = settings.home / "no" / "such" / "folder"
    result = CliRunner().invoke(cli, ["backup", str(nowhere)], catch_exceptions=False)
    assert result.exit_code == 1
    assert "cannot be written: No such file or directory" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("token", "--email", ""),
        ("token", "--email", "a\udcff@example.org"),
        ("token", "--email", "ada@example.org", "--hours", "nan"),
        ("token", "--email", "ada@example.org", "--groups", "a\udcff"),
        ("users", "add", "ada@example.org", "--role", "a\udcff"),
        ("clients", "remove", "a\udcff"),
        ("service-accounts", "remove", "a\udcff"),
        ("service-accounts", "remove", "ada@example.org", "--kid", "a\udcff"),
        ("usage", "--group", "a\udcff"),
        ("dead", "list", "--ref", "a\udcff"),
        ("read-only", "on", "--reason", ""),
        ("verify", "--sample", "nan"),
        ("probe", "--max-age", "nan"),
        ("probe", "--max-age", "inf"),
        ("token", "--email", "ada@example.org", "--hours", "inf"),
        ("parked", "list", "--limit", "99999999999999999999"),
    ],
    ids=repr,
)
def test_reports_invalid_arguments_in_one_sentence(
    settings: Settings, words: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code in (1, 2)
    assert "Error: " in result.output


CATALOG_COMMANDS = [
    ("status",),
    ("migrate",),
    ("parked", "list"),
    ("read-only", "show"),
    ("users", "list"),
    ("clients", "list"),
    ("service-accounts", "list"),
    ("verify",),
    ("sweep",),
    ("reconcile",),
    ("rebuild", "index"),
]


def refusal(*words: str) -> str:
    """The sentence that a command ends with; an unexpected error fails the test."""
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code != 0
    return result.output.strip().splitlines()[-1]


@pytest.mark.spec("OPS-30")
@pytest.mark.parametrize("words", CATALOG_COMMANDS, ids=" ".join)
def test_a_damaged_catalog_is_named_as_the_cause(
    settings: Settings, words: tuple[str, ...]
) -> None:
    for end in ("-wal", "-shm"):
        settings.home.joinpath(f"catalog.sqlite{end}").unlink(missing_ok=True)
    settings.home.joinpath("catalog.sqlite").write_bytes(b"no database " * 1000)
    assert "The catalog is damaged: file is not a database" in refusal(*words)


@pytest.mark.spec("OPS-30")
@pytest.mark.parametrize("words", CATALOG_COMMANDS, ids=" ".join)
def test_a_catalog_of_a_newer_release_is_refused(
    settings: Settings, words: tuple[str, ...]
) -> None:
    with Catalog(settings.catalog).write() as tx:
        tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert "The catalog is at revision 9999, which this release does not know" in refusal(*words)


@pytest.mark.spec("OPS-30")
@pytest.mark.parametrize("words", [("run",), ("migrate",)], ids=" ".join)
def test_a_home_that_cannot_be_made_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    file = tmp_path / "file"
    file.touch()
    for home, why in (
        (file, "Not a directory"),
        (file / "below", "Not a directory"),
        (Path("/proc/store"), "No such file or directory"),
    ):
        monkeypatch.setenv("STORE_HOME", str(home))
        assert refusal(*words) == f"Error: STORE_HOME {home}: {why}"


@pytest.mark.spec("OPS-30")
@pytest.mark.parametrize("words", [("status",), ("token", "--email", "a@b.org")], ids=" ".join)
def test_a_home_that_is_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STORE_HOME", str(tmp_path / "file"))
    assert "Not a directory" in refusal(*words)


@pytest.mark.spec("OPS-30")
@pytest.mark.parametrize("port", ["70000", "65535", "0", "-1"])
def test_names_invalid_port(home: Path, monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("STORE_PORT", port)
    said = f"Error: STORE_PORT: must be between 1 and 65534 (got {port})"
    for words in (("migrate",), ("run",), ("status",)):
        assert refusal(*words) == said


@pytest.mark.spec("OPS-30")
def test_invalid_host_is_not_reported_as_port_in_use(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_HOST", "203.0.113.7")
    said = refusal("run")
    assert "cannot listen on port" in said
    assert "STORE_HOST" in said


@pytest.mark.spec("OPS-08")
def test_the_status_of_another_store_is_not_shown_as_this_one_s(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers: dict[str, Any] = {"status": "ok", "parts": {"disk": part("ours")}}
    monkeypatch.setattr(httpx, "get", lambda *_args, **_more: httpx.Response(200, json=answers))
    answers["instance"] = commands.find_instance_id(settings)
    assert "ours" in run("status")
    for other in ("0" * 32, None):
        answers["instance"] = other
        result = CliRunner().invoke(cli, ["status"], catch_exceptions=False)
        assert result.exit_code == 1
        assert "ours" not in result.output
        assert "is not the store of" in result.output.splitlines()[-1]


def part(reason: str) -> dict[str, str]:
    return {"status": "ok", "reason": reason}
