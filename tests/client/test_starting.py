"""Commands that ask nothing start fast: what is heavy is loaded when something is asked."""

import subprocess
import sys

import pytest


@pytest.mark.spec("CLI-32")
@pytest.mark.parametrize(
    "module", ["store_client", "store_client.client", "store_client.definition"]
)
def test_http_library_is_loaded_lazily(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('httpx', 'rich', 'joserfc') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
