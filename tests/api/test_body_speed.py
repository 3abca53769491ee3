"""A body of 20,000 entries is parsed and validated in a fraction of a second."""

import time

import orjson
import pytest

from api.http.loading import load_body
from api.schemas.bundles import BundleBody, decode_bundle
from api.schemas.fields import request_schema
from storage import json_codec
from storage.errors import Invalid
from tests.api.builders import VERSION, uuid_of

pytestmark = pytest.mark.spec("BUN-30")

ENTRIES = 20_000
BOUND_S = 0.08
"""Measured: about a third of it on a 2-core machine that does nothing else."""


def body() -> bytes:
    entries = [
        {
            "uuid": uuid_of(number),
            "version": f"2026-01-31T235959.{number:06}Z",
            "name": f"reads/sample_{number}.fastq.gz",
            "indexed": number % 2 == 0,
        }
        for number in range(ENTRIES)
    ]
    return orjson.dumps({"creator_uid": 7, "files": entries})


def test_twenty_thousand_entries_are_loaded_in_bounded_time() -> None:
    text, schema = body(), request_schema(BundleBody)()
    taken = []
    for _ in range(5):
        began = time.process_time()
        loaded = load_body(schema, decode_bundle(text))
        taken.append(time.process_time() - began)
    assert len(loaded.files) == ENTRIES
    assert min(taken) < BOUND_S


def outcome(value: object) -> object:
    """What the schema makes of a value: the content, or the faults."""
    try:
        return load_body(request_schema(BundleBody)(), value)
    except Invalid as error:
        return error.detail, error.errors


def entry(**changes: object) -> dict[str, object]:
    return {"uuid": uuid_of(1), "version": VERSION, "name": "a", "indexed": True, **changes}


@pytest.mark.parametrize(
    "files",
    [
        [],
        [entry()],
        [entry(name='\u00e9\U0001f600"\\'), entry(uuid=uuid_of(2).upper(), indexed=False)],
        [entry(), entry(uuid="no uuid")],
        [entry(), entry(version="2026-02-30T000000.000000Z")],
        [entry(), entry(version=f"{VERSION}\n{VERSION}")],
        [entry(name="a\0b"), entry(name="")],
        [entry(uuid="x" * 36, name="x" * 5000)] * 200,
    ],
)
@pytest.mark.parametrize("creator_uid", [1, -0, 2**63 - 1, 2**63, 10**30])
def test_a_decoded_body_loads_like_a_parsed_one(creator_uid: int, files: list[object]) -> None:
    text = json_codec.encode({"creator_uid": creator_uid, "files": files})
    decoded = decode_bundle(text)
    assert decoded is not None
    assert outcome(decoded) == outcome(json_codec.decode(text))


@pytest.mark.parametrize(
    "text",
    [
        b'{"creator_uid": 1.0, "files": []}',
        b'{"creator_uid": true, "files": []}',
        b'{"creator_uid": 1, "files": [], "more": 1}',
        b'{"creator_uid": 1, "files": [{"uuid": "a", "version": "b", "name": "c"}]}',
        b'{"creator_uid": 1, "files": [{"uuid": "", "version": "", "name": "", "indexed": 1}]}',
        b'{"creator_uid": 1, "files": [null]}',
        b'{"creator_uid": 1, "files": {}}',
        b'{"creator_uid": 1, "files": []} ]',
        b'{"creator_uid": 1, "files": ["\xff"]}',
        b'{"creator_uid": 1, "files": [{"uuid": "\\ud800"}]}',
        b"[" * 100_000,
        b"[]",
    ],
)
def test_fast_loader_leaves_wrong_types_to_general_loader(text: bytes) -> None:
    assert decode_bundle(text) is None
