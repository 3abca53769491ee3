"""What the image contains, and a demonstration against containers of all processes."""

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from ops import demo, ports
from ops.local_store import LocalStore
from ops.procfile import ROOT, read_procfile
from tests.engines.platforms import VARIABLE as PLATFORMS
from tests.engines.podman import VARIABLE
from tests.image import containers
from tests.image.containers import IMAGE, Podman
from tests.real import engines

pytestmark = pytest.mark.skipif(
    VARIABLE not in os.environ, reason="make test-image names Podman and the engines"
)
PROCESSES = {line.name: line.command for line in read_procfile()}
REQUIREMENTS = ROOT / "requirements.txt"
SECRET = "0123456789abcdef-test"
READY_S = 60.0
FIND = ("find", "/", "-xdev")
LAYERS = ("api", "auth", "client", "config", "deploy", "ops", "pipelines", "storage", "web")


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with containers.built_image() as built:
        yield built


@dataclass(frozen=True)
class ContainerStore(LocalStore):
    """A store whose processes are containers."""

    podman: Podman

    def run_command(self, *words: str, stdin: str = "") -> str:
        """Run an operator's command in the container of the API."""
        return self.podman.read(
            "exec", "--interactive", "api", "python", "-m", "ops", *words, stdin=stdin
        )


def look(podman: Podman, *command: str) -> list[str]:
    """The lines that a command prints in a container of the image, as root with all its files."""
    limits = [
        word
        for word in containers.run_options(containers.read_services()["clock"], {})
        if word.startswith("--ulimit")
    ]
    plain = ("--rm", "--network", "host", "--user", "0:0", *limits)
    return podman.read("run", *plain, IMAGE, *command).splitlines()


def test_image_runs_as_unprivileged_user(podman: Podman) -> None:
    config = podman.inspect(IMAGE)["Config"]
    assert config["User"] == "10001:10001"
    assert config["WorkingDir"] == "/srv/store"


def test_no_program_has_rights_of_its_owner(podman: Podman) -> None:
    assert look(podman, *FIND, "-type", "f", "-perm", "/6000") == []


def test_user_owns_its_home_only(podman: Podman) -> None:
    owned = look(podman, *FIND, "-user", "10001")
    assert owned == ["/var/lib/store", "/var/lib/store/secrets"]
    others = (
        "-perm",
        "-o=w",
        "-not",
        "-type",
        "l",
        "-not",
        "-path",
        "/dev/*",
        "-not",
        "-path",
        "/proc/*",
    )
    assert {*look(podman, *FIND, *others)} <= {"/tmp", "/var/tmp", "/run/lock"}


def test_nothing_that_installs_is_left(podman: Podman) -> None:
    names = " -o ".join(f"-name {name}" for name in ("pip", "pip*.whl", "setuptools", "ensurepip"))
    assert look(podman, *FIND, *names.split()) == []


def test_code_is_that_of_the_layers_and_compiled(podman: Podman) -> None:
    found = {
        Path(line).name
        for line in look(podman, "find", "/srv/store", "-mindepth", "1", "-maxdepth", "1")
    }
    assert found == {*LAYERS, "workers", "Procfile", "requirements.txt"}
    assert look(podman, "find", "/srv/store/workers/__pycache__", "-name", "claims.*.pyc")


def test_libraries_are_compiled(podman: Podman) -> None:
    modules = "google_crc32c, re2, psycopg, orjson, msgspec, obstore, jsonschema_rs, argon2"
    assert look(
        podman, "python", "-W", "error", "-c", f"import {modules}; print(psycopg.pq.__impl__)"
    ) == ["binary"]


def test_layers_have_no_secrets(podman: Podman) -> None:
    history = podman.read("history", "--no-trunc", "--format", "json", IMAGE)
    described = json.dumps(podman.inspect(IMAGE)) + history
    assert "COPY" in history
    for name, value in os.environ.items():
        if ("SECRET" in name or "TOKEN" in name or "PASSWORD" in name) and len(value) > 7:
            assert value not in described, name
    assert "STORE_SECRET_KEY" not in described
    keys = (
        "-name",
        "*.key",
        "-o",
        "-name",
        ".env",
        "-o",
        "-name",
        "*.token",
        "-o",
        "-name",
        "signing-keys.json",
    )
    assert look(podman, "find", "/srv/store", "/opt/store", "/var/lib/store", *keys) == []


