"""Many bundles in one upload: each by itself, resumed as a whole, one report."""

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import Misused
from store_client.uploads.bulk import (
    BulkReport,
    bulk_journal,
    hold_journal,
    plan_folders,
    plan_rows,
    upload_bundles,
)
from store_client.uploads.options import UploadOptions
from store_client.uploads.table import RenderedBundle
from tests.client.cli.people import Typist, showing
from tests.client.conftest import Served
from tests.client.upload.recording import Recording, client_of
from tests.storage.contracts.real_data import VARIABLE

pytestmark = pytest.mark.spec("UPL-64")


@pytest.fixture
def typist(store: Served, tmp_path: Path) -> Typist:
    return Typist(tmp_path / "user", showing("admin"), {"STORE_CLIENT_URL": store.url})


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Five folders, two of them below another."""
    root = tmp_path / "study"
    for number, name in enumerate(("a", "b", "c", "deep/d", "deep/e")):
        folder = root / name
        folder.mkdir(parents=True)
        (folder / "sample.json").write_text(json.dumps({"sample": name, "number": number}))
        (folder / "reads.txt").write_bytes(b"ACGT" * (number + 1))
    return root


def uploaded(client: Client, root: Path, **more: Any) -> BulkReport:
    options = UploadOptions(root, "aws", **more)
    sources = plan_folders(options)
    return upload_bundles(client, options, sources, bulk_journal(client, options, root))


def listed(client: Client) -> dict[str, list[str]]:
    """Names of files by `uuid.version` of all bundles."""
    found = {}
    for one in client.items("get_bundles_all", replica="aws"):
        bundle = client.call("get_bundle", replica="aws", **one)["bundle"]
        found[f"{one['uuid']}.{one['version']}"] = [file["name"] for file in bundle["files"]]
    return found


def test_each_lowest_folder_becomes_a_bundle(recorded: Client, study: Path) -> None:
    done = uploaded(recorded, study)
    assert [one.label for one in done.results] == ["a", "b", "c", "deep/d", "deep/e"]
    assert done.states == {"uploaded": 5}
    names = listed(recorded)
    assert list(names.values()) == [["reads.txt", "sample.json"]] * 5
    assert {f"{one.uuid}.{one.version}" for one in done.results} == names.keys()


def test_a_folder_with_files_takes_all_below_it(recorded: Client, study: Path) -> None:
    (study / "deep" / "d" / "reads" / "raw").mkdir(parents=True)
    (study / "deep" / "d" / "reads" / "raw" / "1.txt").write_text("x")
    done = uploaded(recorded, study)
    assert [one.label for one in done.results] == ["a", "b", "c", "deep/d", "deep/e"]
    found = {one.label: f"{one.uuid}.{one.version}" for one in done.results}
    names = listed(recorded)[found["deep/d"]]
    assert names == ["reads.txt", "reads/raw/1.txt", "sample.json"]


def test_a_file_above_folders_makes_one_bundle_of_them(study: Path) -> None:
    (study / "deep" / "notes.txt").write_text("x")
    planned = {one.label: one for one in plan_folders(UploadOptions(study, "aws"))}
    assert list(planned) == ["a", "b", "c", "deep"]
    assert [one.entry_name for one in planned["deep"].files] == [
        "d/reads.txt",
        "d/sample.json",
        "e/reads.txt",
        "e/sample.json",
        "notes.txt",
    ]


@pytest.mark.parametrize("name", ["notes.txt", ".DS_Store", "deep/.DS_Store", ".git/config"])
def test_files_beside_all_bundles_are_refused(study: Path, name: str) -> None:
    (study / name).parent.mkdir(exist_ok=True)
    (study / name).write_text("x")
    with pytest.raises(Misused, match=f"1 file lies beside .*'{name}'") as told:
        plan_folders(UploadOptions(study, "aws"))
    assert "move them" in told.value.hint


def test_hidden_files_belong_to_the_bundle_around_them(study: Path) -> None:
    (study / "deep" / "d" / ".run").mkdir()
    (study / "deep" / "d" / ".run" / "x").write_text("x")
    (study / "only").mkdir()
    (study / "only" / ".hidden").write_text("x")
    planned = {one.label: one for one in plan_folders(UploadOptions(study, "aws"))}
    assert list(planned) == ["a", "b", "c", "deep/d", "deep/e", "only"]
    assert ".run/x" in [one.entry_name for one in planned["deep/d"].files]


def test_a_directory_without_folders_is_one_bundle(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study / "a")
    (planned,) = plan_folders(UploadOptions(Path(), "aws"))
    assert planned.label == "a"
    assert [one.entry_name for one in planned.files] == ["reads.txt", "sample.json"]


def test_another_run_sends_what_changed_as_a_new_version(
    recorded: Client, recording: Recording, study: Path
) -> None:
    first = {one.label: one for one in uploaded(recorded, study).results}
    recording.asked.clear()
    again = uploaded(recorded, study)
    assert again.states == {"unchanged": 5}
    assert {line.split()[0] for line in recording.asked} == {"GET"}
    (study / "b" / "sample.json").write_text('{"sample": "changed"}')
    (study / "f").mkdir()
    (study / "f" / "x.json").write_text("{}")
    third = {one.label: one for one in uploaded(recorded, study).results}
    states = {label: one.state for label, one in third.items()}
    assert states == dict.fromkeys(first, "unchanged") | {"b": "uploaded", "f": "uploaded"}
    assert third["b"].uuid == first["b"].uuid
    assert third["b"].version > first["b"].version


def test_a_bundle_that_was_deleted_is_made_anew(recorded: Client, study: Path) -> None:
    first = {one.label: one for one in uploaded(recorded, study).results}
    recorded.call("delete_bundle", uuid=first["b"].uuid, replica="aws", reason="wrong")
    second = {one.label: one for one in uploaded(recorded, study).results}
    states = {label: one.state for label, one in second.items()}
    assert states == dict.fromkeys(first, "unchanged") | {"b": "uploaded"}
    assert second["b"].uuid != first["b"].uuid
    assert len(listed(recorded)) == 5


def test_a_dry_run_sends_nothing(recorded: Client, recording: Recording, study: Path) -> None:
    assert uploaded(recorded, study, dry_run=True).states == {"planned": 5}
    assert recording.asked == []


DEATHS = [
    ("POST /v1/area", 1),
    ("PUT /v1/area", 1),
    ("PUT /v1/files", 1),
    ("PUT /v1/bundles", 1),
    ("PUT /v1/bundles", 4),
    ("DELETE /v1/area", 1),
]


def signalled(
    config: Configuration, study: Path, number: signal.Signals, when: tuple[str, int]
) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "tests.client.upload.recording", str(config.home), config.url]
    words = ["upload", str(study), "--each-folder", "--jobs", "2"]
    return subprocess.run(
        [*program, str(int(number)), when[0], str(when[1]), *words],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("when", DEATHS)
def test_a_killed_upload_is_resumed_as_a_whole(
    store: Served, config: Configuration, study: Path, when: tuple[str, int]
) -> None:
    died = signalled(config, study, signal.SIGKILL, when)
    assert died.returncode == -9, died.stderr
    with client_of(config, Recording()) as client:
        done = uploaded(client, study)
        assert {one.state for one in done.results} <= {"uploaded", "unchanged"}
        assert {f"{one.uuid}.{one.version}" for one in done.results} == listed(client).keys()


def test_an_interrupted_upload_tells_what_is_kept_and_how_to_go_on(
    store: Served, config: Configuration, study: Path
) -> None:
    died = signalled(config, study, signal.SIGINT, ("PUT /v1/bundles", 2))
    assert died.returncode == 130, died.stderr
    assert "10 files are in the store" in died.stderr
    again = f"store upload {study} --each-folder --jobs 2 --url {config.url}"
    assert f"\n  {again}\n" in died.stderr


class RefusingOne(httpx.BaseTransport):
    """Refuses the bundle that has a certain file, as a store with schemas does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.through = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        is_bundle = request.method == "PUT" and request.url.path.startswith("/v1/bundles/")
        if is_bundle and self.name in request.read().decode():
            problem = {"status": 422, "code": "metadata_invalid", "detail": "it is not so"}
            return httpx.Response(422, json=problem, request=request)
        return self.through.handle_request(request)

    def close(self) -> None:
        self.through.close()


