"""Every example of the documentation runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_schema_validator import OAS30Validator

from api.app import OPERATIONS
from api.http.openapi import build_definition
from api.http.operation import Operation
from auth.authorization import SUBSCRIBING_OPERATIONS
from auth.policies.grammar import parse_policy
from config import load_settings
from examples.login import fill_in_forms
from ops import ports
from ops.local_store import LocalStore, running_store
from ops.procfile import ROOT
from tests import warm_commands
from tests.least_roles import least_role

pytestmark = [pytest.mark.long, pytest.mark.spec("OPS-20")]

PAGES = [
    ROOT / "README.md",
    ROOT / "client" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

OF_THE_CLIENT = (
    "client/README.md",
    "docs/index.md",
    "docs/first-steps.md",
    "docs/depositing.md",
    "docs/downloading.md",
    "docs/drs.md",
    "docs/python.md",
    "docs/subscribing.md",
)
"""Pages whose commands are the client's, each typed in a folder of its own."""

TYPED = ("docs/api.md", "docs/operations.md", "docs/authorization.md", *OF_THE_CLIENT)
"""Pages whose shell commands are typed, one block after the other, while a store runs; those of
README.md are by `tests/ops/test_whole_store.py`."""

EXCUSED: Mapping[str, str] = {
    # Of README.md
    "make demo": "makes its own virtual environment; the demonstration has tests of its own",
    "make run": "makes its own virtual environment; the store it starts is the one of these tests",
    # Of docs/operations.md
    'pg_dump --format custom --file catalog.dump "$DATABASE"': "wants a PostgreSQL server",
    # Of docs/deployment.md; tests/systemd types those of systemd
    "cp .env.example .env": "fills a checkout; compose.yaml is held by tests/ops/test_deployment.py",
    "docker compose up -d --build": "wants Docker",
    "docker compose exec api python -m ops token": "wants Docker",
    "cd /srv/store": "wants a machine of its own",
    "python3.11 -m venv /opt/store": "writes to /opt and downloads",
    "install -D -m 600 /dev/null /etc/store/environment": "writes to /etc",
    "useradd --system": "makes a user of the system",
    "python3.11 -m compileall -q /srv/store": "wants that checkout",
    "install -m 755 deploy/store-ops": "writes to /usr/local",
    "install -m 644 deploy/store@.service": "writes below /etc",
    "store-ops migrate": "wants systemd",
    "store-ops token": "wants systemd",
    "for name in files copies large index deliver clock; do": "writes below /etc",
    "install -D -m 644 deploy/store-worker.conf": "writes below /etc",
    "done": "the end of that loop",
    "systemctl enable --now": "wants systemd",
    # Of docs/workflows.md, whose workflows are run by tests/real/test_workflows.py
    "store search danio liver --manifest cohort.tsv": "tests/real/test_workflows.py types it",
    "nextflow run count_reads.nf": "wants Nextflow",
    "snakemake --cores 4": "wants Snakemake",
    # Of the pages of the client
    ". .venv/bin/activate": "the tests run in the environment already",
    "pip install './client[pandas]'": "downloads; these tests have the extra already",
    "pip install ./client": "downloads; the client of these tests is installed already",
    "store upload run7 --staging-bucket": "wants a bucket of Amazon's; "
    "one is stood in for by tests/client/upload/test_staging_s3.py",
}
"""Lines that no bare machine can run, by their beginnings, and why."""

ELSEWHERE: Mapping[str, str] = {
    "def follow": "tests/api/test_live_feed.py",
    "def log_in": "tests/test_examples.py",
    "def by_standard_webhooks": "tests/pipelines/test_signatures.py",
}
"""Programs, by what is in them, and the test that runs each."""

INDEXED = """for _ in {1..200}; do
  if curl -sS -d '{"es_query": {}}' -H "$J" "$API/search?replica=aws" | grep -q "$U"; then break; fi
  sleep 0.1
done;"""
"""What is typed where a reader sleeps for two seconds: a busy machine takes its time to index."""