def test_sbom_names_every_pinned_library_and_the_system(podman: Podman) -> None:
    text = "\n".join(look(podman, "python", "-m", "deploy.sbom"))
    sbom = json.loads(text)
    schema, registry = read_cyclonedx_schema(sbom["specVersion"])
    jsonschema_rs.validator_for(schema, registry=registry).validate(sbom)
    found = {(one["name"], one["version"]) for one in sbom["components"]}
    pinned = re.findall(r"^([a-z0-9.-]+)==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    assert len(pinned) > 50
    assert {*pinned} <= found
    system = {one["name"]: one["purl"] for one in sbom["components"] if ":deb/" in one["purl"]}
    assert "distro=debian-12" in system["libc6"]
    assert "upstream=openssl" in system["libssl3"]
    assert len(system) == len(look(podman, "find", "/var/lib/dpkg/info", "-name", "*.list"))
    references = [one["bom-ref"] for one in sbom["components"]]
    assert len(references) == len({*references})


def read_cyclonedx_schema(version: str) -> tuple[dict[str, Any], jsonschema_rs.Registry]:
    """The published schema of CycloneDX, and those that it refers to, of its Python library."""
    (folder,) = Path(os.environ[PLATFORMS]).parent.glob("lib/*/site-packages/cyclonedx/schema/_res")
    schemas = {
        # They refer to each other by the names of their files.
        f"http://cyclonedx.org/schema/{path.name}": json.loads(path.read_text())
        for path in folder.glob("*.SNAPSHOT.schema.json")
    }
    wanted = schemas[f"http://cyclonedx.org/schema/bom-{version}.SNAPSHOT.schema.json"]
    return wanted, jsonschema_rs.Registry([*schemas.items()])


@pytest.fixture(scope="module")
def store(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerStore]:
    """All processes of the Procfile in containers, on the real engines."""
    began = time.monotonic()
    port = ports.find_free_port_pair()
    with engines.settings(gcp=engines.s3_bucket()) as settings:
        environ = {
            **settings,
            **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
            "STORE_DEPLOYMENT": "image.example",
            "STORE_HOME": "/var/lib/store",
            "STORE_PORT": str(port),
            "STORE_SECRET_KEY": SECRET,
            # The tour's receiver of callbacks is on loopback.
            "STORE_ALLOW_PRIVATE_CALLBACKS": "true",
        }
        containers.start(podman, "migrate", environ)
        assert podman.read("wait", "migrate").strip() == "0", podman.run("logs", "migrate").stderr
        for name in PROCESSES:
            containers.start(podman, name, environ)
        api, auth = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        for url in (api, auth):
            wait_until_healthy(podman, url)
        token = podman.read(
            "exec",
            "api",
            "python",
            "-m",
            "ops",
            "token",
            "--email",
            "root@example.org",
            "--groups",
            "store_admin",
        ).strip()
        took_s = time.monotonic() - began
        home = tmp_path_factory.mktemp("home")
        yield ContainerStore(home, api, auth, token, took_s, environ, os.getpid(), podman)


def wait_until_healthy(podman: Podman, url: str) -> None:
    """Wait until a service answers that it is healthy."""
    deadline, said = time.monotonic() + READY_S, ""
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"{url}/health", timeout=10, trust_env=False)
            if answer.status_code == 200:
                return
            said = answer.text
        except httpx.TransportError as error:
            said = str(error)
        time.sleep(0.2)
    logs = {name: podman.run("logs", "--tail", "20", name).stderr for name in PROCESSES}
    raise AssertionError((said, logs))


def test_demonstration_holds_against_containers(store: ContainerStore, tmp_path: Path) -> None:
    demo.write_bundles(tmp_path, None, None)
    assert demo.run_tour(store, tmp_path)


def test_processes_have_no_privileges(store: ContainerStore) -> None:
    for name, command in PROCESSES.items():
        status = store.podman.read("exec", name, "cat", "/proc/1/status")
        fields = {line.partition(":")[0]: line.split()[1:] for line in status.splitlines()}
        assert fields["Uid"] == ["10001"] * 4
        assert {fields[f"Cap{kind}"][0] for kind in ("Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert fields["NoNewPrivs"] == ["1"]
        assert fields["Seccomp"] == ["2"]
        words = store.podman.read("exec", name, "cat", "/proc/1/cmdline")
        assert command[-1] in words.split("\0")
        assert "ro" in root_options(store.podman.read("exec", name, "cat", "/proc/1/mounts"))


def root_options(mounts: str) -> list[str]:
    """How the root is mounted."""
    (root,) = (line.split() for line in mounts.splitlines() if line.split()[1] == "/")
    return root[3].split(",")


def test_processes_stop_in_time_and_miss_no_writable_folder(store: ContainerStore) -> None:
    services = containers.read_services()
    for name in PROCESSES:
        began = time.monotonic()
        store.podman.read("stop", "--time", str(containers.grace_s(services[name])), name)
        assert time.monotonic() - began < containers.grace_s(services[name])
        state = store.podman.inspect(name)["State"]
        assert state["ExitCode"] == 0, (name, state)
        logs = store.podman.run("logs", name)
        assert "Read-only file system" not in logs.stdout + logs.stderr
        assert SECRET not in logs.stdout + logs.stderr
