import csv
import hashlib
import json
from pathlib import Path
from uuid import uuid4

import pytest

from store_client import Client
from store_client.transfer import api
from tests.client.areas.builders import UUIDS, wrote
from tests.client.cli.people import Typist, showing
from tests.client.conftest import Served
from tests.waiting import until


@pytest.fixture
def typist(store: Served, tmp_path: Path) -> Typist:
    return Typist(tmp_path / "user", showing("admin"), {"STORE_CLIENT_URL": store.url})


@pytest.fixture
def run7(tmp_path: Path) -> Path:
    for name in ("meta.json", "reads/one.fastq", "reads/two.fastq"):
        wrote(tmp_path / "run7" / name, json.dumps(name).encode())
    return tmp_path / "run7"


@pytest.fixture
def selected(typist: Typist) -> str:
    found: str = typist.reads("select", "--new")["uuid"]
    return found


def names(typist: Typist) -> list[str]:
    found: list[str] = typist.reads("list")
    return found


def states(rows: list[dict[str, str]]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in rows}


@pytest.mark.spec("ARC-03")
def test_an_area_is_opened_selected_listed_and_forgotten(typist: Typist, store: Served) -> None:
    first = typist.reads("select", "--new")
    assert first["uri"] == f"{store.url}/v1/area/{first['uuid']}/"
    assert (first["state"], first["alias"]) == ("UNLOCKED", first["uuid"][:4])
    second = typist.reads("select", "--new", UUIDS[0])
    assert second["uuid"] == UUIDS[0]
    assert typist.reads("select", first["alias"])["uuid"] == first["uuid"]
    known = {area["uuid"]: area for area in typist.reads("areas")}
    assert {uuid: area["selected"] for uuid, area in known.items()} == {
        first["uuid"]: True,
        UUIDS[0]: False,
    }
    done = typist.types("forget", first["alias"])
    assert (done.exit_code, "its files stay" in done.stderr) == (0, True)
    assert [area["uuid"] for area in typist.reads("areas")] == [UUIDS[0]]
    assert typist.types("list").exit_code == 2
    assert typist.reads("select", first["uri"])["uuid"] == first["uuid"]


@pytest.mark.spec("ARC-03")
def test_an_area_that_is_not_there_is_not_selected(typist: Typist, store: Served) -> None:
    done = typist.types("select", f"{store.url}/v1/area/{uuid4()}/")
    assert done.exit_code == 5, done.output
    assert typist.types("select").exit_code == 2
    assert typist.types("select", "abc").exit_code == 2
    assert typist.types("areas").stdout.strip() == "[]"
    assert typist.types("areas", "--output", "table").stdout == ""


@pytest.mark.spec("ARC-02")
def test_an_area_of_another_store_is_refused_with_what_names_it(typist: Typist) -> None:
    done = typist.types("select", f"https://other.example/v1/area/{UUIDS[0]}/")
    assert done.exit_code == 2
    assert "--url https://other.example" in done.stderr


@pytest.mark.spec("ARC-02")
def test_an_alias_that_may_mean_two_areas_is_refused_everywhere(typist: Typist) -> None:
    for uuid in UUIDS[:2]:
        typist.reads("select", "--new", uuid)
    for words in (("select",), ("forget",), ("creds",), ("list", "--uuid")):
        done = typist.types(*words, "3fa9")
        assert done.exit_code == 2, words
        assert UUIDS[0] in done.stderr
        assert UUIDS[1] in done.stderr


@pytest.mark.spec("ARC-03")
def test_removed_area_is_shown_as_gone(typist: Typist, client: Client, selected: str) -> None:
    client.session.request("PATCH", api.area_path(selected), json={"state": "LOCKED"})
    assert typist.reads("areas")[0]["state"] == "LOCKED"
    client.session.request("DELETE", api.area_path(selected))
    assert typist.reads("areas")[0]["state"] in ("DELETING", "gone")


@pytest.mark.spec("ARC-05", "ARC-15")
def test_uploads_and_lists_directories_and_files(
    typist: Typist, selected: str, run7: Path, tmp_path: Path
) -> None:
    single = wrote(tmp_path / "x.txt", b"x")
    rows = typist.reads("files", str(run7), str(single))
    inside = ["meta.json", "reads/one.fastq", "reads/two.fastq"]
    assert states(rows) == dict.fromkeys([*inside, "x.txt"], "sent")
    assert names(typist) == [*inside, "x.txt"]
    long = {found["name"]: found for found in typist.reads("list", "-l")}
    assert long["x.txt"]["checksums"]["sha256"] == hashlib.sha256(b"x").hexdigest()
    assert long["x.txt"]["content_type"] == "text/plain"
    assert (long["x.txt"]["size"], long["x.txt"]["status"]) == (1, "CHECKSUMMED")
    shown = typist.types("list", "--long", "--output", "table").stdout
    for column in ("size", "content_type", "sha256", "crc32c", "status"):
        assert column in shown
    assert typist.types("list", "--output", "table").stdout.split() == names(typist)