def test_one_bundle_that_fails_leaves_the_others_whole(
    store: Served, config: Configuration, recorded: Client, study: Path
) -> None:
    (study / "c" / "bad.json").write_text("{}")
    with client_of(config, RefusingOne("bad.json")) as refused:
        first = {one.label: one for one in uploaded(refused, study).results}
    assert {label for label, one in first.items() if one.state == "failed"} == {"c"}
    assert "it is not so" in first["c"].error
    (study / "c" / "bad.json").unlink()
    second = uploaded(recorded, study)
    assert second.states == {"unchanged": 4, "uploaded": 1}
    assert len(listed(recorded)) == 5


def test_a_failed_bundle_is_in_the_report_and_the_exit_code(
    store: Served, config: Configuration, study: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.tsv"
    typist = Typist(
        tmp_path / "user",
        lambda config: client_of(config, RefusingOne("deep.json")),
        {"STORE_CLIENT_URL": store.url},
    )
    (study / "deep" / "e" / "deep.json").write_text("{}")
    words = ("upload", str(study), "--each-folder", "--no-progress", "--report", str(report))
    done = typist.types(*words)
    assert done.exit_code == 1
    assert "1 of 5 bundles failed; the first: " in done.stderr
    with report.open(newline="") as table:
        rows = {row["label"]: row for row in csv.DictReader(table, delimiter="\t")}
    assert {label: row["state"] for label, row in rows.items()} == {
        **dict.fromkeys(("a", "b", "c", "deep/d"), "uploaded"),
        "deep/e": "failed",
    }
    assert "it is not so" in rows["deep/e"]["error"]


def test_a_row_of_a_table_becomes_a_bundle(typist: Typist, tmp_path: Path) -> None:
    (tmp_path / "reads").mkdir()
    for run in ("R1", "R2"):
        (tmp_path / "reads" / f"{run}.txt").write_text(run)
    (tmp_path / "runs.tsv").write_text("run\torganism\nR1\tDanio rerio\nR2\tMus musculus\n")
    template = {"files": {"run.json": {"organism": "{organism}"}, "{run}.txt": "@reads/{run}.txt"}}
    (tmp_path / "template.json").write_text(json.dumps(template))
    words = ("upload", "--table", str(tmp_path / "runs.tsv"), "--template")
    words = (*words, str(tmp_path / "template.json"), "--no-progress")
    made = typist.reads(*words)
    assert [(row["label"], row["state"], row["files"]) for row in made] == [
        ("R1", "uploaded", 2),
        ("R2", "uploaded", 2),
    ]
    found = typist.reads("file", "cat", f"{made[1]['uuid']}/run.json")
    assert found == {"organism": "Mus musculus"}
    assert typist.types("file", "cat", f"{made[0]['uuid']}/R1.txt").stdout == "R1"
    assert {row["state"] for row in typist.reads(*words)} == {"unchanged"}
    workspaces = list(tmp_path.rglob("*.d"))
    assert workspaces == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("{study}", "--each-folder", "--bundle-uuid", "0b" * 16), "one bundle, not for many"),
        (("{study}", "--report", "r.tsv"), "--each-folder or --table"),
        (("{study}", "--template", "{study}/a/sample.json"), "go with --table"),
        (("{study}", "--table", "{study}/a/sample.json"), "name one directory, or one --table"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    typist: Typist, study: Path, words: tuple[str, ...], told: str
) -> None:
    done = typist.types("upload", *(word.format(study=study) for word in words))
    assert done.exit_code == 2
    assert told in done.stderr


