"""The settings file: precedence, errors with their places, secrets, and conflicts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from config import Settings, SettingsError, load_settings
from config.loading import GROUPS, list_groups, read_all_settings, tables_by_setting
from config.parsing import ProviderSettings
from config.reference import render_example
from ops.__main__ import cli
from ops.settings_reference import EMBEDDED, MACHINE, MACHINES, find_conflicts, find_kind
from tests.test_settings import ROOT

pytestmark = pytest.mark.spec("OPS-07")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.toml"


def problems_of(file: Path, text: str, mode: int = 0o600) -> list[str]:
    """Problems of a file with this text; the path is cut off."""
    file.write_text(text)
    file.chmod(mode)
    found = read_all_settings({"STORE_SETTINGS_FILE": str(file)}).problems
    assert all(str(file) in problem for problem in found)
    return [problem.replace(f"{file}: ", "", 1) for problem in found]


def test_environment_wins_over_file_and_file_over_defaults(file: Path) -> None:
    file.write_text(
        """
        [locations]
        port = 9000
        deployment = "lab"
        home = "/srv/store"
        [http]
        request_head_s = 5
        cors_origins = ["https://a.example"]
        read_only = true
        [identity]
        issuers = { "https://i.example" = "https://i.example/keys" }
        [logins.providers.idp]
        issuer = "https://idp.example"
        client_id = "store"
        domains = ["Example.org"]
        [notifications]
        delivery_delays_s = [0, 1.5]
        """
    )
    loaded = read_all_settings({"STORE_SETTINGS_FILE": str(file), "STORE_PORT": "7000"})
    assert loaded.problems == []
    settings = loaded.settings
    assert (settings.port, settings.deployment, settings.api_threads) == (7000, "lab", 32)
    assert (settings.home, settings.request_head_s) == (Path("/srv/store"), 5.0)
    assert (settings.cors_origins, settings.read_only) == (("https://a.example",), True)
    assert settings.issuers == {"https://i.example": "https://i.example/keys"}
    assert settings.delivery_delays_s == (0.0, 1.5)
    assert settings.providers == {
        "idp": ProviderSettings("https://idp.example", "store", domains=("example.org",))
    }
    sources = loaded.sources
    assert (sources["port"], sources["deployment"]) == ("environment", "file")
    assert "api_threads" not in sources


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[htpt]\nx = 1", "[htpt] (line 1): unknown table; did you mean [http]?"),
        ("\n[http]\nport = 1", "[http] port (line 3): belongs into [locations]"),
        (
            "[http]\napi_thread = 1",
            "[http] api_thread (line 2): unknown setting; did you mean api_threads?",
        ),
        ("port = 1", "port (line 1): belongs into [locations]"),
        ("http = 1", "http (line 1): must be a table, [http]"),
        (
            '[locations]\nport = "1"',
            '[locations] port (line 2): must be a whole number without quotes (got "1")',
        ),
        (
            "[locations]\nport = true",
            "[locations] port (line 2): must be a whole number without quotes (got true)",
        ),
        (
            "[locations]\nport = 0",
            "[locations] port (line 2): must be between 1 and 65534 (got 0)",
        ),
        ("[http]\nread_only = 1", "[http] read_only (line 2): must be true or false (got 1)"),
        (
            "[http]\nwait_s = nan",
            '[http] wait_s (line 2): must be a number (got "nan")',
        ),
        (
            "[locations]\nhost = 1979-05-27",
            '[locations] host (line 2): must be text in quotes (got "1979-05-27")',
        ),
        ("[http]\ncors_origins = 1", "[http] cors_origins (line 2): must be a list (got 1)"),
        (
            "[http]\ncors_origins = [1]",
            "[http] cors_origins (line 2): each item must be a text",
        ),
        (
            "[logins.providers.idp]\nissuer = 'https://i.example'",
            "[logins] providers (line 1): idp wants `{issuer, client_id, title?, domains?,"
            " scopes?}`",
        ),
        (
            '[logs]\nlog_format = "xml"',
            '[logs] log_format (line 2): must be one of auto, text, json (got "xml")',
        ),
        ("[secrets]\nsecret_key = 12345", "[secrets] secret_key (line 2): must be text in quotes"),
        ("[http\n", "is not TOML: Expected ']' at the end of a table declaration"),
    ],
)
def test_names_table_key_and_line(file: Path, text: str, problem: str) -> None:
    (found,) = problems_of(file, text)
    assert found.startswith(problem)


def test_reports_all_problems_and_starts_with_none(file: Path) -> None:
    text = (
        '[http]\napi_threads = 0\ncors_origins = ["https://a/b"]\nnothing = 1\n[web]\nweb_name = 1'
    )
    found = problems_of(file, text)
    assert [problem.partition(":")[0] for problem in sorted(found)] == [
        "[http] api_threads (line 2)",
        "[http] cors_origins (line 3)",
        "[http] nothing (line 4)",
        "[web] web_name (line 6)",
    ]
    with pytest.raises(SettingsError, match=r"store\.toml: \[http\] nothing .*and 3 more"):
        load_settings({"STORE_SETTINGS_FILE": str(file)})


def test_missing_file_stops_the_start(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"store\.toml: cannot be read: No such file"):
        load_settings({"STORE_SETTINGS_FILE": str(file)})
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load_settings({"STORE_SETTINGS_FILE": str(file.parent)})


@pytest.mark.parametrize(
    "text",
    [
        '[secrets]\nsecret_key = "0123456789abcdef"',
        '[engines]\nredis_url = "redis://:hidden@queue:6379/0"',
        '[logins]\nprovider_secrets = { idp = "hidden" }',
    ],
)
def test_secrets_that_others_can_read_are_refused(file: Path, text: str) -> None:
    (found,) = problems_of(file, text, mode=0o604)
    assert found == f"holds secrets, but other users can read it: run `chmod o= {file}`"
    assert "hidden" not in found
    assert problems_of(file, text, mode=0o640) == []
    assert problems_of(file, "[locations]\nport = 1", mode=0o644) == []


def test_every_setting_is_in_one_group() -> None:
    names = [name for _, names in list_groups() for name in names]
    assert names == list(vars(Settings()))
    assert all(names for _, names in list_groups())
    assert len({group.table for group in GROUPS}) == len(GROUPS)


def test_groups_begin_where_their_comments_are() -> None:
    lines = (ROOT / "config" / "settings.py").read_text().splitlines()
    for group in GROUPS:
        (at,) = (n for n, line in enumerate(lines) if line.startswith(f"    {group.first}: "))
        assert lines[at - 1].startswith(f"    # {group.title}"), group


def test_uncommented_example_is_the_defaults(file: Path) -> None:
    names = tables_by_setting()
    lines = render_example().splitlines()
    file.write_text(
        "\n".join(
            line.removeprefix("# ")
            for line in lines
            if line.startswith("[") or line.removeprefix("# ").partition(" = ")[0] in names
        )
    )
    loaded = read_all_settings({"STORE_SETTINGS_FILE": str(file)})
    assert loaded.problems == []
    assert loaded.sources.keys() == names.keys()
    assert loaded.settings == replace(Settings(), allow_private_callbacks=False)


def test_kind_follows_from_the_queue() -> None:
    kinds = {
        "": EMBEDDED,
        "redis://127.0.0.1:6379/0": MACHINE,
        "redis://localhost:6379/0": MACHINE,
        "redis://queue:6379/0": MACHINES,
    }
    assert {url: find_kind(Settings(redis_url=url)) for url in kinds} == kinds


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (Settings(ops_port=8001), "STORE_OPS_PORT"),
        (Settings(metrics_port=8001), "STORE_METRICS_PORT"),
        (Settings(ops_port=9100, metrics_port=9100), "STORE_METRICS_PORT"),
        (Settings(replica_aws="s3://one", replica_gcp="s3://one"), "STORE_REPLICA_GCP"),
        (Settings(wait_s=100), "STORE_WAIT_S"),
        (Settings(session_idle_s=99_999), "STORE_SESSION_IDLE_S"),
        (Settings(policies_credentials="x"), "STORE_POLICIES_URL"),
        (Settings(policies_url="https://a.example"), "STORE_POLICIES_URL"),
        (Settings(provider_secrets={"idp": "x"}), "STORE_PROVIDER_SECRETS"),
        (Settings(local_logins=False), "STORE_LOCAL_LOGINS"),
    ],
)
def test_conflicting_settings_are_found(settings: Settings, name: str) -> None:
    (found,) = find_conflicts(settings)
    assert found.startswith(f"{name}: ")


def test_several_machines_share_engines_and_secret() -> None:
    assert find_conflicts(Settings()) == []
    assert find_conflicts(Settings(redis_url="redis://127.0.0.1:6379/0")) == []
    alone = Settings(redis_url="redis://queue:6379/0", areas_url="file:///srv/areas")
    missing = {problem.partition(":")[0] for problem in find_conflicts(alone)}
    named = ("CATALOG_URL", "SEARCH_URL", "SECRET_KEY", "EXTERNAL_URL", "AUTH_EXTERNAL_URL")
    buckets = ("REPLICA_AWS", "REPLICA_GCP", "AREAS_URL")
    assert missing == {f"STORE_{name}" for name in (*named, *buckets)}


def run_command(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, ["settings", *words], env=environ, catch_exceptions=False)


def test_check_reports_everything_at_once(file: Path) -> None:
    file.write_text("[http]\nnothing = 1\n[jobs]\ntick_s = 0")
    answer = run_command("check", str(file), STORE_WAIT_S="100", STORE_PORT="x")
    assert answer.exit_code == 1
    lines = answer.output.splitlines()
    assert lines.pop() == "Error: 4 problems"
    assert len(lines) == 4
    for part in ("[http] nothing (line 2)", "[jobs] tick_s (line 4)", "STORE_WAIT_S", "STORE_PORT"):
        assert sum(part in line for line in lines) == 1, part


@pytest.mark.parametrize(
    ("name", "raw", "problem"),
    [
        ("SECRET_KEY", "short", "must have at least 16 characters"),
        ("TOKEN_ALGORITHMS", "none", "must be one or more of ES256"),
        ("CLOSED_OPERATIONS", "put_bundles", "not an open operation: put_bundles"),
        ("METADATA_SCHEMAS", "/nowhere.json", "/nowhere.json: No such file or directory"),
        ("WEB_LOGO", "/nowhere.png", "there is no file /nowhere.png"),
        ("BACKUP_TARGET", "s3://bucket?enpoint=x", "unknown options enpoint"),
        ("REPLICA_AWS", "s3://b?endpoint=http://[::1", "endpoint must be an http or https URL"),
        ("REPLICA_AWS", "s3://b?endpoint=http://h:99999", "endpoint must be an http or https URL"),
        ("REPLICA_AWS", "s3://key:hush/den@bucket", "must be a URL with a valid host and port"),
        ("REPLICA_AWS", "s3://hush/den@bucket", "s3://<bucket> is expected"),
        ("AREAS_URL", "s3://[b", "must be a URL with a valid host and port"),
        ("REDIS_URL", "redis://[b", "must be a URL with a valid host and port"),
        ("SEARCH_URL", "http://search:9200/a/b", "must be http(s)://host:port/prefix"),
        ("SEARCH_URL", "http://search:9200/a?shard=2", "unknown options shard"),
        ("SEARCH_URL", "ftp://search", "must be a URL that begins with https:// or http://"),
        ("AREAS_ROLE_ARN", "arn:aws:iam::1:role/r", "is for upload areas in an s3:// bucket"),
    ],
)
def test_check_reports_what_would_stop_the_start(name: str, raw: str, problem: str) -> None:
    answer = run_command("check", **{f"STORE_{name}": raw})
    assert (answer.exit_code, answer.output.count("\n")) == (1, 2)
    assert answer.output.startswith(f"STORE_{name}")
    assert problem in answer.output
    assert "hush" not in answer.output


def test_check_of_good_settings_ends_with_0(file: Path) -> None:
    file.write_text("[http]\napi_threads = 8")
    answer = run_command("check", STORE_SETTINGS_FILE=str(file))
    assert (answer.exit_code, "embedded store" in answer.output) == (0, True)


def test_settings_are_printed_with_their_source(file: Path) -> None:
    file.write_text('[secrets]\nsecret_key = "do-not-tell-anybody"\n')
    file.chmod(0o600)
    answer = run_command(STORE_SETTINGS_FILE=str(file), STORE_PORT="9000")
    assert answer.exit_code == 0
    rows = {row[0]: row[1:3] for row in (line.split("\t") for line in answer.output.splitlines())}
    assert rows["STORE_PORT"] == ["9000", "environment"]
    assert rows["STORE_SECRET_KEY"] == ["(set)", "file"]
    assert rows["STORE_HOST"] == ["127.0.0.1", "default"]
    assert "do-not-tell" not in answer.output


def test_problems_are_json_on_request(file: Path) -> None:
    answer = run_command("check", "--json", str(file))
    value = json.loads(answer.stdout)
    assert (answer.exit_code, value["kind"], value["set"]) == (1, "embedded", 0)
    assert value["problems"] == [f"{file}: cannot be read: No such file or directory"]
