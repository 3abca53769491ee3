"""Trouble between the command and a store whose buckets are folders; see trouble.py."""

import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from ops.local_store import LocalStore
from tests.client.end_to_end import trouble
from tests.client.end_to_end.people import Person, a_person, a_sample, contents
from tests.client.end_to_end.trouble import Bundle, until
from tests.drill.fault_proxy import Mode, Proxy, before

pytestmark = pytest.mark.spec("CLI-91")

CONTENT = b"GET /v1/objects/"
"""What asks for the bytes of a file on a store whose buckets are folders."""


@pytest.fixture(scope="module")
def bundle(stage: LocalStore, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """What is to come down."""
    source = trouble.a_source(tmp_path_factory.mktemp("source") / "sample")
    person = a_person(tmp_path_factory.mktemp("depositor"), stage.api)
    return trouble.deposited(person, stage.token, source)


@pytest.fixture
def proxy(stage: LocalStore) -> Iterator[Proxy]:
    """Between people and the store; it does no harm yet."""
    where = urlsplit(stage.api)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as found:
        yield found


@pytest.fixture
def person(proxy: Proxy, tmp_path: Path) -> Person:
    """Who reaches the store through it."""
    return a_person(tmp_path / "person", f"http://127.0.0.1:{proxy.port}")


@pytest.mark.parametrize("mode", [Mode.TRUNCATE, Mode.FLIP])
def test_content_is_complete_or_reported_missing(
    proxy: Proxy, person: Person, bundle: Bundle, mode: Mode
) -> None:
    proxy.only = CONTENT
    trouble.comes_whole_or_is_said_not_to_have(proxy, person, bundle, mode)


def test_a_network_that_gets_well_is_only_waited_for(
    proxy: Proxy, person: Person, bundle: Bundle
) -> None:
    proxy.mode = Mode.REFUSE
    going = person.starts(*trouble.download(bundle.uuid))
    for _ in until(lambda: proxy.harmed[Mode.REFUSE] >= 2):
        assert going.poll() is None
    proxy.mode = Mode.PASS
    _, said = going.communicate(timeout=120)
    assert going.returncode == 0, said
    assert trouble.arrived(person, bundle.uuid) == contents(bundle.source)


def test_killed_download_resumes(proxy: Proxy, person: Person, bundle: Bundle) -> None:
    proxy.only = CONTENT
    trouble.a_stopped_download_goes_on(proxy, person, bundle, signal.SIGKILL)


@pytest.mark.long
def test_interrupted_upload_resumes(
    stage: LocalStore, proxy: Proxy, person: Person, tmp_path: Path
) -> None:
    source = a_sample(tmp_path / "sample", files=8, size=80_000)
    person.types("login", "--access-token", "-", given=stage.token)
    trouble.a_stopped_upload_goes_on(
        proxy, person, source, signal.SIGINT, lambda since: put_into_areas(proxy, since)
    )


def test_upload_through_faults_is_complete_or_fails(
    stage: LocalStore, proxy: Proxy, person: Person, tmp_path: Path
) -> None:
    source = a_sample(tmp_path / "sample", files=6)
    person.types("login", "--access-token", "-", given=stage.token)
    trouble.an_upload_through_trouble_is_right(
        proxy, person, source, Mode.RESET, lambda: bool(put_into_areas(proxy))
    )


def put_into_areas(proxy: Proxy, since: int = 0) -> list[bytes]:
    """Names of files that were put into an upload area; before each stands that of its try."""
    asked = [line for line in proxy.asked[since:] if line.startswith(b"PUT /v1/area/")]
    return [line.split()[1].partition(b"/files/")[2].partition(b"/")[2] for line in asked]
