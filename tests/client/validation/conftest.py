"""A store that requires metadata to satisfy a schema."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config import Settings
from storage.metadata_schemas import open_metadata_schemas
from storage.stores import Stores
from tests.client.conftest import Served, served
from tests.conftest import Outbox

SCHEMA = {"required": ["organism"], "properties": {"organism": {"type": "string"}}}


@pytest.fixture
def strict(
    settings: Settings, stores: Stores, job_queue: Outbox, drain: Callable[[], int], tmp_path: Path
) -> Iterator[Served]:
    """A store whose setting has a schema for *.json."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "sample.json").write_text(json.dumps(SCHEMA))
    (folder / "patterns.json").write_text(json.dumps({"*.json": "sample.json"}))
    changed = replace(stores, metadata_schemas=open_metadata_schemas(str(folder / "patterns.json")))
    with served(settings, changed, job_queue, drain) as made:
        yield made
