"""`store listen` against a whole store: through a faulty network, and while the store restarts."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from examples.webhooks import Receiver, running_receiver
from ops import home as homes
from ops import ports
from ops.local_store import LocalStore, running_store
from tests.client.end_to_end.people import Person, a_person
from tests.client.end_to_end.trouble import until
from tests.drill.fault_proxy import Mode, before

pytestmark = pytest.mark.spec("LSN-06")

SECRET = "the secret of the receiver"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver(SECRET) as found:
        yield found


def a_user(folder: Path, url: str, token: str) -> Person:
    person = a_person(folder, url)
    done = person.types("login", "--access-token", "-", given=token)
    assert done.returncode == 0, done.stderr
    return person


def deposit(person: Person, number: int) -> str:
    """A bundle with one number as its metadata."""
    (person.folder / "run").mkdir(exist_ok=True)
    (person.folder / "run" / "s.json").write_text(json.dumps({"number": number}))
    made = person.gets("upload", "--src-dir", "run", "--replica", "aws")
    return f"{made['bundle_uuid']}.{made['version']}"


@contextmanager
def listening(person: Person, receiver: Receiver, since: str) -> Iterator["subprocess.Popen[str]"]:
    (person.folder / "secret.txt").write_text(SECRET)
    going = person.starts(
        *("listen", "--since", since, "--types", "create", "--secret-file", "secret.txt"),
        *("--forward-to", f"{receiver.url}/hook?a=b"),
    )
    try:
        yield going
    finally:
        going.kill()
        going.communicate()


def stopped(going: "subprocess.Popen[str]", count: int) -> tuple[list[str], str]:
    """The bundles that were printed, and standard error; after so many lines comes Ctrl-C."""
    assert going.stdout is not None
    first = b""
    output = select.poll()
    output.register(going.stdout, select.POLLIN)
    while first.count(b"\n") < count:
        # A line is printed after its event was forwarded.
        assert output.poll(60_000), first
        first += os.read(going.stdout.fileno(), 65_536)
    going.send_signal(signal.SIGINT)
    out, said = going.communicate(timeout=30)
    assert going.returncode == 130, said
    assert "Traceback" not in said
    return [json.loads(line)["bundle"] for line in (first.decode() + out).splitlines()], said


def received(receiver: Receiver) -> list[str]:
    return [one.fqid for one in receiver.accepted]


def test_every_event_comes_once_through_a_faulty_network(
    stage: LocalStore, tmp_path: Path, receiver: Receiver
) -> None:
    where = urlsplit(stage.api)
    depositor = a_user(tmp_path / "depositor", stage.api, stage.token)
    since = depositor.types("create-version").stdout.strip()
    with ExitStack() as stack:
        proxy = stack.enter_context(before("127.0.0.1", int(where.port or 0), Random(1)))
        listener = a_user(tmp_path / "listener", f"http://127.0.0.1:{proxy.port}", stage.token)
        going = stack.enter_context(listening(listener, receiver, since))
        made = [deposit(depositor, 0)]
        for _ in until(lambda: received(receiver) == made):
            assert going.poll() is None
        for number, mode in enumerate((Mode.RESET, Mode.TRUNCATE, Mode.REFUSE, Mode.SLOW), 1):
            harmed = proxy.harmed[mode]
            proxy.mode = mode
            made.append(deposit(depositor, number))
            for _ in until(lambda mode=mode, harmed=harmed: proxy.harmed[mode] > harmed):
                assert going.poll() is None
            proxy.mode = Mode.PASS
            for _ in until(lambda: received(receiver) == made):
                assert going.poll() is None
        printed, said = stopped(going, len(made))
    assert printed == received(receiver) == made
    assert receiver.invalid() == []
    assert "5 events, 5 matched, 5 forwarded, 0 failed" in said
    subscriptions = depositor.gets("get-subscriptions", "--replica", "aws")
    assert subscriptions == {"subscriptions": []}, "nothing is left in the store"


@pytest.mark.long
def test_listening_goes_on_when_the_store_was_killed(tmp_path: Path, receiver: Receiver) -> None:
    home = tmp_path / "store"
    home.mkdir()
    settings = {"STORE_PORT": str(ports.find_free_port_pair())}
    with ExitStack() as stack:
        with running_store(home, settings) as first:
            person = a_user(tmp_path / "person", first.api, first.token)
            since = person.types("create-version").stdout.strip()
            going = stack.enter_context(listening(person, receiver, since))
            made = [deposit(person, 1)]
            for _ in until(lambda: received(receiver) == made):
                assert going.poll() is None
            os.killpg(first.pid, signal.SIGKILL)
            (home / homes.READY).unlink()  # as it would have done itself
        with running_store(home, settings):
            made.append(deposit(person, 2))
            for _ in until(lambda: received(receiver) == made):
                assert going.poll() is None
            printed, said = stopped(going, len(made))
    assert printed == made
    assert receiver.invalid() == []
    assert "2 matched, 2 forwarded, 0 failed" in said