def test_two_rows_of_one_name_are_refused(typist: Typist, tmp_path: Path) -> None:
    (tmp_path / "runs.tsv").write_text("run\tx\nR1\t1\nR1\t2\n")
    done = typist.types("upload", "--table", str(tmp_path / "runs.tsv"))
    assert done.exit_code == 2
    assert "lines 2 and 3 are both bundle 'R1'" in done.stderr


def test_faulty_rows_are_refused_with_their_line_before_anything_is_sent(
    typist: Typist, store: Served, tmp_path: Path
) -> None:
    table, template = tmp_path / "runs.tsv", tmp_path / "t.json"
    words = ("upload", "--table", str(table))
    table.write_text("run\tfile\nR1\truns.tsv\nR2\tabsent.txt\n")
    done = typist.types(*words)
    assert done.exit_code == 2
    assert f"store: line 3: cannot read {tmp_path / 'absent.txt'}" in done.stderr
    table.write_text("run\nR1\n")
    template.write_text(json.dumps({"files": {"a": [], "a/b": []}}))
    done = typist.types(*words, "--template", str(template))
    assert done.exit_code == 2
    assert "line 2: a file has the name of a folder of 'a/b'" in done.stderr
    assert not any(store.stores.areas.list(""))


def test_a_document_that_a_power_cut_left_empty_is_written_again(tmp_path: Path) -> None:
    row = RenderedBundle("R1", 2, {"run.json": b'{"run": "R1"}'}, {})
    options = UploadOptions(tmp_path, "aws")
    workspace = tmp_path / "workspace"
    ((before,),) = [one.files for one in plan_rows([row], options, workspace)]
    Path(before.file.path).write_bytes(b"")
    ((after,),) = [one.files for one in plan_rows([row], options, workspace)]
    assert after.file.size == 13
    assert Path(after.file.path).read_bytes() == b'{"run": "R1"}'


