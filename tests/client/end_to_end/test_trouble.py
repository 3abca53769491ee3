"""Between client and server networks cut, delay, truncate, refuse and flip bits, and people pull
plugs: what arrives is byte-identical, or it is said clearly that it did not, and nothing finished is
done again."""

import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from ops.demo.stage import Stage
from tests.client.end_to_end.people import Person, a_person, a_sample, contents
from tests.drill.faults import Mode, Proxy, before

CONTENT = b"GET /v1/objects/"
"""What asks for the bytes of a file on a store whose buckets are folders."""
CLEAR = {7, 8}
"""Codes of an end that says that not all came, or that it is damaged."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is to come down."""
    folder = a_sample(tmp_path_factory.mktemp("source") / "sample", files=12, seed=99)
    (folder / "large.bam").write_bytes(Random(5).randbytes(9_000_000))
    return folder


@pytest.fixture(scope="module")
def bundle(stage: Stage, source: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its uuid."""
    person = a_person(tmp_path_factory.mktemp("depositor"), stage.api)
    person.types("login", "--access-token", "-", given=stage.token)
    made = person.gets("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
    return str(made["bundle_uuid"])


@pytest.fixture
def proxy(stage: Stage) -> Iterator[Proxy]:
    """Between people and the store; it does no harm yet."""
    where = urlsplit(stage.api)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as found:
        yield found


@pytest.fixture
def person(proxy: Proxy, tmp_path: Path) -> Person:
    """Who reaches the store through it."""
    return a_person(tmp_path / "person", f"http://127.0.0.1:{proxy.port}")


def download(bundle: str, *more: str) -> tuple[str, ...]:
    return ("download", "--bundle-uuid", bundle, "--replica", "aws", "--no-progress", *more)


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


@pytest.mark.parametrize("mode", [Mode.TRUNCATE, Mode.RESET, Mode.REFUSE, Mode.SLOW, Mode.FLIP])
def test_content_comes_whole_or_is_said_not_to_have(
    proxy: Proxy, person: Person, bundle: str, source: Path, mode: Mode
) -> None:
    proxy.only, proxy.mode = CONTENT, mode
    few = ("--num-retries", "3", "--min-delay-seconds", "0.01")
    done = person.types(*download(bundle, *few))
    assert proxy.harmed[mode] > 0
    assert done.returncode in {0, *CLEAR}, done.stderr
    assert "Traceback" not in done.stderr
    found, whole = arrived(person, bundle), contents(source)
    assert found.items() <= whole.items()
    assert done.returncode or found == whole
    kept(person)
    proxy.mode = Mode.PASS
    again = person.types(*download(bundle))
    assert again.returncode == 0, again.stderr
    assert arrived(person, bundle) == whole


def test_a_network_that_gets_well_is_only_waited_for(
    proxy: Proxy, person: Person, bundle: str, source: Path
) -> None:
    proxy.mode = Mode.REFUSE
    going = person.starts(*download(bundle))
    for _ in until(lambda: proxy.harmed[Mode.REFUSE] >= 2):
        assert going.poll() is None
    proxy.mode = Mode.PASS
    _, said = going.communicate(timeout=120)
    assert going.returncode == 0, said
    assert arrived(person, bundle) == contents(source)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_download_that_was_stopped_goes_on_where_it_was(
    proxy: Proxy, person: Person, bundle: str, source: Path, how: signal.Signals
) -> None:
    proxy.only, proxy.mode = CONTENT, Mode.SLOW
    going = person.starts(*download(bundle, "--jobs", "2"))
    for _ in until(lambda: len(kept(person)) >= 4):
        assert going.poll() is None
    going.send_signal(how)
    _, said = going.communicate(timeout=60)
    if how is signal.SIGINT:
        assert going.returncode == 130
        assert "again" in said
        assert "Traceback" not in said
    before_it, at = kept(person), len(proxy.asked)
    proxy.mode = Mode.PASS
    done = person.types(*download(bundle))
    assert done.returncode == 0, done.stderr
    assert arrived(person, bundle) == contents(source)
    later = b"\n".join(proxy.asked[at:])
    assert [one for one in before_it if one.encode() in later] == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_upload_that_was_stopped_goes_on_where_it_was(
    stage: Stage, proxy: Proxy, person: Person, tmp_path: Path, how: signal.Signals
) -> None:
    source = a_sample(tmp_path / "sample", files=12, seed=how)
    person.types("login", "--access-token", "-", given=stage.token)
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
    proxy.mode = Mode.SLOW
    going = person.starts(*words, "--jobs", "2")
    for _ in until(lambda: len(puts_of_files(proxy)) >= 5):
        assert going.poll() is None
    going.send_signal(how)
    _, said = going.communicate(timeout=60)
    if how is signal.SIGINT:
        assert going.returncode == 130
        assert "again" in said
        assert "Traceback" not in said
    first, at = puts_of_files(proxy), len(proxy.asked)
    proxy.mode = Mode.PASS
    made = person.gets(*words)
    # Those that were on their way are sent again; two were.
    assert len(set(first) & set(puts_of_files(proxy, at))) <= 2
    assert person.types(*download(str(made["bundle_uuid"]))).returncode == 0
    assert arrived(person, str(made["bundle_uuid"])) == contents(source)


def puts_of_files(proxy: Proxy, since: int = 0) -> list[bytes]:
    """Paths of what was put into an upload area."""
    asked = [line for line in proxy.asked[since:] if line.startswith(b"PUT /v1/area/")]
    return [line.split()[1].partition(b"/files/")[2] for line in asked]


@pytest.mark.parametrize("mode", [Mode.TRUNCATE, Mode.RESET, Mode.REFUSE, Mode.SLOW])
def test_an_upload_through_trouble_is_right_or_says_that_it_is_not_done(
    stage: Stage, proxy: Proxy, person: Person, tmp_path: Path, mode: Mode
) -> None:
    source = a_sample(tmp_path / "sample", files=6, seed=int.from_bytes(mode.encode()) % 1000)
    person.types("login", "--access-token", "-", given=stage.token)
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
    going = person.starts(*words)
    for _ in until(lambda: bool(puts_of_files(proxy))):
        assert going.poll() is None
    proxy.mode = mode
    time.sleep(3.0)
    proxy.mode = Mode.PASS
    _, said = going.communicate(timeout=150)
    assert going.returncode in {0, *CLEAR}, said
    made = person.gets(*words)
    assert person.types(*download(str(made["bundle_uuid"]))).returncode == 0
    assert arrived(person, str(made["bundle_uuid"])) == contents(source)


def until(holds: Callable[[], bool], *, within_s: float = 90.0) -> Iterator[None]:
    """Turns until it holds; it has to in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        yield
        time.sleep(0.02)
