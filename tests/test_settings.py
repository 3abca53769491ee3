"""Every setting has an effect, and an invalid value stops the start."""

import ast
import json
import re
import typing
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from config import Settings, SettingsError, load_settings
from config.loading import read_all_settings
from config.parsing import ProviderSettings
from storage.connect import connect

pytestmark = pytest.mark.spec("OPS-07")

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("config", "storage", "pipelines", "auth", "workers", "api", "web", "ops")


def read_names() -> set[str]:
    """Names of all attributes that the code reads of settings, whatever it calls them."""
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    pages = (path.read_text() for path in (ROOT / "web" / "templates").glob("*.html"))
    in_pages = {name for text in pages for name in re.findall(r"\bsettings\.(\w+)", text)}
    return in_pages | {name for path in sources for name in names_in(path)}


def names_in(path: Path) -> Iterator[str]:
    own = {"self"} if path == ROOT / "config" / "settings.py" else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            holder = ast.unparse(node.value).rpartition(".")[2]
            if holder.lstrip("_") in {"settings", "rights", *own}:
                yield node.attr


def test_every_setting_is_read() -> None:
    # One that nothing reads would mislead its operator. Buckets are read by the name of their replica.
    settings = {item.name for item in fields(Settings) if not item.name.startswith("replica_")}
    assert settings - read_names() == set()


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("STORE_SEARCH_URL", "ftp://127.0.0.1:9200"),
        ("STORE_AREAS_URL", "ftp://store"),
        ("STORE_CHECKOUT_AWS", "file://elsewhere/store"),
        ("STORE_REPLICA_AWS", "ftp://store"),
        ("STORE_REPLICA_GCP", "file://elsewhere/store"),
    ],
)
def test_an_engine_that_is_not_there_stops_the_start(tmp_path: Path, name: str, url: str) -> None:
    given = {"STORE_HOME": str(tmp_path), "STORE_SECRET_KEY": "x" * 32}
    with pytest.raises(SettingsError, match=r"must (be|not name)"):
        connect(load_settings({**given, name: url}))


def test_a_base_url_may_end_in_a_slash() -> None:
    settings = load_settings(
        {"STORE_EXTERNAL_URL": "https://a.example/s/", "STORE_AUTH_EXTERNAL_URL": "https://b/"}
    )
    assert (settings.external_url, settings.auth_url) == ("https://a.example/s", "https://b")


def test_worker_has_a_cloud_connection_per_copy_by_default() -> None:
    assert Settings(worker_threads=4, copy_parallel=5).cloud_pool == 20
    assert Settings(cloud_connections=7).cloud_pool == 7


@pytest.mark.spec("BUN-29", "SUB-23", "CON-14", "OPS-19")
def test_defaults_match_specification() -> None:
    default = Settings()
    assert (default.wait_s, default.pending_wait_s) == (10, 15)
    assert default.checkout_keep_days == 14
    assert default.subscriptions_per_user == 100
    assert default.disable_after_s == 7 * 86_400
    assert (default.max_claims, default.sequencer_s) == (5, 0.05)
    assert default.port == 8000
    assert default.home.name == ".store-home"
    assert default.checksum_prefixes == ("store-",)
    assert default.authorized_domains == default.checkout_destinations == default.cors_origins == ()
    assert default.rate_per_minute == default.rate_anonymous_per_minute == 0
    assert default.direct_file_urls is default.read_only is False


@pytest.mark.spec("SUB-03")
@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("store.example", False),
        ("localhost.example", False),
    ],
)
def test_private_callbacks_are_allowed_by_default_on_a_loopback_host_only(
    host: str, allowed: bool
) -> None:
    assert load_settings({"STORE_HOST": host}).allow_private_callbacks is allowed
    for given in (True, False):
        chosen = {"STORE_HOST": host, "STORE_ALLOW_PRIVATE_CALLBACKS": str(given)}
        assert load_settings(chosen).allow_private_callbacks is given


PROVIDER = {"issuer": "https://idp.example", "client_id": "store"}


def test_providers_are_named_with_what_they_need() -> None:
    given = {"idp": {**PROVIDER, "title": "The institute", "domains": ["Example.org"]}}
    secrets = json.dumps({"idp": "s3cret"})
    settings = load_settings(
        {"STORE_PROVIDERS": json.dumps(given), "STORE_PROVIDER_SECRETS": secrets}
    )
    assert settings.providers == {
        "idp": ProviderSettings("https://idp.example", "store", "The institute", ("example.org",))
    }
    assert settings.provider_secrets["idp"] == "s3cret"