FOUND = """for _ in {1..200}; do
  if [ "$(store post-search --replica aws --output lines --es-query '
    {"match": {"files.specimen_json.tissue": "kidney"}}' | wc -l)" = 2 ]; then break; fi
  sleep 0.1
done;"""
"""The same by the client."""

THREE_FOUND = """for _ in {1..200}; do
  if store search run:R1 | grep -q uuid && store search run:R2 | grep -q uuid &&
    store search sex:male | grep -q uuid; then break; fi
  sleep 0.1
done;"""
"""The same of the first steps."""

AGEING = """for _ in {1..200}; do
  if [ "$(store search study:ageing --json uuid --query 'length(@)')" = 2 ]; then break; fi
  sleep 0.1
done;"""
"""The same of the page of Python."""

STARTED = """for _ in {1..200}; do
  if store post-search --replica aws --output lines --es-query '{}' |
    grep -q "$(python3 -c 'import json; print(json.load(open("run7.json"))["bundle_uuid"])')"
  then break; fi
  sleep 0.1
done;"""
"""The same of the start page."""

IN_THE_BACKGROUND = re.compile(r"^(python3 .* 9099 .*&)$", re.MULTILINE)
LISTENS = "for _ in {1..600}; do (exec 3<> /dev/tcp/127.0.0.1/9099) 2> /dev/null && break; sleep 0.1; done"
"""Until a receiver answers: readers take longer to type the next command than it does to start."""

PROGRAM = re.compile(r"^# (\w+)\.py\n")
"""How a program begins that is saved in a file of that name, and used by the commands after it."""


@dataclass(frozen=True)
class Example:
    """One fenced block of a page."""

    page: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines without empty ones."""
        return [line for line in self.text.splitlines() if line.strip()]


def examples() -> Iterator[Example]:
    for page in PAGES:
        for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
            yield Example(str(page.relative_to(ROOT)), language, text)


def excused(line: str) -> bool:
    return any(line.strip().startswith(beginning) for beginning in EXCUSED)


def typed(page: str) -> str:
    """All commands of a page, but for those that are excused."""
    shown = (one for one in examples() if one.page == page and one.language == "sh")
    return "\n".join(line for one in shown for line in one.lines if not excused(line))


@dataclass(frozen=True)
class Stage(LocalStore):
    """A running store, and the folder of programs that its users have first in PATH."""

    programs: Path


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with (
        warm_commands.install(tmp_path_factory.mktemp("commands")) as programs,
        running_store(tmp_path_factory.mktemp("store"), {}) as found,
    ):
        yield Stage(**vars(found), programs=programs)


def at_stage(text: str, stage: Stage) -> str:
    """The text with the addresses of the store of these tests."""
    text = text.replace("http://127.0.0.1:8000", stage.api)
    return text.replace("http://127.0.0.1:8001", stage.auth)


def run(
    script: str, stage: Stage, folder: Path, *, waiting: str = INDEXED
) -> subprocess.CompletedProcess[str]:
    """Type it where the store of these tests is the one that `make run` keeps."""
    script = at_stage(script, stage)
    script = script.replace(".store-home", str(stage.home))
    script = IN_THE_BACKGROUND.sub(rf"\1\n{LISTENS}", script)
    script = script.replace("9099", str(ports.find_free_port()))
    script = script.replace("sleep 2;", waiting)
    # A reader sees a refusal; here it ends the script.
    script = f'curl() {{ command curl --fail-with-body "$@"; }}\n{script}'
    folders = [str(stage.programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={
            "PATH": os.pathsep.join(folders),
            "PYTHONPATH": str(ROOT),
            "STORE_HOME": str(stage.home),
            "STORE_PORT": stage.api.rpartition(":")[2],
            "STORE_CLIENT_HOME": str(folder / "client-home"),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.skipif(not shutil.which("curl"), reason="examples are typed with curl")
def test_the_commands_of_the_page_of_the_api_work_as_they_are_printed(
    stage: Stage, tmp_path: Path
) -> None:
    done = run(typed("docs/api.md"), stage, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr}"
    assert re.findall(r'"total_hits":(.)', done.stdout) == ["1"], done.stdout[2000:9000]


def test_commands_of_operations_page_work_as_printed(stage: Stage, tmp_path: Path) -> None:
    save_programs("docs/operations.md", stage, tmp_path)
    done = run(typed("docs/operations.md"), stage, tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("store-*.backup"))


@pytest.mark.skipif(not shutil.which("curl"), reason="examples are typed with curl")
def test_the_commands_of_the_page_of_rights_work_as_they_are_printed(
    stage: Stage, tmp_path: Path
) -> None:
    done = run(typed("docs/authorization.md"), stage, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr}"
    assert "ada@example.org may log in." in done.stdout
    for told in (
        '"source":"role store_ingest"',
        '"source":"group curators, role depositor"',
        '"reason":"implicit_deny"',
        '"what":"put_v1_user"',
        '"user_code":"',
        "Its secret, which is shown only now",
    ):
        assert told in done.stdout, f"{told}: {done.stdout}"
    assert (tmp_path / "robot.json").stat().st_mode & 0o777 == 0o600


def test_an_application_logs_a_person_in_as_it_is_printed(stage: Stage) -> None:
    email, password = "grace@example.com", "correct horse battery"
    stage.run_command("users", "add", email, stdin=password)
    named: dict[str, Any] = {}
    (program,) = (one.text for one in examples() if "def log_in" in one.text)
    exec(compile(program, "authorization.md", "exec"), named)

    def shown(url: str) -> None:
        httpx.get(fill_in_forms(url, email, password), trust_env=False)

    with ThreadPoolExecutor(1) as person:
        tokens = named["log_in"](stage.auth, lambda url: person.submit(shown, url))
    told = httpx.get(
        f"{stage.auth}/oauth/userinfo",
        headers={"Authorization": f"Bearer {tokens['access_token']}"},
        trust_env=False,
    )
    assert told.json()["email"] == email


def save_programs(page: str, stage: Stage, folder: Path) -> None:
    """Save the page's programs under their names, for its commands."""
    for one in examples():
        if one.page == page and (named := PROGRAM.match(one.text)):
            text = at_stage(one.text, stage)
            (folder / f"{named[1]}.py").write_text(text, encoding="utf-8")