def test_two_runs_of_one_table_at_once_are_refused(
    store: Served, config: Configuration, typist: Typist, tmp_path: Path
) -> None:
    table = tmp_path / "runs.tsv"
    table.write_text("run\nR1\n")
    at_home = replace(config, home=typist.home)
    with client_of(at_home, Recording()) as client:
        journal = bulk_journal(client, UploadOptions(tmp_path, "aws"), table)
    with hold_journal(journal):
        done = typist.types("upload", "--table", str(table))
        assert done.exit_code == 1
        assert "store: this is being uploaded already\n  wait until" in done.stderr
        assert list(typist.home.rglob("*.d")) == []
    assert [one["state"] for one in typist.reads("upload", "--table", str(table))] == ["uploaded"]


def test_no_cell_of_a_report_is_a_formula(typist: Typist, tmp_path: Path) -> None:
    labels = ["=1+1", "+1", "-1", "@SUM(A1)", "R1"]
    table, report = tmp_path / "runs.tsv", tmp_path / "report.csv"
    table.write_text("\n".join(["run", *labels]) + "\n")
    made = typist.reads("upload", "--table", str(table), "--report", str(report))
    assert [one["label"] for one in made] == labels
    with report.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["label"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "R1"]
    assert [row["uuid"] for row in rows] == [one["uuid"] for one in made]


def test_real_runs_become_bundles(typist: Typist, tmp_path: Path) -> None:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with real metadata")
    template = {
        "bundle": "{Run_s}",
        "files": {
            "run.json": {"run": "{Run_s}", "megabases": "{MBases_l:number}"},
            "sample.json": {"organism": "{Organism_s}", "project": "{BioProject_s}"},
        },
    }
    (tmp_path / "template.json").write_text(json.dumps(template))
    path = Path(folder) / "runs" / "GSE44183.tsv"
    words = ("upload", "--table", str(path), "--template", str(tmp_path / "template.json"))
    made = typist.reads(*words, "--no-progress")
    rows = len(path.read_text().splitlines()) - 1
    assert [row["state"] for row in made] == ["uploaded"] * rows
