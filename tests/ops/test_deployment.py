"""compose.yaml, Procfile, settings and image agree."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import yaml

from api.app import open_decision_point
from auth.remote import RemoteDecisionPoint
from config import Settings, load_settings
from config.settings import PREFIX
from deploy import buckets
from ops import procfile
from ops.mirrors import mirror
from storage.catalog import Catalog
from storage.model import MIN_SECRET_LENGTH
from tests.auth.misbehaving_services import credentials_file
from tests.storage.blobs.backend_s3 import SIMULATED, admin
from tests.storage.blobs.s3_server import lasting_s3
from tests.test_architecture import CLIENT, MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]
OURS = {line.name: line.command for line in procfile.read_procfile()}
ONCE = {"migrate", "buckets"}
OPTIONAL = {"mirror"}
SAID = {
    "STORE_DEPLOYMENT": "store.example",
    "STORE_EXTERNAL_URL": "https://store.example",
    "STORE_AUTH_EXTERNAL_URL": "https://auth.store.example",
    "STORE_SECRET_KEY": "0123456789abcdef",
    "POSTGRES_PASSWORD": "aa",
    "REDIS_PASSWORD": "bb",
}
CLOUD = {
    "STORE_REPLICA_AWS": "s3://bucket?region=eu-central-1",
    "STORE_REPLICA_GCP": "gs://bucket",
    "STORE_AREAS_URL": "s3://areas?region=eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "GOOGLE_CREDENTIALS_FILE": "google.json",
}
ELSEWHERE = {
    "STORE_POLICIES_URL": "https://inside.example",
    "POLICIES_CREDENTIALS_FILE": "store-2.json",
}
DOCUMENTED = {f"{PREFIX}{item.name.upper()}" for item in fields(Settings)}
NOT_HERE = {"STORE_POLICIES_URL", "STORE_POLICIES_CREDENTIALS", "STORE_POLICIES_CHECK_MS"}
"""Settings that compose.apart.yaml gives to the API."""
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<rest>[^}]*))?\}")
Part = Mapping[str, Any]


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


COMPOSE, OVERRIDE = read("compose.yaml"), read("compose.cloud.yaml")
APART = read("compose.apart.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
RUN_US = {name: SERVICES[name] for name in (*OURS, *ONCE, *OPTIONAL)}
services = pytest.mark.parametrize("name", SERVICES)


def filled(text: str, said: Mapping[str, str]) -> str:
    """What Compose makes of a value; KeyError for what has to be said and is not."""
    return VARIABLE.sub(
        lambda found: (
            said.get(found["name"], found["rest"]) if found["how"] == "-" else said[found["name"]]
        ),
        text,
    )


def environ(service: Part, said: Mapping[str, str]) -> dict[str, str]:
    """What has no value is given as it was said, or not at all."""
    given = {name: value for name, value in service["environment"].items() if value is not None}
    passed = {name: said[name] for name in service["environment"].keys() & said.keys() - given}
    return {name: filled(value, said) for name, value in given.items()} | passed


def test_a_service_is_there_for_each_process_with_its_very_command() -> None:
    built = {name: tuple(part["command"]) for name, part in SERVICES.items() if "build" in part}
    assert {name: built[name] for name in built.keys() - ONCE - OPTIONAL} == OURS


def test_one_time_services_run_first_and_end() -> None:
    assert {name: SERVICES[name]["restart"] for name in ONCE} == dict.fromkeys(ONCE, "on-failure")
    before = {name: set(SERVICES[name]["depends_on"]) for name in OURS}
    assert before == dict.fromkeys(OURS, ONCE) | {"auth": {"migrate"}}


@pytest.mark.parametrize("name", sorted(RUN_US))
def test_compose_settings_are_valid(name: str) -> None:
    settings = load_settings(environ(RUN_US[name], SAID))
    assert isinstance(settings, Settings)
    assert not settings.allow_private_callbacks
    # What stands in a folder of one container is in no other.
    embedded = [settings.bucket(replica) for replica in ("aws", "gcp")]
    embedded += [settings.areas_url, settings.catalog, settings.search_url]
    assert [url for url in embedded if url.partition(":")[0] in ("", "file", "sqlite")] == []


@pytest.mark.parametrize("name", sorted(OVERRIDE["services"].keys() & RUN_US.keys()))
def test_cloud_compose_settings_are_valid(name: str) -> None:
    both = {**RUN_US[name]["environment"], **OVERRIDE["services"][name]["environment"]}
    settings = load_settings(environ({"environment": both}, SAID | CLOUD))
    assert [settings.bucket(replica) for replica in ("aws", "gcp")] == [
        CLOUD["STORE_REPLICA_AWS"],
        CLOUD["STORE_REPLICA_GCP"],
    ]


@pytest.mark.parametrize("name", sorted(RUN_US))
def test_every_documented_setting_reaches_the_processes(name: str) -> None:
    passed = RUN_US[name]["environment"].keys()
    only_for_auth = {"STORE_PROVIDER_SECRETS"} if name != "auth" else set()
    assert DOCUMENTED - passed == NOT_HERE | only_for_auth
    said = {
        "STORE_TRACES_URL": "http://127.0.0.1:4318/v1/traces",
        "STORE_WEB_NAME": "Atlas",
        "STORE_DATA_LICENSE": "CC BY 4.0",
        "STORE_WORKER_THREADS": "4",
    }
    settings = load_settings(environ(RUN_US[name], SAID | said))
    assert settings.traces_url == said["STORE_TRACES_URL"]
    assert (settings.web_name, settings.data_license) == ("Atlas", "CC BY 4.0")
    assert settings.worker_threads == 4


def test_processes_with_buckets_have_cloud_settings() -> None:
    assert OVERRIDE["services"].keys() >= RUN_US.keys() - {"auth"}


def apart() -> Settings:
    both = {**RUN_US["api"]["environment"], **APART["services"]["api"]["environment"]}
    return load_settings(environ({"environment": both}, SAID | ELSEWHERE))


def test_store_apart_uses_named_authorization_service(catalog: Catalog, tmp_path: Path) -> None:
    settings = apart()
    held_here = replace(settings, policies_credentials=str(credentials_file(tmp_path)))
    assert isinstance(open_decision_point(held_here, catalog), RemoteDecisionPoint)
    assert settings.issuers == {
        SAID["STORE_AUTH_EXTERNAL_URL"]: "https://inside.example/.well-known/jwks.json"
    }
    (held,) = APART["services"]["api"]["secrets"]
    assert settings.policies_credentials == f"/run/secrets/{held}"
    assert APART["secrets"].keys() == {held}


def test_a_store_apart_starts_no_service_of_its_own() -> None:
    assert APART["services"].keys() == {"api", "auth"}
    assert APART["services"]["auth"] == {"profiles": ["own-authorization"]}


def test_identity_settings_reach_authorization_service() -> None:
    providers = '{"institute": {"issuer": "https://idp.example.org", "client_id": "store"}}'
    said = {"STORE_PROVIDERS": providers, "STORE_ADMINISTRATORS": "root@example.org"}
    settings = load_settings(environ(RUN_US["auth"], SAID | said))
    assert settings.administrators == ("root@example.org",)
    assert list(settings.providers) == ["institute"]
    assert (
        load_settings(environ(RUN_US["api"], SAID | said)).administrators == settings.administrators
    )


@pytest.mark.spec("OPS-69")
def test_mirror_runs_on_request_and_reads_its_token_from_a_file() -> None:
    service, url = SERVICES["mirror"], "https://other.example"
    said = SAID | {"STORE_MIRROR_OF": url}
    assert service["profiles"] == ["mirror"]
    program, *words = [filled(word, said) for word in service["command"]]
    (secret,) = service["secrets"]
    assert (program, words[:2]) == ("python", ["-m", "ops"])
    check_mirror_command(words[2:], url, f"/run/secrets/{secret}")
    assert load_settings(environ(service, said)).mirror_of == url
    assert filled(COMPOSE["secrets"][secret]["file"], {}) == "/dev/null"


@pytest.mark.spec("OPS-69")
def test_unit_of_a_mirror_reads_its_token_from_a_credential() -> None:
    text = (ROOT / "deploy" / "store-mirror.conf").read_text(encoding="utf-8")
    before, command = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    (credential,) = re.findall(r"^LoadCredential=([\w-]+):/etc/store/[\w-]+$", text, re.MULTILINE)
    # The line of the Procfile, which has none of this name, is taken away first.
    assert before == ""
    spoken = re.fullmatch(r"/bin/sh -c '(.*)'", command)
    assert spoken
    script = spoken[1].replace("$$", "$").replace("exec", "printf '%s\n'", 1)
    url = "https://other.example"
    told = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"STORE_MIRROR_OF": url, "CREDENTIALS_DIRECTORY": "/credentials"},
        capture_output=True,
        check=True,
    )
    program, *words = told.stdout.decode().splitlines()
    assert (program, words[:2]) == ("python", ["-m", "ops"])
    check_mirror_command(words[2:], url, f"/credentials/{credential}")


def check_mirror_command(words: list[str], url: str, token_file: str) -> None:
    """Check that the command line follows a store, with the token of a file."""
    with mirror.make_context("mirror", words[1:], resilient_parsing=True) as context:
        given = context.params
    assert words == ["mirror", url, "--token-file", token_file, "--follow"]
    assert (given["url"], given["follow"]) == (url, True)


@pytest.mark.parametrize("missing", sorted(SAID))
def test_secrets_and_addresses_have_no_default(missing: str) -> None:
    said = {name: value for name, value in SAID.items() if name != missing}
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    with pytest.raises(KeyError, match=missing):
        filled(text, said)


def test_example_names_required_values_without_secrets() -> None:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    pairs = [line.lstrip("#").partition("=") for line in lines if re.match(r"#?[A-Z0-9_]+=", line)]
    named = {name: value for name, _, value in pairs}
    asked = {
        found["name"]
        for page in ("compose.yaml", "compose.cloud.yaml", "compose.apart.yaml")
        for found in VARIABLE.finditer((ROOT / page).read_text(encoding="utf-8"))
    }
    optional = {"STORE_CHECKOUT_AWS", "STORE_CHECKOUT_GCP", "OPENSEARCH_WITHOUT_ACCOUNTS"}
    assert asked - optional <= named.keys() <= asked | DOCUMENTED
    assert {
        name for name in named if re.search("SECRET|PASSWORD|KEY", name) and named[name]
    } == set()
    assert len(SAID["STORE_SECRET_KEY"]) >= MIN_SECRET_LENGTH


def test_example_of_a_backup_names_its_server() -> None:
    """Without `endpoint`, the server of the replica is asked (AWS_ENDPOINT_URL_S3)."""
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    (target,) = re.findall(r"^#STORE_BACKUP_TARGET=(.+)$", text, re.MULTILINE)
    assert SERVICES["clock"]["environment"]["AWS_ENDPOINT_URL_S3"] == "http://s3-aws:7070"
    assert "endpoint=" in target
    assert load_settings(environ(SERVICES["clock"], SAID | {"STORE_BACKUP_TARGET": target}))


def test_list_of_parts_needs_an_engine_that_runs_images() -> None:
    words = ("make", "--silent", "sbom", "ENGINE=/usr/bin/buildah")
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "docker or podman is needed" in told.stderr


def test_docs_name_what_cannot_be_set() -> None:
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"except what `compose.yaml` fixes: (.*)\n", text)
    given = SERVICES["api"]["environment"].items()
    fixed = {name for name, value in given if value and f"${{{name}" not in value}
    words = {"PORT": "ports", "HOME": "home", "URL": "engines", "AWS": "engines", "GCP": "engines"}
    for name in fixed & DOCUMENTED:
        assert words.get(name.rpartition("_")[2], name) in named, name


@services
def test_every_image_has_an_exact_version(name: str) -> None:
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?[\w.-]*", SERVICES[name]["image"])


def test_image_and_base_images_have_exact_versions() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {part["image"] for part in RUN_US.values()} == {f"consortium-store:{version}"}
    text = (ROOT / "Dockerfile").read_text()
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm", base)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}"]


@services
def test_no_part_has_a_path_of_the_machine(name: str) -> None:
    sources = [mount.partition(":")[0] for mount in SERVICES[name].get("volumes", ())]
    assert set(sources) <= COMPOSE["volumes"].keys()


@services
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    assert [p for p in SERVICES[name].get("ports", ()) if not p.startswith("127.0.0.1:")] == []


@services
def test_services_bound_their_logs_and_restart(name: str) -> None:
    assert SERVICES[name]["logging"]["options"]["max-size"]
    assert SERVICES[name]["restart"] in {"unless-stopped", "on-failure"}


def test_processes_of_ours_have_no_rights_but_to_run() -> None:
    for part in RUN_US.values():
        assert part["read_only"]
        assert part["cap_drop"] == ["ALL"]
        assert part["user"] == "10001:10001"


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_process_is_checked_without_its_engines(name: str) -> None:
    program, *words = SERVICES[name]["healthcheck"]["test"]
    assert program == "CMD"
    command = OURS[name]
    if command[:3] == ("python", "-m", "workers"):
        assert words == ["python", "-m", "ops", "probe", *command[3:]]
    else:
        port = load_settings(environ(SERVICES[name], SAID)).port + (name == "auth")
        assert f"http://127.0.0.1:{port}/livez" in words[-1]


@pytest.mark.spec("OPS-02")
def test_prometheus_scrapes_every_process() -> None:
    (job,) = read("deploy/prometheus.compose.yml")["scrape_configs"]
    scraped = {name: found["port"] for found in job["dns_sd_configs"] for name in found["names"]}
    settings = {name: load_settings(environ(SERVICES[name], SAID)) for name in {*OURS, *OPTIONAL}}
    assert scraped == {
        name: one.ops_port if name == "api" else one.metrics_port for name, one in settings.items()
    }
    assert all(scraped.values())


def test_only_token_services_have_signing_keys() -> None:
    holders = {
        name
        for name, part in SERVICES.items()
        if any("identity" in v for v in part.get("volumes", ()))
    }
    assert holders == {"api", "auth"}


def test_api_has_time_to_finish_waiting_requests() -> None:
    grace_s = int(SERVICES["api"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > load_settings(environ(SERVICES["api"], SAID)).wait_cap_s + 5


def test_image_has_every_layer_and_no_test_packages() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert let_in == {*MAY_IMPORT, "deploy", "Procfile", "requirements.txt", "client"} - {CLIENT}


@pytest.mark.parametrize("name", OURS)
def test_a_unit_runs_the_line_that_has_its_name(name: str) -> None:
    unit = (ROOT / "deploy" / "store@.service").read_text(encoding="utf-8")
    command = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", unit, re.MULTILINE)
    assert command
    # Printed where it would be run, after what systemd does to it.
    spoken = command[1].replace("$$", "$").replace("%i", name).replace("exec", "printf '%s\\n'", 1)
    told = subprocess.run(["/bin/sh", "-c", spoken], cwd=ROOT, capture_output=True, check=True)
    assert tuple(told.stdout.decode().splitlines()) == OURS[name]


# Buckets -----------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an S3 server, and who may make buckets there."""
    for name, value in SIMULATED.items():
        monkeypatch.setenv(name, value)
    return lasting_s3()


