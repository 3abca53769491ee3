"""Build the image with Podman, and run its containers with what compose.yaml gives them."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ops.procfile import ROOT
from tests.engines.podman import BASE, VARIABLE

IMAGE, BASE_IMAGE = "consortium-store:test", "localhost/base:test"
BUILD_S, COMMAND_S = 600.0, 90.0
PROCESSES_AND_FILES = 4096
"""The most of each that a container may have."""
CERTIFICATES = ("/etc/ssl/certs", "/etc/pip.conf")
"""Of this machine, for the libraries' download; no layer has them."""


@dataclass(frozen=True)
class Podman:
    """Podman with images, containers and volumes in a folder of their own."""

    folder: Path
    driver: str = "overlay"
    """How images and containers are stored: `vfs`, which copies, works on any file system."""

    def run(
        self, *words: str, stdin: str = "", timeout_s: float = COMMAND_S
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command of Podman."""
        return subprocess.run(
            [*self._command(), *words],
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def read(self, *words: str, stdin: str = "", timeout_s: float = COMMAND_S) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self.run(*words, stdin=stdin, timeout_s=timeout_s)
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """Read what Podman knows of an image or container."""
        found: list[dict[str, Any]] = json.loads(self.read("inspect", name))
        return found[0]

    def _command(self) -> list[str]:
        own = {"--root": "images", "--runroot": "running", "--tmpdir": "tmp"}
        folders = [word for name, part in own.items() for word in (name, str(self.folder / part))]
        # They need no systemd.
        plain = ["--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        return [os.environ[VARIABLE], *folders, "--storage-driver", self.driver, *plain]


@contextmanager
def built_image() -> Iterator[Podman]:
    """Build the image on the base; remove everything with the block."""
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    podman = Podman(folder)
    if podman.run("info").returncode:
        # This file system has no layers.
        podman = Podman(folder, "vfs")
    try:
        podman.read("import", "--quiet", str(BASE), BASE_IMAGE, timeout_s=BUILD_S)
        readable = [path for path in CERTIFICATES if Path(path).exists()]
        mounts = [word for path in readable for word in ("--volume", f"{path}:{path}:ro")]
        options = ("--isolation", "chroot", "--network", "host", "--layers=false", *mounts)
        base = ("--build-arg", f"BASE={BASE_IMAGE}")
        podman.read("build", *options, *base, "--tag", IMAGE, ".", timeout_s=BUILD_S)
        yield podman
    finally:
        podman.run("rm", "--all", "--force", "--time", "10")
        shutil.rmtree(folder)


def read_services() -> dict[str, dict[str, Any]]:
    """Read the services of compose.yaml."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    services: dict[str, dict[str, Any]] = found["services"]
    return services


def run_options(service: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """The options of `podman run` for a service, in the host's network."""
    assert service["read_only"], "the root of every container of ours is read-only"
    # Docker adds no writable folders to a read-only root, as Podman does by default.
    words = ["--read-only", "--read-only-tmpfs=false", "--network", "host"]
    words += ["--user", service["user"]]
    words += [f"--cap-drop={name}" for name in service["cap_drop"]]
    words += [f"--security-opt={option}" for option in service["security_opt"]]
    words += [f"--volume={volume}" for volume in service["volumes"]]
    words += [f"--tmpfs={_owned(mount)}" for mount in service["tmpfs"]]
    words += [f"--env={name}={value}" for name, value in environ.items()]
    # The default limits are higher than some machines let even root set.
    for name, limit in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        most = min(resource.getrlimit(limit)[1], PROCESSES_AND_FILES)
        words.append(f"--ulimit={name}={most}:{most}")
    return words


def _owned(mount: str) -> str:
    """A tmpfs of Docker has the owner that it names; one of Podman has the container's user by `U`."""
    target, _, options = mount.partition(":")
    kept = [option for option in options.split(",") if not option.startswith(("uid", "gid"))]
    return f"{target}:{','.join(('U', *kept))}"


def grace_s(service: Mapping[str, Any]) -> int:
    """How long a service may take to stop."""
    return int(service["stop_grace_period"].removesuffix("s"))


def start(
    podman: Podman, name: str, environ: Mapping[str, str], command: Sequence[str] | None = None
) -> None:
    """Start the container of a service."""
    service = read_services()[name]
    options = run_options(service, environ)
    words = command or service["command"]
    podman.read("run", "--detach", "--name", name, *options, IMAGE, *words)
