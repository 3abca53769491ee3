"""The private queue: who may reach it, on both kinds of server."""

import errno
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from ops import queue_server
from ops.procfile import ROOT
from ops.queue_server import PrivateQueue
from tests.patience import until

NOBODY = 65534
PATH = os.environ["PATH"]
SERVERS = {
    "redis-server": pytest.param(
        PATH,
        marks=pytest.mark.skipif(
            not shutil.which("redis-server"), reason="redis-server is not installed"
        ),
    ),
    "in memory": "",
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(params=SERVERS.values(), ids=SERVERS.keys())
def queue(request: pytest.FixtureRequest, open_folder: Path) -> Iterator[PrivateQueue]:
    with queue_server.private(open_folder) as found:
        process = subprocess.Popen(
            found.line(path=request.param).command,
            cwd=ROOT,
            env={**os.environ, "STORE_REDIS_URL": found.url},
        )
        try:
            until(found.listens)
            yield found
        finally:
            process.kill()
            process.wait(10)


@pytest.fixture
def scripts(queue: PrivateQueue) -> Iterator[redis.Redis]:
    """A client that knows the password."""
    with redis.Redis.from_url(queue.url) as client:
        yield client


def as_another_user(action: Callable[[], object]) -> int:
    """The error number that it ends in when another user of the machine does it; 0 for none."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 255
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        action()
        code = 0
    except OSError as error:
        code = error.errno or 255
    finally:
        os._exit(code)


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_cannot_connect(queue: PrivateQueue) -> None:
    # The folder is open here: the socket's own permissions have to suffice.
    assert as_another_user(lambda: os.listdir(queue.folder)) == 0
    assert as_another_user(lambda: connect(queue.socket)) == errno.EACCES
    connect(queue.socket)


def test_the_password_is_wanted_and_not_in_the_arguments(queue: PrivateQueue) -> None:
    with (
        redis.Redis(unix_socket_path=str(queue.socket)) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()
    with redis.Redis.from_url(queue.url) as client:
        assert client.ping()
    assert queue.password not in " ".join(queue.line(path=PATH).command)


@pytest.mark.parametrize("name", ["io", "python", "debug", "package", "require"])
def test_scripts_have_no_such_module(scripts: redis.Redis, name: str) -> None:
    # redis-server keeps `os.clock` only.
    with pytest.raises(redis.ResponseError):
        scripts.eval(f"return {name}.execute or {name}.open or {name}.getinfo or {name}.loadlib", 0)


def test_scripts_run_no_commands(scripts: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError):
        scripts.eval("return os.execute('true')", 0)


def test_a_home_that_is_too_deep_has_its_socket_in_a_private_folder(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 120)
    deep.mkdir()
    with queue_server.private(deep) as queue:
        assert len(os.fsencode(queue.socket)) <= queue_server.LONGEST_PATH
        assert stat.S_IMODE(queue.folder.stat().st_mode) == 0o700
    assert not queue.folder.exists()


def test_paths_with_unusual_characters_are_spelled_out_in_the_url(tmp_path: Path) -> None:
    home = tmp_path / 'a "b" ü?#%'
    home.mkdir()
    with queue_server.private(home) as queue, redis.Redis.from_url(queue.url) as client:
        options = client.connection_pool.connection_kwargs
        assert options["path"] == str(queue.socket)
        assert options["password"] == queue.password
