"""Type operator commands in this process, and open the home that they worked on."""

from pathlib import Path

from click.testing import CliRunner, Result

from config import Settings
from ops.__main__ import cli
from storage.connect import connect
from storage.pubsub import MemoryPubSub
from storage.stores import Stores


def typed(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, words, input=answer, catch_exceptions=False)


def run(*words: str) -> str:
    result = typed(*words)
    assert result.exit_code == 0, result.output
    return result.output


def opened(home: Path) -> Stores:
    return connect(
        Settings(home=home, secret_key="a secret for tests only"), notices=MemoryPubSub()
    )
