"""Between client and server networks cut, delay, truncate, refuse and flip bits, and people pull
plugs: what arrives is byte-identical, or it is said clearly that it did not, and nothing finished is
done again.

What holds on every store; `test_trouble.py` holds it on folders, `tests/real/test_client.py` on S3.
"""

import hashlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.client.end_to_end.people import Person, a_sample, contents
from tests.drill.fault_proxy import Mode, Proxy

CLEAR = {7, 8}
"""Codes of an end that says that not all came, or that it is damaged."""


@dataclass(frozen=True)
class Bundle:
    """What is to come down: its directory, and what it is called."""

    source: Path
    uuid: str


def a_source(folder: Path, *, large: int = 3_000_000) -> Path:
    """Small files and one that has several blocks."""
    made = a_sample(folder, files=12, seed=99)
    (made / "large.bam").write_bytes(Random(5).randbytes(large))
    return made


def deposited(person: Person, token: str, source: Path, *more: str) -> Bundle:
    """By somebody who may."""
    person.types("login", "--access-token", "-", given=token)
    return Bundle(source, str(person.gets(*upload(source, *more))["bundle_uuid"]))


def upload(source: Path, *more: str) -> tuple[str, ...]:
    return ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress", *more)


def download(bundle: str, *more: str) -> tuple[str, ...]:
    return ("download", "--bundle-uuid", bundle, "--replica", "aws", "--no-progress", *more)


def patiently(person: Person, bundle: str, replica: str) -> "subprocess.CompletedProcess[str]":
    """A download from a replica that may not hold it yet."""
    words = ("download", "--bundle-uuid", bundle, "--replica", replica, "--no-progress")
    done = person.types(*words)
    for _ in range(60):
        if done.returncode != 5:
            break
        time.sleep(0.5)
        done = person.types(*words)
    return done


def arrived(person: Person, bundle: str) -> dict[str, bytes]:
    """What lies under its final name."""
    found = [path for path in person.folder.iterdir() if path.name.startswith(bundle)]
    return contents(found[0]) if found else {}


def kept(person: Person) -> set[str]:
    """Digests of all whole files of the cache; each is what its name says."""
    digests = set()
    for path in (person.folder / ".store").rglob("*"):
        if path.is_file() and len(path.name) == 64:
            digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
            assert path.name in digests
    return digests


def comes_whole_or_is_said_not_to_have(
    proxy: Proxy, person: Person, bundle: Bundle, mode: Mode
) -> None:
    """Whatever befalls the bytes; once it is over, they come."""
    proxy.mode = mode
    few = ("--num-retries", "3", "--min-delay-seconds", "0.01")
    done = person.types(*download(bundle.uuid, *few))
    assert proxy.harmed[mode] > 0
    assert done.returncode in {0, *CLEAR}, done.stderr
    assert "Traceback" not in done.stderr
    found, whole = arrived(person, bundle.uuid), contents(bundle.source)
    assert found.items() <= whole.items()
    assert done.returncode or found == whole
    kept(person)
    proxy.mode = Mode.PASS
    again = person.types(*download(bundle.uuid))
    assert again.returncode == 0, again.stderr
    assert arrived(person, bundle.uuid) == whole


def a_stopped_download_goes_on(
    proxy: Proxy, person: Person, bundle: Bundle, how: signal.Signals
) -> None:
    """What had come is not asked for again."""
    proxy.mode = Mode.SLOW
    going = person.starts(*download(bundle.uuid, "--jobs", "2"))
    for _ in until(lambda: len(kept(person)) >= 4):
        assert going.poll() is None
    said = stopped(going, how)
    before_it, at = kept(person), len(proxy.asked)
    proxy.mode = Mode.PASS
    done = person.types(*download(bundle.uuid))
    assert done.returncode == 0, f"{said}\n{done.stderr}"
    assert arrived(person, bundle.uuid) == contents(bundle.source)
    later = b"\n".join(proxy.asked[at:])
    assert [one for one in before_it if one.encode() in later] == []


def a_stopped_upload_goes_on(
    proxy: Proxy,
    person: Person,
    source: Path,
    how: signal.Signals,
    sent: Callable[[int], list[bytes]],
    *more: str,
) -> None:
    """What had gone up is not sent again; `sent` tells what was, since so many requests."""
    proxy.mode = Mode.SLOW
    going = person.starts(*upload(source, "--jobs", "2", *more))
    for _ in until(lambda: len(sent(0)) >= 5):
        assert going.poll() is None
    stopped(going, how)
    first, at = sent(0), len(proxy.asked)
    proxy.mode = Mode.PASS
    made = person.gets(*upload(source, *more))
    # Those that were on their way are sent again; two were.
    assert len(set(first) & set(sent(at))) <= 2
    assert person.types(*download(str(made["bundle_uuid"]))).returncode == 0
    assert arrived(person, str(made["bundle_uuid"])) == contents(source)


def stopped(going: subprocess.Popen[str], how: signal.Signals) -> str:
    """What it said when it was; asked to, it says how to go on."""
    going.send_signal(how)
    _, said = going.communicate(timeout=60)
    if how is signal.SIGINT:
        assert going.returncode == 130
        assert "again" in said
        assert "Traceback" not in said
    return said


def an_upload_through_trouble_is_right(
    proxy: Proxy,
    person: Person,
    source: Path,
    mode: Mode,
    begun: Callable[[], bool],
    *more: str,
) -> None:
    """Or it says that it is not done; and when it is tried again it is."""
    going = person.starts(*upload(source, *more))
    for _ in until(begun):
        assert going.poll() is None
    proxy.mode = mode
    time.sleep(3.0)
    proxy.mode = Mode.PASS
    _, said = going.communicate(timeout=150)
    assert going.returncode in {0, *CLEAR}, said
    made = person.gets(*upload(source, *more))
    assert person.types(*download(str(made["bundle_uuid"]))).returncode == 0
    assert arrived(person, str(made["bundle_uuid"])) == contents(source)


def until(holds: Callable[[], bool], *, within_s: float = 90.0) -> Iterator[None]:
    """Turns until it holds; it has to in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        yield
        time.sleep(0.02)