@pytest.mark.parametrize(
    "given",
    [
        [],
        {"idp": {}},
        {"idp": "https://idp.example"},
        {"idp": {"issuer": "https://idp.example"}},
        {"local": PROVIDER},
        {"../idp": PROVIDER},
        {"": PROVIDER},
        {"idp": {**PROVIDER, "secret": "x"}},
        {"idp": {**PROVIDER, "client_id": ""}},
        {"idp": {**PROVIDER, "domains": "example.org"}},
        {"idp": {**PROVIDER, "scopes": ["email"]}},
        {"idp": {**PROVIDER, "issuer": "ftp://idp.example"}},
        {"idp": {**PROVIDER, "issuer": "https://idp.example?x=1"}},
        {"idp": {**PROVIDER, "issuer": "https://a:b@idp.example"}},
        {"idp": {**PROVIDER, "issuer": "https://"}},
    ],
)
def test_a_provider_that_cannot_be_one_stops_the_start(given: object) -> None:
    with pytest.raises(SettingsError, match="STORE_PROVIDERS"):
        load_settings({"STORE_PROVIDERS": json.dumps(given)})


def test_settings_named_like_client_settings_are_read() -> None:
    given = {"STORE_CLIENT_WAITS": "3", "STORE_CLIENT_STREAMS": "2", "STORE_CLIENT_PROFILE": "x"}
    settings = load_settings(given)
    assert (settings.client_waits, settings.client_streams) == (3, 2)


@pytest.mark.parametrize(
    "raw",
    [
        "https://a.example, https://b.example",
        '["https://a.example", "https://b.example"]',
        ' [\n"https://a.example","https://b.example"] ',
    ],
)
def test_a_list_is_json_or_has_commas(raw: str) -> None:
    assert load_settings({"STORE_CORS_ORIGINS": raw}).cors_origins == (
        "https://a.example",
        "https://b.example",
    )
    assert load_settings({"STORE_ADMIN_GROUPS": raw}).admin_groups == (
        "https://a.example",
        "https://b.example",
    )


@pytest.mark.parametrize(
    ("name", "raw", "told"),
    [
        ("PORT", "abc", 'must be a whole number (got "abc")'),
        ("PORT", "", 'must be a whole number (got "")'),
        ("PORT", "80.5", 'must be a whole number (got "80.5")'),
        ("TICK_S", "0", "must be between 0.01 and 3600.0 (got 0.0)"),
        ("DELIVERY_THREADS", "0", "must be between 1 and 1000 (got 0)"),
        ("CATALOG_CONNECTIONS", "0", "must be between 1 and 10000 (got 0)"),
        ("CATALOG_OVERFLOW", "-1", "must be between 0 and 10000 (got -1)"),
        ("PORT", "\N{ARABIC-INDIC DIGIT THREE}", "must be a whole number (got"),
        ("PORT", "9" * 5000, "must be a whole number (got"),
        ("WAIT_S", "soon", 'must be a number (got "soon")'),
        ("WAIT_S", "nan", 'must be a number (got "nan")'),
        ("WAIT_S", "1e999", 'must be a number (got "1e999")'),
        ("DELIVERY_DELAYS_S", "1,x", 'must be a number (got "x")'),
        ("READ_ONLY", "maybe", 'must be true or false (got "maybe")'),
        ("HOME", "", "must be a folder (got none)"),
        ("ISSUERS", "https://a", 'must be a JSON object (got "https://a")'),
    ],
)
def test_a_bad_value_is_named_with_what_it_must_be(name: str, raw: str, told: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"STORE_{name}: {told}")):
        load_settings({f"STORE_{name}": raw})


def test_origins_may_have_ports_and_schemes_of_their_own() -> None:
    origins = ("https://a.example:8443", "http://[::1]:443", "http://localhost", "app://store")
    assert load_settings({"STORE_CORS_ORIGINS": ",".join(origins)}).cors_origins == origins


def test_list_settings_accept_json() -> None:
    hints = typing.get_type_hints(Settings)
    lists = {name: hint for name, hint in hints.items() if typing.get_origin(hint) is tuple}
    assert len(lists) > 10
    for name, hint in lists.items():
        items = [60, 0.5] if typing.get_args(hint)[0] is float else ["https://a", "https://b"]
        found = load_settings({f"STORE_{name.upper()}": json.dumps(items)})
        assert getattr(found, name) == tuple(items), name
    assert load_settings({"STORE_ALLOWED_HOSTS": "[::1]:8000,[::1]"}).allowed_hosts == (
        "[::1]:8000",
        "[::1]",
    )
    assert load_settings({"STORE_DELIVERY_DELAYS_S": "0, 60"}).delivery_delays_s == (0, 60)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("CORS_ORIGINS", '["https://a.example"'),
        ("CORS_ORIGINS", "['https://a.example']"),
        ("CORS_ORIGINS", '"https://a.example"'),
        ("CORS_ORIGINS", '{"https://a.example": 1}'),
        ("CORS_ORIGINS", "https://a.example/"),
        ("CORS_ORIGINS", "https://*.example"),
        ("CORS_ORIGINS", "a.example"),
        ("CORS_ORIGINS", "https://A.example"),
        ("CORS_ORIGINS", "https://a.example:443"),
        ("CORS_ORIGINS", "http://a.example:80"),
        ("CORS_ORIGINS", "https://a.example:65536"),
        ("ADMIN_GROUPS", '["a", 1]'),
        ("ADMIN_GROUPS", '["a", ["b"]]'),
        ("DELIVERY_DELAYS_S", '["1"]'),
        ("DELIVERY_DELAYS_S", "[true]"),
    ],
)
def test_a_list_that_means_nothing_is_refused(name: str, raw: str) -> None:
    with pytest.raises(SettingsError, match=f"STORE_{name}: .*(must be|each item)"):
        load_settings({f"STORE_{name}": raw})


