"""Clients that foreign programs generate from the definition compile, and take a tour."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ops.local_store import LocalStore, running_store
from tests.engines import openapi_typescript
from tests.engines.versions import OPENAPI_PYTHON_CLIENT_VARIABLE
from tests.real.engines import unless_installed

VERSION = "2026-01-31T235959.000000Z"
TYPESCRIPT_TOUR = Path(__file__).with_name("generated_tour.ts")
PYTHON_TOUR = """
import io, json, sys
from uuid import UUID, uuid4

from generated import AuthenticatedClient, models as m
from generated.api.areas import post_area, put_area_file
from generated.api.bundles import get_bundle, put_bundle
from generated.api.files import put_file
from generated.api.subscriptions import delete_subscription, put_subscription
from generated.types import File

url, token, version = sys.argv[1:]
client = AuthenticatedClient(base_url=f"{url}/v1", token=token)
uuid, aws = uuid4(), m.Replica.AWS


def taken(answer):
    assert not isinstance(answer, m.Problem), answer.to_dict()
    return answer


with client as store:
    taken(post_area.sync(uuid, client=store))
    content = File(io.BytesIO(json.dumps({"organism": "Danio rerio"}).encode()))
    staged = taken(put_area_file.sync(uuid, "sample.json", client=store, body=content))
    source = m.FileBody(source_url=staged.url, creator_uid=7)
    taken(put_file.sync(uuid, client=store, body=source, version=version))
    entry = m.NewFileEntry(uuid=uuid, version=version, name="sample.json", indexed=True)
    files = m.BundleBody(creator_uid=7, files=[entry])
    taken(put_bundle.sync(uuid, client=store, body=files, version=version, replica=aws))
    bundle = taken(get_bundle.sync(uuid, client=store, version=version, replica=aws)).bundle
    refused = get_bundle.sync(UUID(int=0), client=store, replica=aws)
    wanted = m.SubscriptionBody("http://127.0.0.1:9/hook", jmespath_query="event_type == 'CREATE'")
    subscription = taken(put_subscription.sync(client=store, body=wanted, replica=aws))
    taken(delete_subscription.sync(subscription.uuid, client=store, replica=aws))
print(json.dumps({
    "uuid": str(bundle.uuid),
    "version": bundle.version,
    "names": [file.name for file in bundle.files],
    "refused": refused.code,
    "subscribed": subscription.jmespath_query,
}))
"""

IMPORT_ALL = """
import importlib, pkgutil, sys

for package in map(importlib.import_module, sys.argv[1:]):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    (tmp_path / "store").mkdir()
    with running_store(tmp_path / "store", {"STORE_WAIT_S": "30"}) as found:
        yield found


def run(folder: Path, *command: str | Path) -> str:
    """What a program prints that goes well, warnings too."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, f"{command[0]}\n{done.stdout}"
    return done.stdout


def by_python(store: LocalStore, folder: Path) -> dict[str, Any]:
    """Generate packages of both services, import all of them, and run the tour."""
    generator = Path(os.environ[OPENAPI_PYTHON_CLIENT_VARIABLE])
    python = generator.resolve().with_name("python")
    told = run(
        folder,
        *(generator, "generate", "--url", f"{store.api}/openapi.json"),
        *("--meta", "none", "--output-path", "generated"),
    )
    # It has no type for the bytes of an archive, and leaves only that answer out.
    assert told.count("WARNING parsing") == 1, told
    assert "GET /bundles/{uuid}/archive" in told
    (folder / "tour.py").write_text(PYTHON_TOUR, encoding="utf-8")
    told = run(
        folder,
        *(generator, "generate", "--url", f"{store.auth}/swagger.json"),
        *("--meta", "none", "--output-path", "generated_auth"),
    )
    assert "WARNING" not in told, told
    run(folder, python, "-c", IMPORT_ALL, "generated", "generated_auth")
    answer: dict[str, Any] = json.loads(
        run(folder, python, "tour.py", store.api, store.token, VERSION)
    )
    return answer


def by_typescript(store: LocalStore, folder: Path) -> dict[str, Any]:
    """Generate types, compile the tour against them strictly, and run it."""
    packages = Path(os.environ[openapi_typescript.VARIABLE])
    (folder / "node_modules").symlink_to(packages / "node_modules")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    programs = folder / "node_modules" / ".bin"
    run(
        folder,
        *(programs / "openapi-typescript", f"{store.api}/openapi.json", "-o", "store.d.ts"),
        # A member of a body that has a default may be left out.
        "--default-non-nullable=false",
    )
    shutil.copy(TYPESCRIPT_TOUR, folder / "tour.ts")
    run(
        folder,
        *(programs / "tsc", "--strict", "--target", "es2022", "--module", "nodenext"),
        *("--skipLibCheck", "false", "tour.ts"),
    )
    answer: dict[str, Any] = json.loads(run(folder, "node", "tour.js", store.api, store.token))
    return answer


@pytest.mark.spec("DEF-09")
@pytest.mark.parametrize(
    "tour",
    [
        pytest.param(by_python, marks=unless_installed(OPENAPI_PYTHON_CLIENT_VARIABLE)),
        pytest.param(by_typescript, marks=unless_installed(openapi_typescript.VARIABLE)),
    ],
    ids=["openapi-python-client", "openapi-typescript"],
)
def test_generated_client_takes_a_tour(store: LocalStore, tour: Any, tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    told = tour(store, tmp_path / "client")
    UUID(told.pop("uuid"))
    assert told == {
        "version": VERSION,
        "names": ["sample.json"],
        "refused": "not_found",
        "subscribed": "event_type == 'CREATE'",
    }