def by_the_client(page: str, stage: Stage, folder: Path, *, waiting: str = FOUND) -> str:
    """What the commands of a page print, the page's programs lying beside them."""
    save_programs(page, stage, folder)
    # Whatever is left running ends with the page, however that ends.
    script = f"trap 'kill $(jobs -p) 2> kill.txt || true' EXIT\n{typed(page)}"
    done = run(script, stage, folder, waiting=waiting)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr}"
    return done.stdout


@pytest.mark.spec("DOC-01")
def test_client_readme_works_as_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("client/README.md", stage, tmp_path)
    assert '"about": "login", "verdict": "ok", "text": "as admin@local' in shown
    assert "Everyday:" in shown
    assert re.search(r"^profile +url +default +replica +email", shown, re.MULTILINE)
    assert re.search(r"^{'status': 404, 'hint': 'check the name", shown, re.MULTILINE)
    assert "_STORE_COMPLETE" in (tmp_path / "store.bash").read_text(encoding="utf-8")


@pytest.mark.spec("DOC-01")
def test_start_page_works_as_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("docs/index.md", stage, tmp_path, waiting=STARTED)
    bundle = json.loads((tmp_path / "run7.json").read_text(encoding="utf-8"))
    fqid = f"{bundle['bundle_uuid']}.{bundle['version']}"
    assert json.dumps({"uuid": bundle["bundle_uuid"], "version": bundle["version"]}) in shown
    assert f"bundles/{fqid}/reads/lane1.fastq.gz" in shown


