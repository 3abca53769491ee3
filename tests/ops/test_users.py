"""The operator's commands for users."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from auth.login import lockout, sessions
from auth.login.lockout import LockoutPolicy
from auth.login.passwords import PasswordHashing
from auth.login.sessions import SessionLifetimes
from config import Settings
from ops.__main__ import cli
from storage.catalog import Catalog, login
from storage.errors import TooManyRequests

pytestmark = pytest.mark.spec("OPS-24")

ADA = "ada@example.org"
RIGHT = "correct horse battery"

Ops = Callable[..., Result]


@pytest.fixture
def environ(catalog_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "STORE_HOME": str(tmp_path / "home"),
        "STORE_CATALOG_URL": catalog_url,
        "STORE_PASSWORD_MEMORY_KIB": "64",
        "STORE_PASSWORD_PASSES": "1",
        "STORE_PASSWORD_LANES": "1",
        "COLUMNS": "200",
    }


@pytest.fixture
def ops(environ: dict[str, str]) -> Ops:
    def run(*words: str, typed: str = "") -> Result:
        return CliRunner().invoke(cli, ["users", *words], input=typed, env=environ)

    return run


def is_right(catalog: Catalog, password: str) -> bool:
    with catalog.read() as tx:
        row = login.find_password(tx, ADA)
    cheap = Settings(password_memory_kib=64, password_passes=1, password_lanes=1)
    return row is not None and PasswordHashing(cheap).check(row.hash, password).right


def test_a_user_is_made_changed_and_removed(ops: Ops, catalog: Catalog) -> None:
    made = ops("add", "Ada@Example.org", typed=f"{RIGHT}\n")
    assert (made.exit_code, made.output) == (0, f"{ADA} may log in.\n")
    assert is_right(catalog, RIGHT)
    assert ADA in ops("list").output
    assert ops("passwd", ADA, typed="another long one\r\n").exit_code == 0
    assert is_right(catalog, "another long one")
    assert ops("remove", ADA).exit_code == 0
    assert ADA not in ops("list").output
    assert ops("remove", ADA).exit_code == 1


def test_rejects_duplicate_user(ops: Ops, catalog: Catalog) -> None:
    ops("add", ADA, typed=RIGHT)
    again = ops("add", ADA, typed="another long one")
    assert (again.exit_code, "has a password already" in again.output) == (1, True)
    assert is_right(catalog, RIGHT)


@pytest.mark.parametrize("typed", ["", "\n", "short\n", "aaaaaaaaaaaaaaa\n"])
def test_rejects_invalid_password(ops: Ops, catalog: Catalog, typed: str) -> None:
    refused = ops("add", ADA, typed=typed)
    assert refused.exit_code == 1
    assert "The password must" in refused.output
    assert not is_right(catalog, typed.strip())


@pytest.mark.parametrize("email", ["ada", "", "a b@c", "ada@", "@example.org", "adà@example.org"])
def test_rejects_invalid_address(ops: Ops, email: str) -> None:
    assert ops("add", email, typed=RIGHT).exit_code == 1


def test_takes_no_password_as_argument(ops: Ops) -> None:
    assert ops("add", ADA, RIGHT).exit_code == 2
    assert ops("add", ADA, "--password", RIGHT).exit_code == 2


def test_prompts_twice_for_hidden_password(environ: dict[str, str], catalog: Catalog) -> None:
    shown = at_terminal(environ, "add", ADA, answers=[RIGHT, RIGHT])
    assert f"{ADA} may log in." in shown
    assert RIGHT not in shown
    assert is_right(catalog, RIGHT)


def at_terminal(environ: dict[str, str], *words: str, answers: list[str]) -> str:
    """What a terminal shows to somebody who answers each question."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ops", "users", *words]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **environ},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown, left = b"", list(answers)
        while read := _read(ours):
            shown += read
            # What is typed before the question is thrown away.
            if shown.endswith(b": ") and left:
                os.write(ours, left.pop(0).encode() + b"\n")
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 1024)
    except OSError:
        # On Linux, what nobody holds any more is an error, and not an end.
        return b""


def test_disabling_or_new_password_logs_user_out(ops: Ops, catalog: Catalog) -> None:
    ops("add", ADA, typed=RIGHT)

    def begin() -> str:
        with catalog.write() as tx:
            return sessions.create_session(
                tx, ADA, "local", now=1.0, lifetimes=SessionLifetimes(60, 60)
            )[0]

    for words, typed in ((("passwd", ADA), "another long one"), (("disable", ADA), "")):
        cookie = begin()
        assert sessions.find_session(catalog, cookie, 2.0)
        assert ops(*words, typed=typed).exit_code == 0
        assert sessions.find_session(catalog, cookie, 2.0) is None
    assert "disabled" in ops("list").output
    assert ops("disable", ADA).output == "Was disabled before.\n"
    assert ops("enable", ADA).output == "Enabled.\n"
    assert sessions.find_session(catalog, cookie, 2.0) is None
    assert ops("disable", "nobody@example.org").exit_code == 1


def test_an_operator_unlocks_a_user_and_an_address(ops: Ops, catalog: Catalog) -> None:
    ops("add", ADA, typed=RIGHT)
    pair = lockout.pair_key(ADA, "192.0.2.1")
    whose = (pair, lockout.account_key(ADA), lockout.address_key("192.0.2.1"))
    patience = LockoutPolicy(1, 1, 1)

    def enter() -> None:
        lockout.count_attempt(catalog, whose, patience, 4e9)

    enter()
    assert "UTC" in ops("list").output
    assert ops("unlock", ADA).output == "Unlocked.\n"
    with pytest.raises(TooManyRequests):
        enter()
    assert ops("unlock", "--address", "192.0.2.1").output == "Unlocked.\n"
    enter()
    assert ops("unlock", "nobody@example.org").output == "Nothing was held against them.\n"
    for nonsense in ("nonsense", "", "192.0.2.0/24", "192.0.2.1:80"):
        assert ops("unlock", "--address", nonsense).exit_code == 1
    assert ops("unlock").exit_code == 2
    assert ops("unlock", ADA, "--address", "192.0.2.1").exit_code == 2


@pytest.mark.spec("LOG-05")
@pytest.mark.parametrize("spelled", ["2001:db8::7", "2001:DB8::/64", "2001:db8:0:0::1/64"])
def test_an_address_of_a_network_is_unlocked_as_it_is_counted(
    ops: Ops, catalog: Catalog, spelled: str
) -> None:
    for key in (lockout.address_key("2001:db8::/64"), lockout.pair_key(ADA, "2001:db8::/64")):
        lockout.count_attempt(catalog, [key], LockoutPolicy(1, 1), 4e9)
        assert ops("unlock", "--address", spelled).output == "Unlocked.\n"
        lockout.count_attempt(catalog, [key], LockoutPolicy(1, 1), 4e9)
