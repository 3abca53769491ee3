"""Install programs: system packages, Go programs and Python tools."""

import fcntl
import os
import shutil
import subprocess
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.engine import CACHE

POSTGRES_HOMES = "/usr/lib/postgresql"
APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")


@dataclass(frozen=True, slots=True)
class Tool:
    """A program in Go: its package, the module that brings it, and which version of that."""

    name: str
    package: str
    module: str
    version: str

    @property
    def path(self) -> Path:
        """Where it is once it is installed; another version has another name."""
        return CACHE / "bin" / f"{self.name}-{self.version}"

    def missing(self) -> str | None:
        """What lacks to get it, or None."""
        if self.path.exists() or shutil.which("go"):
            return None
        return f"Go, to build {self.name} with (golang)"

    def there(self) -> str | None:
        """Which version is installed, or None."""
        return self.version if self.path.exists() else None

    def install(self, cache: Path) -> None:
        """Build it, unless it is there. A module of our own requires it: some publishers' lists of
        versions cannot be read, the versions themselves can."""
        target = cache / "bin" / f"{self.name}-{self.version}"
        with alone(cache, self.name):
            if not target.exists():
                self._build(target, cache / "go" / self.name)

    def _build(self, target: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        required = f"module engine\n\ngo 1.21\n\nrequire {self.module} {self.version}\n"
        (folder / "go.mod").write_text(required, encoding="utf-8")
        (folder / "none.go").write_text("package engine\n", encoding="utf-8")
        fresh = folder / self.name
        command: list[str | Path] = [
            "go",
            "build",
            "-mod=mod",
            "-trimpath",
            "-o",
            fresh,
            self.package,
        ]
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, "GOWORK": "off"})
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.replace(target)
        shutil.rmtree(folder)


@dataclass(frozen=True, slots=True)
class PythonTool:
    """A program in Python, in a virtual environment of its own: what it wants may be other versions
    than what we want."""

    name: str
    package: str
    version: str
    lock: Path | None = None
    """All packages to install, with hashes; without it pip finds what the package wants."""

    @property
    def path(self) -> Path:
        """Where it is once it is installed; another version has another name."""
        return CACHE / "bin" / f"{self.name}-v{self.version}"

    def missing(self) -> str | None:
        """Nothing: what runs this can install it."""
        return None

    def there(self) -> str | None:
        """Which version is installed, or None."""
        return f"v{self.version}" if self.path.exists() else None

    def install(self, cache: Path) -> None:
        """Get it, unless it is there."""
        target = cache / "bin" / f"{self.name}-v{self.version}"
        with alone(cache, self.name):
            if not target.exists():
                folder = cache / "python" / f"{self.name}-{self.version}"
                venv.create(folder, with_pip=True, clear=True)
                pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
                locked = ("--no-deps", "--require-hashes", "-r", str(self.lock))
                wanted = locked if self.lock else (f"{self.package}=={self.version}",)
                subprocess.run([*pip, "--disable-pip-version-check", *wanted], check=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                # It may be left of a cache that was elsewhere.
                target.unlink(missing_ok=True)
                target.symlink_to(folder / "bin" / self.name)


@contextmanager
def alone(cache: Path, name: str) -> Iterator[None]:
    """Whoever else installs this into the same cache, thread or process, waits."""
    locks = cache / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def program(name: str) -> str | None:
    """Where a program of the system is; PostgreSQL's newest is found where Debian hides it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found:
        return found
    hidden = sorted(Path(POSTGRES_HOMES).glob(f"*/bin/{name}"), key=lambda path: path.parts[-3])
    return str(hidden[-1]) if hidden else None


def lacking(programs: Sequence[str], package: str) -> str | None:
    """What the machine lacks to have these programs, or None."""
    absent = [name for name in programs if program(name) is None]
    if not absent or (shutil.which("apt-get") and os.geteuid() == 0):
        return None
    return f"{', '.join(absent)} (Debian package {package})"


def version(name: str) -> str | None:
    """What an installed program says of itself, or None."""
    path = program(name)
    if path is None:
        return None
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.splitlines()[0]


def debian(programs: Sequence[str], package: str, cache: Path) -> None:
    """Install a package of the system, unless its programs are there; it starts no service."""
    if all(program(name) for name in programs):
        return
    # The lists of packages have a lock that nobody waits for.
    with alone(cache, "debian"):
        _apt(package)


def _apt(package: str) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = [*APT, "install", "-y", "--no-install-recommends", package]
    if subprocess.run(install, env=quiet, stdout=subprocess.DEVNULL).returncode:
        subprocess.run([*APT, "update"], env=quiet, check=True)
        subprocess.run(install, env=quiet, stdout=subprocess.DEVNULL, check=True)


def found(name: str) -> str:
    """Where a program is that was installed."""
    path = program(name)
    if path is None:
        raise RuntimeError(f"{name} is not installed")
    return path