@pytest.mark.spec("DOC-01")
def test_first_steps_work_as_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("docs/first-steps.md", stage, tmp_path, waiting=THREE_FOUND)
    assert '"roles": ["store_admin", "store_ingest", "user_default"]' in shown
    rows = (tmp_path / "report.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.split("\t")[:2] for row in rows] == [["R1", "uploaded"], ["R2", "uploaded"]]
    assert '\n-  "sex": "female"\n+  "sex": "male"\n' in shown
    bundle = json.loads((tmp_path / "second.json").read_text(encoding="utf-8"))
    fqid = f"{bundle['bundle_uuid']}.{bundle['version']}"
    brought = tmp_path / "data" / fqid / "specimen.json"
    assert json.loads(brought.read_text(encoding="utf-8"))["sex"] == "male"
    received = (tmp_path / "hooks.txt").read_text(encoding="utf-8").splitlines()
    forwarded = re.findall(r"CREATE     (\S+)  204 \(", shown)
    assert len(forwarded) == 2
    assert [f"CREATE {one}" for one in forwarded] == received[:2]
    assert '{"event_type": "TEST"}' in shown
    assert '{"result": true, "reason": "allow"' in shown
    assert '"what": "post_v1_user", "target": "user/rosalind@example.org"' in shown


@pytest.mark.spec("DOC-02")
@pytest.mark.skipif(not shutil.which("curl"), reason="one file comes with curl")
def test_a_directory_is_deposited_as_it_is_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("docs/depositing.md", stage, tmp_path)
    plans = [json.loads(line) for line in shown.splitlines() if '"state": "planned"' in line]
    assert [plan["sent"]["files"] for plan in plans] == [2, 1]
    first = json.loads((tmp_path / "run7.json").read_text(encoding="utf-8"))
    assert [file["indexed"] for file in first["files"]] == [False, True]
    assert re.search(r"^unchanged$", shown, re.MULTILINE)
    assert re.search(r'"name": "specimen.json", "checksum": "CHECKSUMMED"', shown)
    # The area has what was brought there; the patched bundle has one file instead of the other.
    table = (tmp_path / "run7.tsv").read_text(encoding="utf-8").splitlines()
    names = ["controls/lane1.fastq.gz", "reads/lane1.fastq.gz", "specimen.json"]
    assert [line.split("\t")[0] for line in table[1:]] == names
    for name in ("study.tsv", "report.tsv"):
        rows = (tmp_path / name).read_text(encoding="utf-8").splitlines()[1:]
        assert [row.split("\t")[1] for row in rows] == ["uploaded", "uploaded"]
    patched = shown.rpartition('{"state": "DELETING"}')[2]
    assert "controls/lane1.fastq.gz" in patched
    assert "reads/lane1.fastq.gz" not in patched
    left = httpx.get(
        f"{stage.api}/v1/bundles/{first['bundle_uuid']}",
        params={"replica": "aws", "version": first["version"]},
        trust_env=False,
    )
    assert left.status_code == 404


@pytest.mark.spec("DOC-03")
def test_bundles_are_found_and_downloaded_as_it_is_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("docs/downloading.md", stage, tmp_path)
    sides = {
        side: json.loads((tmp_path / f"{side}.json").read_text()) for side in ("left", "right")
    }
    fqids = {side: f"{one['bundle_uuid']}.{one['version']}" for side, one in sides.items()}
    reads = {side: (tmp_path / side / "reads/lane1.fastq.gz").read_bytes() for side in sides}
    for place, side in (
        ("bundles", "left"),
        ("some", "left"),
        ("work/bundles", "left"),
        ("work/bundles", "right"),
    ):
        brought = tmp_path / place / fqids[side] / "reads/lane1.fastq.gz"
        assert brought.read_bytes() == reads[side], place
    assert not (tmp_path / "some" / fqids["left"] / "specimen.json").exists()
    assert not (tmp_path / "meta" / fqids["left"] / "reads").exists()
    rows = (tmp_path / "work/cohort.tsv").read_text(encoding="utf-8").splitlines()
    paths = [tmp_path / "work" / row.split("\t")[7] for row in rows[1:]]
    assert {path.read_bytes() for path in paths} == set(reads.values())
    (collected,) = (tmp_path / "collected").iterdir()
    assert {one.name for one in (collected / "bundles").iterdir()} == set(fqids.values())
    assert "not here: 5" in shown
    assert f"('{fqids['right']}', {{'organism': 'Danio rerio', 'tissue': 'kidney'" in shown


@pytest.mark.spec("DOC-05")
def test_python_page_works_as_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("docs/python.md", stage, tmp_path, waiting=AGEING)
    assert re.findall(r"^uploaded ", shown, re.MULTILINE) == ["uploaded ", "uploaded "]
    assert re.search(r"^pancreas +4$", shown, re.MULTILINE)
    assert re.search(r"^ins +2 +250$", shown, re.MULTILINE)
    assert re.search(r"^gene,count\nb'250\\n' \S+Z [0-9a-f]{8}$", shown, re.MULTILINE)
    assert "counts.csv specimen.json\npancreas\n" in shown
    assert "[2, 2]" in shown


@pytest.mark.spec("DOC-05")
def test_notebook_runs_from_start_to_end(stage: Stage, tmp_path: Path) -> None:
    notebook = ROOT / "examples" / "analysis.ipynb"
    script = f"""
        export HOME=$PWD STORE_CLIENT_URL=http://127.0.0.1:8000
        store login --access-token - < .store-home/admin.token
        jupyter-execute --output=$PWD/done.ipynb {notebook}
    """
    done = run(script, stage, tmp_path)
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "done.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = [
        "".join(one["data"]["text/plain"]) for cell in cells for one in cell.get("outputs", ())
    ]
    assert shown[0] == "['uploaded', 'uploaded', 'uploaded']"
    assert shown[-2] == r"b'ins,2\n'"
    assert shown[-1].splitlines()[-1].split() == ["ins", "3.0", "250.0"]


