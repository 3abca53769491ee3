"""login, logout, whoami and profiles, as they are typed."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import SigningKeyFile
from store_client.auth import credentials
from store_client.configuration import Configuration
from tests.client.auth.auth_service import ADA, ROBOT, Browser, World
from tests.client.cli_auth.conftest import Typist


@pytest.fixture
def token(world: World) -> str:
    """As an operator makes one."""
    return issue_token(
        SigningKeyFile(world.settings.home, world.settings.secret_key).read(),
        TokenSpec(ADA, ("store_ingest",), 3600),
        issuer=world.auth_url,
        audience=["store"],
        now=time.time(),
        token_id="1",
    )


@pytest.mark.spec("CLI-73")
def test_logs_in_with_token_and_out_again(typist: Typist, token: str) -> None:
    done = typist.types("login", "--access-token", "-", given=f"{token}\n")
    assert f"Logged in at {typist.url} as {ADA} until 20" in done.stderr
    assert "history" not in done.output
    who = typist.reads("whoami")
    assert (who["email"], who["how"], who["checked"]) == (ADA, "token", True)
    assert (who["url"], who["standing"], who["renews"]) == (typist.url, "good", False)
    allowed = {row["operation"]: row["extent"] for row in typist.reads("whoami", "--permissions")}
    assert who["permissions"]
    assert who["permissions"].items() <= allowed.items()
    few = typist.types("whoami", "--json", "email,how")
    assert json.loads(few.stdout) == {"email": ADA, "how": "token"}
    assert json.loads(typist.types("whoami", "--json=how").stdout) == {"how": "token"}
    assert "did you mean: email?" in typist.types("whoami", "--json", "emial", code=2).stderr
    listed = typist.types("whoami", "--permissions", "--json", "operation")
    assert {"operation": "get-bundle"} in json.loads(listed.stdout)
    out = typist.types("logout")
    assert "Logged out" in out.stderr
    typist.types("whoami", code=4)
    assert "You were not logged in" in typist.types("logout").stderr
    for each in (done, out):
        assert token not in each.output


@pytest.mark.spec("CLI-74")
def test_a_token_on_the_command_line_is_warned_of_and_not_repeated(
    typist: Typist, token: str
) -> None:
    done = typist.types("login", "--access-token", token, "--log-level", "DEBUG")
    assert "history" in done.stderr
    assert token not in done.output
    for words in (("whoami",), ("profiles",), ("doctor",), ("logout",)):
        assert token not in typist.types(*words, "--log-level", "DEBUG").output


@pytest.mark.spec("CLI-73")
def test_invalid_token_is_refused_in_one_line(typist: Typist, world: World) -> None:
    assert "not an access token" in typist.types("login", "--access-token", "x", code=2).stderr
    typist.types("login", "--access-token", "-", given="", code=2)
    other = issue_token(
        SigningKeyFile(world.settings.home, world.settings.secret_key).read(),
        TokenSpec(ADA, (), 3600),
        issuer=world.auth_url,
        audience=["elsewhere"],
        now=time.time(),
        token_id="1",
    )
    done = typist.types("login", "--access-token", "-", given=other, code=4)
    assert "rejects this token: The token is for another audience" in done.stderr
    assert "(it is for elsewhere)" in done.stderr
    assert other not in done.output


@pytest.mark.spec("CLI-73")
def test_rejects_conflicting_options(typist: Typist) -> None:
    typist.types("login", "--access-token", "x", "--remote", code=2)
    typist.types("login", "--default", code=2)
    typist.types("login", "--timeout-seconds", "0", code=2)


def printed_url(line: str) -> str:
    return next(word for word in line.split() if word.startswith("http"))


@pytest.mark.spec("CLI-70")
def test_logs_in_with_browser_that_must_be_opened_by_hand(
    typist: Typist, browser: Browser, config: Configuration
) -> None:
    with typist.starts("login", "--log-level", "DEBUG") as process:
        assert process.stderr is not None
        lines = []
        while "/oauth/authorize" not in "".join(lines):
            lines.append(process.stderr.readline())
        browser.visit(printed_url(lines[-1]))
        _, rest = process.communicate(timeout=30)
    assert process.returncode == 0, rest
    assert f"as {ADA}." in rest
    assert browser.pages == ["You are logged in"]
    kept = credentials.read_login(config)
    assert kept is not None
    for secret in (kept.access_token, kept.refresh_token):
        assert secret not in "".join(lines) + rest
    assert config.credentials.stat().st_mode & 0o777 == 0o600
    assert typist.reads("whoami")["renews"] is True
    assert "the login was revoked" in typist.types("logout").stderr


@pytest.mark.spec("CLI-70")
def test_ctrl_c_ends_wait_for_browser(typist: Typist) -> None:
    with typist.starts("login") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        assert "/oauth/authorize" in lines[1]
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert rest.strip() == "store: interrupted"


@pytest.mark.spec("CLI-70")
def test_reports_time_out_of_browser_login(typist: Typist) -> None:
    done = typist.types("login", "--timeout-seconds", "1", code=9)
    assert "store login --remote" in done.stderr


@pytest.mark.spec("CLI-72")
def test_logs_in_with_device_code(typist: Typist, browser: Browser) -> None:
    with typist.starts("login", "--remote", "--quiet") as process:
        assert process.stderr is not None
        line = ""
        while "user_code=" not in line:
            line = process.stderr.readline()
        browser.visit(line.split()[-1].rstrip(")\n"))
        _, rest = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert typist.reads("whoami")["email"] == ADA


@pytest.mark.spec("CLI-82")
def test_a_profile_is_a_name_for_a_store(typist: Typist, token: str) -> None:
    typist.types_anywhere("whoami", "--profile", "work", code=2)
    first = typist.types("login", "--access-token", "-", "--profile", "work", given=token)
    assert "work is the default profile" in first.stderr
    typist.types("login", "--access-token", "-", "--profile", "other", given=token)
    (other, work) = json.loads(typist.types_anywhere("profiles", "--json").stdout)
    assert (work["profile"], work["url"], work["default"]) == ("work", typist.url, True)
    assert (other["profile"], other["default"]) == ("other", False)
    assert (work["email"], work["standing"]) == (ADA, "good")
    assert json.loads(typist.types_anywhere("whoami", "--json").stdout)["profile"] == "work"
    typist.types_anywhere("profiles", "--default", "other")
    assert json.loads(typist.types_anywhere("whoami", "--json").stdout)["profile"] == "other"
    assert (
        "(known: other, work)" in typist.types_anywhere("profiles", "--default", "x", code=2).stderr
    )
    typist.types_anywhere("logout", "--profile", "work")
    typist.types_anywhere("whoami", "--env", "work", code=4)
    assert json.loads(typist.types_anywhere("whoami", "--json").stdout)["email"] == ADA


@pytest.mark.spec("CLI-82")
def test_unreachable_store_creates_no_profile(typist: Typist) -> None:
    away = replace(typist, url="http://127.0.0.1:9")
    away.types("login", "--profile", "away", code=7)
    assert json.loads(away.types_anywhere("profiles", "--json").stdout) == []


@pytest.mark.spec("CLI-79")
def test_whoami_shows_stored_login_during_outage(
    typist: Typist, token: str, config: Configuration
) -> None:
    typist.types("login", "--access-token", "-", given=token)
    kept = credentials.read_login(config)
    assert kept is not None
    away = replace(config, url="http://127.0.0.1:9")
    credentials.write_login(away, kept)
    done = replace(typist, url=away.url).types("whoami", "--json", code=7)
    shown = json.loads(done.stdout)
    assert (shown["email"], shown["checked"]) == (ADA, False)


@pytest.mark.spec("CLI-81")
def test_a_program_goes_before_the_login(
    typist: Typist, token: str, world: World, tmp_path: Path
) -> None:
    path = world.robot(tmp_path / "robot.json")
    program = replace(typist, environ={"CLOUD_APPLICATION_CREDENTIALS": str(path)})
    assert "takes precedence" in program.types("login", "--access-token", "-", given=token).stderr
    who = program.reads("whoami")
    assert (who["email"], who["how"]) == (ROBOT, "service account")
    assert "still use that service account" in program.types("logout").stderr
    path.write_text("{")
    told = program.types("whoami", code=2).stderr
    assert "robot.json is not a credentials file" in told


@pytest.mark.spec("CLI-73")
def test_prints_results_as_json(typist: Typist, token: str) -> None:
    done = typist.types("login", "--access-token", "-", "--json", "--quiet", given=token)
    assert json.loads(done.stdout)["email"] == ADA
    assert done.stderr == ""
    left = json.loads(typist.types("logout", "--json").stdout)
    assert (left["was_in"], left["email"], left["revoked"]) == (True, ADA, False)
