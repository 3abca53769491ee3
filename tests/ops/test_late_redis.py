"""A store whose Redis starts after all processes."""

import threading
from pathlib import Path

import pytest

from ops import procfile
from ops.local_store import running_store
from tests.redis_server import RedisServer, needed

pytestmark = pytest.mark.spec("OPS-19")

LATE_S = 4.0
"""Every process is up by then, and has looked for its queue in vain."""


@pytest.mark.long
@needed
def test_store_is_ready_once_redis_answers(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    coming = threading.Timer(LATE_S, server.start)
    coming.start()
    try:
        with running_store(tmp_path, {"STORE_REDIS_URL": server.url}) as store:
            facts = store.read_processes()
            assert facts["processes"].keys() == {line.name for line in procfile.read_procfile()}
            assert {process["starts"] for process in facts["processes"].values()} == {1}
    finally:
        coming.join()
        server.kill()