def test_notebook_is_stored_without_outputs() -> None:
    text = (ROOT / "examples" / "analysis.ipynb").read_text(encoding="utf-8")
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
    assert {cell["execution_count"] for cell in code} == {None}


@pytest.mark.spec("DOC-04")
def test_subscribing_page_works_as_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("docs/subscribing.md", stage, tmp_path)
    (forwarded,) = re.findall(r'^\{"timestamp": .*"forward": \{"status": 204,', shown, re.MULTILINE)
    assert '"event_type": "CREATE"' in forwarded
    assert '"attachments": {"ages": [3]}' in shown
    uuid = json.loads((tmp_path / "run7.json").read_text(encoding="utf-8"))["bundle_uuid"]
    assert f"CREATE {uuid} {{'ages': [4]}}" in shown
    assert re.search(r"^CREATE \S+ \{'ages': \[3\]\}", shown, re.MULTILINE), "the test"
    assert re.search(r"^\['CREATE'", shown, re.MULTILINE)


@pytest.mark.spec("DRS-01")
@pytest.mark.skipif(not shutil.which("curl"), reason="examples are typed with curl")
def test_drs_page_works_as_printed(stage: Stage, tmp_path: Path) -> None:
    shown = by_the_client("docs/drs.md", stage, tmp_path)
    assert '"access_methods":[{"type":"https","access_id":"aws"}' in shown
    copies = {(tmp_path / name).read_text() for name in ("lane1.txt", "copy.txt")}
    assert copies == {(tmp_path / "run9" / "reads" / "lane1.txt").read_text()}