@pytest.mark.spec("ARC-06")
def test_a_target_and_an_extension_choose_names(typist: Typist, selected: str, run7: Path) -> None:
    typist.reads("files", str(run7 / "meta.json"), "-t", "other/name.json")
    typist.reads("files", str(run7), "--file-extension", "fastq")
    assert names(typist) == ["other/name.json", "reads/one.fastq", "reads/two.fastq"]
    assert typist.types("files", str(run7), "-t", "name").exit_code == 2
    assert typist.types("files", str(run7 / "meta.json"), "--file-extension", "json").exit_code == 2


@pytest.mark.spec("ARC-07")
def test_sync_skips_files_with_same_content(typist: Typist, selected: str, run7: Path) -> None:
    typist.reads("files", str(run7))
    (run7 / "meta.json").write_bytes(b'"META.json"')
    wrote(run7 / "new", b"new")
    wanted = {"reads/one.fastq": "unchanged", "reads/two.fastq": "unchanged"}
    dry = typist.reads("files", "--sync", "--dry-run", str(run7))
    assert states(dry) == {**wanted, "meta.json": "to send", "new": "to send"}
    assert "new" not in names(typist)
    again = typist.reads("files", "-s", str(run7))
    assert states(again) == {**wanted, "meta.json": "sent", "new": "sent"}
    assert set(states(typist.reads("files", "-s", str(run7))).values()) == {"unchanged"}
    assert set(states(typist.reads("files", str(run7))).values()) == {"sent"}


@pytest.mark.spec("ARC-08", "ARC-09")
def test_quiet_shows_errors_only(typist: Typist, selected: str, run7: Path) -> None:
    done = typist.types("files", "-q", "--no-transfer-acceleration", str(run7))
    assert (done.exit_code, done.output) == (0, "")
    done = typist.types("files", "-q", str(run7 / "absent"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no" in done.stderr


@pytest.mark.spec("ARC-08")
def test_locked_area_stops_after_first_file(
    typist: Typist, client: Client, selected: str, run7: Path
) -> None:
    client.session.request("PATCH", api.area_path(selected), json={"state": "LOCKED"})
    done = typist.types("files", "--jobs", "1", str(run7))
    assert done.exit_code == 6, done.output
    assert "LOCKED" in done.stderr
    assert [row["state"] for row in json.loads(done.stdout)] == ["failed"]


@pytest.mark.spec("ARC-17")
def test_status_shows_file_of_selected_profile(
    typist: Typist, selected: str, run7: Path, store: Served
) -> None:
    typist.reads("files", str(run7))
    found = typist.reads("status", "meta.json")
    assert (found["name"], found["checksum"]) == ("meta.json", "CHECKSUMMED")
    assert found["checksums"]["crc32c"]
    profile = {"profiles": {"work": {"url": store.url}}}
    (typist.home / "profiles.json").write_text(json.dumps(profile))
    elsewhere = Typist(typist.home, typist.make)
    words = ("status", "meta.json", "--env", "work", "--uuid", selected[:4])
    # Validation runs after the upload was answered.
    until(lambda: elsewhere.reads(*words)["validation"] == "VALIDATED")
    assert typist.types("status", "absent").exit_code == 5


@pytest.mark.spec("ARC-17")
def test_shows_invalid_json(typist: Typist, selected: str, tmp_path: Path) -> None:
    typist.reads("files", str(wrote(tmp_path / "bad.json", b'{"a": ')))
    found: dict[str, str] = {}

    def judged() -> bool:
        found.update(typist.reads("status", "bad.json"))
        return found["validation"] == "INVALID"

    until(judged)
    assert (found["checksum"], bool(found["cause"])) == ("CHECKSUMMED", True)


@pytest.mark.spec("ARC-18")
def test_a_report_lists_every_file_with_its_states(
    typist: Typist, selected: str, run7: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typist.reads("files", str(run7))
    monkeypatch.chdir(tmp_path)
    assert typist.reads("report") == {"area": selected, "file": f"{selected}.tsv", "files": 3}
    with (tmp_path / f"{selected}.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["name"] for row in rows] == names(typist)
    content = (run7 / "meta.json").read_bytes()
    assert rows[0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert rows[0]["status"] == "CHECKSUMMED"
    for option in ("--output_file_name", "--output-file-name"):
        path = wrote(tmp_path / "states.csv", b"before")
        typist.reads("report", option, str(path), "--uuid", selected)
        assert path.read_text().startswith("name,size,")
    assert typist.types("report", "--output-file-name", str(tmp_path / "no/r")).exit_code == 2
    assert [path.name for path in tmp_path.glob(".states*")] == []


@pytest.mark.spec("ARC-16")
def test_credentials_are_shown_and_go_nowhere_else(
    typist: Typist, selected: str, run7: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = typist.types("creds", selected, "a b.txt", "--log-level", "DEBUG")
    assert done.exit_code == 0, done.output
    (given,) = done.stdout.splitlines()
    name, url = given.split("\t")
    assert name == "a b.txt"
    secret = url.partition("?")[2]
    assert secret
    assert secret not in done.stderr
    assert secret not in caplog.text
    whole = typist.reads("creds", selected[:4], "--json")
    assert (whole["kind"], whole["urls"]) == ("urls", {})
