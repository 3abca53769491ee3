"""The doctor, of whom one thing after another is made ill."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from store_client.auth import credentials as files
from store_client.auth.credentials import SavedLogin
from store_client.auth.login import LoginPrompts, login_with_consent
from store_client.cli.doctor import DoctorContext, DoctorFinding, run_checks, worst_exit_code
from store_client.configuration import Configuration
from store_client.http.session import HttpSession
from tests.client.auth.auth_service import ADA, ROBOT, Browser, Moving, World
from tests.client.cli_auth.conftest import Typist

pytestmark = pytest.mark.spec("CLI-83")


@pytest.fixture
def patient(config: Configuration, tmp_path: Path) -> "DoctorContext":
    session = HttpSession(config.url, sleep=lambda _: None)
    return DoctorContext(config, session, environ={}, folder=tmp_path)


def looked_at(patient: DoctorContext) -> dict[str, DoctorFinding]:
    with patient.session:
        found = list(run_checks(patient))
    assert len({finding.about for finding in found}) == len(found)
    for finding in found:
        assert finding.text
        assert finding.verdict == "ok" or finding.advice, finding
    return {finding.about: finding for finding in found}


def test_reports_healthy_setup(patient: DoctorContext, browser: Browser) -> None:
    around = LoginPrompts(lambda _: None, browser.visit, wait_s=20)
    login_with_consent(patient.session, patient.config, around=around)
    found = looked_at(patient)
    ill = {about for about, each in found.items() if each.verdict != "ok"}
    # In a test no worker runs.
    assert ill <= {"health", "disk"}
    assert worst_exit_code([each for about, each in found.items() if about not in ill]) == 0
    assert "renews itself" in found["login"].text
    assert ADA in found["login"].text
    assert "operations" in found["server"].text
    assert patient.config.url in found["store in use"].text
    token = files.read_login(patient.config)
    assert token is not None
    assert token.access_token not in repr(found)


def test_missing_login_is_no_error(patient: DoctorContext) -> None:
    found = looked_at(patient)
    assert (found["login"].verdict, found["login"].advice) == ("warn", "store login")
    assert found["credentials"].verdict == "ok"


def test_reports_refused_login(patient: DoctorContext) -> None:
    files.write_login(patient.config, SavedLogin("e30.eyJhIjoxfQ.c2ln", email=ADA))
    found = looked_at(patient)
    assert found["login"].verdict == "fail"
    assert worst_exit_code(list(found.values())) == 4


def test_reports_and_repairs_readable_credentials_file(patient: DoctorContext) -> None:
    files.write_login(patient.config, SavedLogin("a", expires=1.0))
    patient.config.credentials.chmod(0o644)
    assert looked_at(patient)["credentials"].verdict == "warn"
    assert patient.config.credentials.stat().st_mode & 0o777 == 0o600


def test_reports_invalid_file(patient: DoctorContext) -> None:
    files.write_login(patient.config, SavedLogin("a"))
    patient.config.credentials.write_text("{")
    found = looked_at(patient)
    assert found["credentials"].verdict == "fail"
    assert "store logout" in found["credentials"].advice


def test_reports_broken_cache(patient: DoctorContext) -> None:
    patient.config.definitions.mkdir(parents=True)
    (patient.config.definitions / "other.json").write_text("{")
    found = looked_at(patient)["cache"]
    assert (found.verdict, found.advice) == ("warn", "store clear-cache")


@pytest.mark.parametrize(("ahead", "side"), [(3600.0, "ahead of"), (-3600.0, "behind")])
def test_reports_wrong_clock(patient: DoctorContext, ahead: float, side: str) -> None:
    found = looked_at(replace(patient, now=Moving(ahead)))["clock"]
    assert found.verdict == "warn"
    assert side in found.text


def test_reports_service_account_or_its_invalid_file(
    patient: DoctorContext, world: World, tmp_path: Path
) -> None:
    path = world.robot(tmp_path / "robot.json")
    program = replace(patient, environ={"CLOUD_APPLICATION_CREDENTIALS": str(path)})
    assert ROBOT in looked_at(program)["login"].text
    path.write_text("")
    found = looked_at(program)["login"]
    assert (found.verdict, "robot.json" in found.text) == ("fail", True)


def test_reports_unwritable_folder(patient: DoctorContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    found = looked_at(replace(patient, config=replace(patient.config, home=home)))
    assert found["configuration"].verdict == "fail"


Answering = Callable[[httpx.Request], httpx.Response]


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no network")


def page(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text="<html>", headers={"Content-Type": "text/html"})


def absent(request: httpx.Request) -> httpx.Response:
    return httpx.Response(404, text="")


@pytest.mark.parametrize(("answer", "code"), [(refuse, 7), (page, 1), (absent, 1)])
def test_reports_wrong_or_missing_store(
    patient: DoctorContext, answer: Answering, code: int
) -> None:
    transport = httpx.MockTransport(answer)
    session = HttpSession(patient.config.url, transport=transport, sleep=lambda _: None)
    found = looked_at(replace(patient, session=session))
    assert (found["server"].verdict, found["server"].code) == ("fail", code)
    assert "login" not in found
    assert worst_exit_code(list(found.values())) == code


def test_a_store_that_is_not_well_or_has_no_service_is_warned_of(patient: DoctorContext) -> None:
    info = {"title": "A \x1b[2J store", "version": "2"}
    document = {"openapi": "3.0.3", "info": info, "paths": {}}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/swagger.json"):
            return httpx.Response(200, json=document)
        return httpx.Response(503, json={"title": "Not well", "status": 503})

    session = HttpSession(
        patient.config.url, transport=httpx.MockTransport(answer), sleep=lambda _: None
    )
    found = looked_at(replace(patient, session=session))
    for about in ("health", "authorization", "clock"):
        assert found[about].verdict == "warn", about
    assert "\x1b" not in found["server"].text
    assert "version 2" in found["server"].text


def test_a_store_that_is_not_encrypted_is_warned_of(patient: DoctorContext) -> None:
    config = replace(patient.config, url="http://store.example")
    session = HttpSession(config.url, transport=httpx.MockTransport(refuse), sleep=lambda _: None)
    found = looked_at(replace(patient, config=config, session=session))
    assert found["store in use"].verdict == "warn"


def test_reports_full_disk(patient: DoctorContext, tmp_path: Path) -> None:
    found = looked_at(replace(patient, folder=tmp_path / "absent"))
    assert found["disk"].verdict == "warn"


def test_runs_as_command(typist: Typist) -> None:
    began = time.monotonic()
    shown = typist.types("doctor", "--output", "table")
    assert "ok    server" in shown.stdout
    assert "warn  login" in shown.stdout
    assert "→ store login" in shown.stdout
    found = typist.reads("doctor")
    assert {each["verdict"] for each in found} <= {"ok", "warn"}
    assert all(set(each) == {"about", "verdict", "text", "advice"} for each in found)
    replace(typist, url="http://127.0.0.1:9").types("doctor", code=7)
    assert time.monotonic() - began < 30