def test_every_example_is_run_loaded_or_excused(tmp_path: Path) -> None:
    for one in examples():
        if one.language == "sh":
            done = one.page in (*TYPED, "README.md") or all(map(excused, one.lines))
            assert done, f"{one.page}: {one.text}"
        elif one.language == "python":
            elsewhere = any(mark in one.text for mark in ELSEWHERE)
            assert elsewhere or _is_used(one), f"{one.page}: {one.text}"
        elif one.language == "json":
            kinds = (_is_a_problem, _is_a_rule_of_buckets, _is_a_policy, _is_a_policy_of_ours)
            assert any(fits(one) for fits in kinds), one.text
        elif one.language == "toml":
            settings = tmp_path / "store.toml"
            settings.write_text(one.text, encoding="utf-8")
            assert load_settings({"STORE_SETTINGS_FILE": str(settings)})
        else:
            assert one.language in ("", "mermaid"), f"{one.page}: ```{one.language}"
            assert not re.search(r"^(curl|make|python|\.venv)\b", one.text, re.MULTILINE)


def _is_used(one: Example) -> bool:
    """A program that the commands of its page use under its name."""
    named = PROGRAM.match(one.text)
    return bool(named and re.search(rf"\b{named[1]}\b", typed(one.page)))


def _is_a_problem(one: Example) -> bool:
    document = build_definition(
        OPERATIONS, server="http://localhost/v1", openid_url="http://localhost"
    )
    components = document["components"]
    problem = components["schemas"]["Problem"] | {"components": components}
    return OAS30Validator(problem).is_valid(json.loads(one.text))


def _is_a_policy(one: Example) -> bool:
    """One of Amazon's."""
    policy = json.loads(one.text)
    statements = policy.get("Statement", [])
    return policy.get("Version") == "2012-10-17" and all(
        one.keys() == {"Effect", "Action", "Resource"} for one in statements
    )


def _is_a_rule_of_buckets(one: Example) -> bool:
    """Amazon's or Google's, that lets pages send to a bucket."""
    rules = json.loads(one.text)
    return list(rules) == ["CORSRules"] or (isinstance(rules, list) and "origin" in rules[0])


def _is_a_policy_of_ours(one: Example) -> bool:
    """One that may be given to a user, a group or a role as it is printed."""
    return len(parse_policy(json.loads(one.text)).statements) > 0


def test_no_excuse_is_left_over() -> None:
    lines = [line.strip() for one in examples() for line in one.lines]
    assert [one for one in EXCUSED if not any(line.startswith(one) for line in lines)] == []


@pytest.mark.parametrize(("mark", "test"), ELSEWHERE.items())
def test_programs_are_run_by_the_tests_that_are_named(mark: str, test: str) -> None:
    text = (ROOT / test).read_text(encoding="utf-8")
    assert mark in text
    assert "exec(" in text


def test_api_page_lists_every_operation_with_its_requirement() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([A-Z]+ /[^`]*)` \|([^|\n]*)\|$", page, re.MULTILINE)
    shown = {name: (request, wants.strip()) for name, request, wants in rows}
    assert shown == {
        one.name: (f"{one.method} {one.path}", _wanted(one.name)) for one in OPERATIONS
    }


def _wanted(operation: str) -> str:
    if operation in SUBSCRIBING_OPERATIONS:
        return "yes, of an authorized domain"
    return {None: "", "user_default": "yes"}.get(least_role(operation), "role `store_ingest`")


def test_every_operation_is_used_in_the_page_of_the_api() -> None:
    commands = re.sub(r"\$\{?\w+(:\d:\d})?", "", typed("docs/api.md"))
    lines = commands.splitlines()
    assert [one.name for one in OPERATIONS if not any(_uses(line, one) for line in lines)] == [
        # It is shown in the text: whether there is one depends on how quick the store was.
        "get_task"
    ]


SEARCHES = ("post_search", "post_search_facets")
"""Their bodies are given by `-d`, so that curl needs no method."""


def _uses(line: str, operation: Operation) -> bool:
    path = re.sub(r"{\w+}", '[^/?" ]*', operation.path)
    method = operation.method
    flag = {"GET": r"curl(?!.* -X )(?!.*--head)", "HEAD": "--head"}.get(method, f"-X {method}")
    flag = r"curl(?!.* -X )" if operation.name in SEARCHES else flag
    return bool(re.search(flag, line) and re.search(rf"{path}(?=[?\" ]|$)", line))