@pytest.mark.spec("OPS-45")
@pytest.mark.parametrize("raw", ["-1", "99999999999999999999"])
def test_no_number_is_negative_or_too_large_for_the_catalog(raw: str) -> None:
    hints = typing.get_type_hints(Settings)
    numbers = [item.name for item in fields(Settings) if hints[item.name] in (int, float)]
    given = {f"STORE_{name.upper()}": raw for name in numbers}
    found = read_all_settings(given).problems
    assert {problem.partition(":")[0] for problem in found} == given.keys()
    assert all(re.search(r": must be .*\(got ", problem) for problem in found), found


def test_accepts_0_where_it_has_a_meaning() -> None:
    meanings = {item.name: item.metadata["about"] for item in fields(Settings)}
    names = {name for name, about in meanings.items() if re.search(r"\b0: ", about)}
    assert names > {"login_link_s", "personal_token_s", "rate_per_minute", "disable_after_s"}
    settings = load_settings({f"STORE_{name.upper()}": "0" for name in names})
    assert {name: getattr(settings, name) for name in names} == dict.fromkeys(names, 0)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("SCRUB_BYTES_S", "4294967296", 2**32),
        ("REQUEST_MIN_BYTES_S", "4294967296", 2**32),
        ("CATALOG_URL", "sqlite+pysqlite:////srv/a.db", "sqlite+pysqlite:////srv/a.db"),
        ("SEARCH_URL", "HTTP://search:9200", "HTTP://search:9200"),
    ],
)
def test_accepts_what_the_store_can_use(name: str, raw: str, value: object) -> None:
    assert getattr(load_settings({f"STORE_{name}": raw}), name.lower()) == value


WRONG_DELAYS = "must be a list of delays, each between 0 and 3153600000 seconds"
WRONG_HOST = "must be a URL with a valid host and port"


@pytest.mark.parametrize(
    ("name", "raw", "problem"),
    [
        ("MAX_CLAIMS", "0", "must be at least 1 and below 2^62 (got 0)"),
        ("SEARCH_TIMEOUT_S", "0", "must be between 0.001 and 3153600000 (got 0.0)"),
        ("AREAS_CREDENTIALS_S", "899", "must be between 900 and 43200 (got 899)"),
        ("DELIVERY_KEEP_DAYS", "36501", "must be between 0 and 36500 (got 36501)"),
        *(("DELIVERY_DELAYS_S", raw, WRONG_DELAYS) for raw in ("", "0,-1", "0,1e300")),
        ("REPLICA_AWS", "S3://b", "must be a URL that begins with file:///, s3:// or gs://"),
        ("AREAS_URL", "FILE:///srv", "must be a URL that begins with file:///, s3:// or gs://"),
        ("REPLICA_AWS", "s3://[b", WRONG_HOST),
        ("SEARCH_URL", "http://[b", WRONG_HOST),
        ("REDIS_URL", "redis://queue:99999", WRONG_HOST),
        ("EXTERNAL_URL", "store.example", "must be a URL that begins with https:// or http://"),
        ("AUTH_EXTERNAL_URL", "https://", "must be a URL that begins with https:// or http://"),
        ("REPLICA_AWS", "bucket", "must be a URL that begins with file:///, s3:// or gs://"),
        ("BACKUP_TARGET", "/srv", "must be a URL that begins with file:///, s3:// or gs://"),
        (
            "CATALOG_URL",
            "postgresql://store:hidden@db/store",
            "must be a URL that begins with postgresql+psycopg://, sqlite:/// or"
            " sqlite+pysqlite:///",
        ),
    ],
)
def test_names_the_setting_and_what_it_can_be(name: str, raw: str, problem: str) -> None:
    assert read_all_settings({f"STORE_{name}": raw}).problems == [f"STORE_{name}: {problem}"]


def test_suggests_the_variable_that_was_meant() -> None:
    found = read_all_settings({"STORE_PRT": "1", "STORE_XYZZY": "1"}).problems
    assert found == [
        "unknown setting STORE_PRT; did you mean STORE_PORT?",
        "unknown setting STORE_XYZZY",
    ]
