"""systemd-nspawn, and a Debian with systemd, PostgreSQL and Redis that it boots."""

import shutil
import subprocess
import zlib
from pathlib import Path

from tests.engines import packages
from tests.engines.engine import CACHE

PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Debian packages by their programs."""
VARIABLE = "STORE_TEST_SYSTEMD"
SUITE = "bookworm"
OPTIONS = (
    "--quiet",
    "--variant=apt",
    "--include=ca-certificates,netbase,passwd,python3-venv,tzdata",
    "--include=systemd,systemd-sysv,dbus,redis-server,postgresql",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements.txt"
LIBRARIES = (
    "python3.11 -m venv /opt/store && /opt/store/bin/pip install -q --require-hashes -r /tmp/r"
)
OF_THIS_MACHINE = (
    "/dev",
    "/etc/hosts",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/proc",
)
"""What the download of libraries needs."""
TRIED = """
mount -t cgroup2 none /mnt && umount /mnt && mount -t tmpfs none /mnt && mkdir /mnt/a /mnt/b
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/a,workdir=/mnt/b none /mnt
"""


def find_root() -> Path:
    """The machine's files with the pinned libraries, another folder for each list of them."""
    key = repr(OPTIONS).encode() + REQUIREMENTS.read_bytes()
    return CACHE / f"systemd-{SUITE}-{zlib.crc32(key):08x}"


def missing() -> str | None:
    """What this machine lacks, or None."""
    absent = [packages.lacking((program,), package) for program, package in PROGRAMS.items()]
    return "; ".join(why for why in absent if why) or _find_missing_mounts()


def _find_missing_mounts() -> str | None:
    tried = _run_with_mounts(f"set -e; {TRIED}")
    return f"mounts of cgroup2 and overlay: {tried.stderr.strip()}" if tried.returncode else None


def _run_with_mounts(script: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a script whose mounts end with it."""
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words],
        capture_output=True,
        text=True,
    )


def there() -> str | None:
    """Which version is installed, or None."""
    return packages.version("systemd-nspawn") if find_root().exists() else None


def install(cache: Path) -> None:
    """Get the packages, and make the machine's files, unless they are there."""
    for program, package in PROGRAMS.items():
        packages.debian((program,), package, cache)
    root = find_root()
    with packages.alone(cache, root.name):
        if not root.exists():
            fresh = root.with_name(f"new-{root.name}")
            if fresh.exists():
                shutil.rmtree(fresh)
            subprocess.run(["mmdebstrap", *OPTIONS, SUITE, str(fresh)], check=True)
            _install_libraries(fresh)
            fresh.replace(root)


def _install_libraries(root: Path) -> None:
    """Do what the documents say, in the new root."""
    shutil.copy(REQUIREMENTS, root / "tmp" / "r")
    script = ["set -e"]
    for name in OF_THIS_MACHINE:
        source, target = Path(name), root / name[1:]
        if source.is_file():
            target.touch()
        if source.exists():
            script.append(f"mount --bind {source} {target}")
    done = _run_with_mounts("\n".join([*script, 'chroot "$1" sh -c "$2"']), str(root), LIBRARIES)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def environ() -> dict[str, str]:
    """What names the machine's files to the tests."""
    return {VARIABLE: str(find_root())}