@pytest.fixture
def named(server: str) -> dict[str, str]:
    """Settings with buckets that are not there yet, and one in a cloud."""
    aws, areas = (f"s3://store-{uuid4()}?endpoint={server}" for _ in range(2))
    return {
        "STORE_REPLICA_AWS": aws,
        "STORE_REPLICA_GCP": "gs://elsewhere",
        "STORE_AREAS_URL": areas,
    }


def settled(named: Mapping[str, str]) -> list[str]:
    said: list[str] = []
    buckets.main(named, said.append)
    return said


def name_of(url: str) -> str:
    return urlsplit(url).netloc


def test_replica_buckets_are_versioned(server: str, named: dict[str, str]) -> None:
    said = settled(named)
    assert [line.rpartition(": ")[2] for line in said] == ["made", "left as it is", "made"]
    s3 = admin(server)
    replica, areas = (name_of(named[name]) for name in ("STORE_REPLICA_AWS", "STORE_AREAS_URL"))
    assert s3.get_bucket_versioning(Bucket=replica)["Status"] == "Enabled"
    assert "Status" not in s3.get_bucket_versioning(Bucket=areas)
    for bucket in (replica, areas):
        (rule,) = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 14}


def test_settling_again_changes_nothing_that_an_operator_wrote(
    server: str, named: dict[str, str]
) -> None:
    settled(named)
    s3, bucket = admin(server), name_of(named["STORE_REPLICA_AWS"])
    rule = {
        "ID": "mine",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
    }
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    settled(named)
    (kept,) = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert kept["ID"] == "mine"


def test_shared_bucket_is_configured_once(server: str) -> None:
    url = f"s3://store-{uuid4()}?endpoint={server}"
    said = settled({"STORE_REPLICA_AWS": url, "STORE_CHECKOUT_AWS": url, "STORE_REPLICA_GCP": url})
    assert len(said) == 1
