"""A process imports only the engines that its settings name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage.catalog import Catalog, migrate

ROOT = Path(__file__).resolve().parents[2]

ENGINES = {
    *("boto3", "botocore", "obstore", "google", "opensearchpy", "psycopg", "smtplib", "requests"),
    *("alembic", "fakeredis", "hypothesis", "pytest", "rich"),
    "redis",
}
"""What a store on folders and SQLite has no use for."""

CONNECT = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from config import load_settings
from storage import engines
from storage.connect import connect
engines.migrate_catalog(connect(load_settings(os.environ)).catalog)
print(*sys.modules)
"""


def packages(home: Path, *modules: str, **settings: str) -> set[str]:
    """The packages that a new process has imported with these modules, once its stores are open."""
    inherited = {key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")}
    given = {"STORE_HOME": str(home), "STORE_SECRET_KEY": "x" * 32, **settings}
    done = subprocess.run(
        (sys.executable, "-c", CONNECT, *modules),
        cwd=ROOT,
        env={**inherited, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.fixture(autouse=True)
def migrated(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path}/catalog.sqlite")
    migrate.upgrade(catalog)
    catalog.close()


def test_embedded_store_imports_no_engine(tmp_path: Path) -> None:
    assert packages(tmp_path, "workers.embedded", "api.app") & ENGINES == set()


def test_http_master_does_not_import_the_application() -> None:
    done = subprocess.run(
        (sys.executable, "-c", "import sys, api.http.server; print(*sys.modules)"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"sqlalchemy", "marshmallow", "cryptography", "prometheus_client", "pipelines", "auth"}
    assert heavy & set(done.stdout.split()) == set()


def test_imports_only_the_engines_that_settings_name(tmp_path: Path) -> None:
    url = "s3://bucket?endpoint=http://127.0.0.1:9"
    found = packages(tmp_path, STORE_REPLICA_AWS=url, STORE_SMTP_HOST="127.0.0.1")
    assert found & ENGINES >= {"boto3", "smtplib"}
    assert found & {"google", "opensearchpy", "alembic"} == set()
