"""Metadata files that are not JSON: refused with file and position before anything is sent."""

from pathlib import Path

import httpx
import pytest

from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import Misused
from store_client.http.session import HttpSession
from store_client.uploads.options import UploadOptions
from store_client.uploads.plan import PlannedFile, plan_files
from store_client.uploads.validation import validate_planned
from store_client.validation.documents import MAX_METADATA

pytestmark = pytest.mark.spec("CLI-143")


def validate(folder: Path, *, indexed: tuple[str, ...] = ("*.json",), **contents: bytes) -> None:
    """As an upload to a store of an earlier release does, which lists no schemas."""
    transport = httpx.MockTransport(lambda _: httpx.Response(404))
    config = Configuration(folder, folder, "http://store.example")
    client = Client(config=config, session=HttpSession(config.url, transport=transport))
    options = UploadOptions(folder, "aws", indexed=indexed)
    planned = files(folder, indexed=indexed, **contents)
    validate_planned(client, options, [(one.name, one) for one in planned])


def files(
    folder: Path, *, indexed: tuple[str, ...] = ("*.json",), **contents: bytes
) -> list[PlannedFile]:
    for name, data in contents.items():
        (folder / f"{name}.json").write_bytes(data)
    return plan_files(UploadOptions(folder, "aws", indexed=indexed))


@pytest.mark.spec("CLI-143")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "a.json, line 1, column 1: Expecting value"),
        (b'{"a": 1,\n "b": }', "a.json, line 2, column 7: Expecting value"),
        (b'{"a": 1}\n{"b": 2}', "a.json, line 2, column 1: Extra data"),
        (b'{"a":\n\n "\xff"}', "a.json, line 3, column 3: not UTF-8"),
        (b'{"NaN": "NaN",\n  "b": NaN}', "a.json, line 2, column 8: NaN is not JSON"),
        (b"[-Infinity]", "a.json, line 1, column 2: -Infinity is not JSON"),
        ('["é", x]'.encode(), "a.json, line 1, column 7: Expecting value"),
        (b"\xef\xbb\xbf{}", "a.json, line 1, column 1: Unexpected UTF-8 BOM"),
        (b'{"a": 1,\n "b": {"a": 2, "c": 3,\n  "c": 4}}', 'a.json, line 3, column 3: the name "c"'),
        (b'[{"a": "{\\"x\\":"}, {"b": 1, "\\u0062" : 2}]', "a.json, line 1, column 29: the name"),
        (b'{"a": "x\ny"}', "a.json, line 1, column 9: Invalid control character"),
        ("{}".encode("utf-16"), "a.json, line 1, column 1: not UTF-8"),
        (b'{"a": 1,}', "a.json, line 1, column "),
        (b"[" * 200_000, "a.json: nested too deeply"),
    ],
)
def test_rejects_invalid_json_with_position(tmp_path: Path, data: bytes, told: str) -> None:
    with pytest.raises(Misused) as refused:
        validate(tmp_path, a=data)
    assert str(refused.value).startswith(told)
    assert "--allow-invalid-json" in refused.value.hint


def test_counts_further_errors(tmp_path: Path) -> None:
    with pytest.raises(Misused, match=r"^b\.json, line 1.* \(and 1 more files\)$"):
        validate(tmp_path, a=b"{}", b=b"{", c=b"]")


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b' {"a": [1e999, "\\ud800"], "b": {"a": ["a", "a"]}}\n',
        b"9" * 10_000,
        b"[" * 90 + b"]" * 90,
    ],
)
def test_accepts_valid_json(tmp_path: Path, data: bytes) -> None:
    validate(tmp_path, a=data)


def test_skips_data_files_and_ignored_metadata(
    tmp_path: Path,
) -> None:
    validate(tmp_path, a=b"{", indexed=("*.meta",))
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(MAX_METADATA + 1)
    validate(tmp_path)
