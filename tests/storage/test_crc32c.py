"""CRC-32C by google-crc32c, and by crcmod where it is not compiled."""

import os
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pytest

from storage import crc32c

ROOT = Path(__file__).resolve().parents[2]
SIZES = (1, 1048576)
UNCOMPILED = "STORE_TEST_UNCOMPILED"


@pytest.mark.parametrize(
    ("data", "known"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA)]
)
def test_known_answers(data: bytes, known: int) -> None:
    assert crc32c.extend(0, data) == known
    assert crc32c.extend(crc32c.extend(0, data[:5]), data[5:]) == known
    assert crc32c.decode_base64(crc32c.encode_base64(known)) == known.to_bytes(4, "big")


def test_the_form_in_use_is_the_fast_one() -> None:
    form = "python" if UNCOMPILED in os.environ else "c"
    assert google_crc32c.implementation == form
    assert (crc32c.extend is google_crc32c.extend) == (form == "c")


@pytest.mark.skipif(UNCOMPILED in os.environ, reason="runs inside itself")
def test_works_without_compiled_crc32c() -> None:
    """One run with crcmod: all checksums of known files, and bytes proven by GCS."""
    tests = [
        "tests/storage/test_crc32c.py",
        *(f"tests/pipelines/test_checksums.py::test_known_answers[{n}]" for n in SIZES),
        "tests/storage/blobs/test_gcs.py::test_an_upload_of_one_part_costs_few_calls",
        "tests/storage/blobs/test_gcs_failures.py::test_mangled_bytes_are_not_believed",
    ]
    options = ["-p", "no:randomly", "-p", "tests.without_compiled_crc32c"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env={**os.environ, UNCOMPILED: "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "8 passed, 1 skipped" in done.stdout, done.stdout[-3000:]
