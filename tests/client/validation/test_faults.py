"""Validation and bulk uploads through a network that cuts, resets, refuses and flips bits."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from store_client.client import Client
from store_client.configuration import URL, Configuration
from tests.client.cli.people import Typist
from tests.client.conftest import ADMIN_TOKEN, Served
from tests.client.nouns.test_faults import HARMS, OF_THE_STORE, check_output, make_client, run
from tests.drill.fault_proxy import Mode, Proxy, before

pytestmark = pytest.mark.spec("CLI-155")

ENDS = {0, 1, 7, 8}
"""Exit codes of an upload: all is well, some bundles failed, or not all came."""
ENDS_OF_FLIPS = {*ENDS, 4, *OF_THE_STORE}
"""A request with a wrong bit is another request, which may also be refused."""
BUNDLES = 4


@pytest.fixture
def proxy(strict: Served) -> Iterator[Proxy]:
    where = urlsplit(strict.url)
    with before(str(where.hostname), int(where.port or 0), Random(2)) as found:
        yield found


@pytest.fixture
def calm(proxy: Proxy, tmp_path: Path) -> Typist:
    """A user who has the store's definition already."""
    person = Typist(tmp_path / "calm", make_client, {URL: f"http://127.0.0.1:{proxy.port}"})
    assert run(person, ["get-echo"]).exit_code == 0
    return person


def another(calm: Typist, folder: Path) -> Typist:
    """A user as new as that one."""
    shutil.copytree(calm.home, folder / "home")
    return Typist(folder / "home", make_client, calm.environ)


def test_validation_uses_the_schemas_of_the_store_or_says_that_it_does_not(
    proxy: Proxy, calm: Typist, tmp_path: Path
) -> None:
    sample = tmp_path / "sample"
    sample.mkdir()
    (sample / "a.json").write_text('{"organism": 7}')
    (sample / "b.json").write_text("{")
    words = ["validate", str(sample)]
    expected, alone = run(calm, words), run(calm, [*words, "--no-store"])
    assert expected.stdout.count("\n") == 2
    assert alone.stdout.count("\n") == 1
    for mode in HARMS:
        proxy.mode = mode
        done = run(calm, words)
        check_output(done)
        assert done.exit_code == 2
        if "Validated without the schemas of the store: " in done.stderr:
            assert done.stdout == alone.stdout
        elif mode is not Mode.FLIP:
            assert done.stdout == expected.stdout


def write_source(folder: Path, kind: str) -> list[str]:
    """Write what becomes some bundles; the words that name it."""
    runs = [f"R{number}" for number in range(BUNDLES)]
    for number, run_name in enumerate(runs):
        (folder / "study" / run_name).mkdir(parents=True)
        (folder / "study" / run_name / "reads.txt").write_bytes(b"A" * 1000 * (number + 1))
        (folder / "study" / run_name / "run.json").write_text('{"organism": "Danio rerio"}')
    if kind == "folders":
        return [str(folder / "study"), "--each-folder"]
    (folder / "runs.tsv").write_text("run\torganism\n" + "".join(f"{one}\tx\n" for one in runs))
    files = {"run.json": {"organism": "{organism}"}, "reads.txt": "@study/{run}/reads.txt"}
    (folder / "template.json").write_text(json.dumps({"files": files}))
    return ["--table", str(folder / "runs.tsv"), "--template", str(folder / "template.json")]


def count_bundles(client: Client) -> int:
    """How many bundle versions the store has."""
    return sum(1 for _ in client.items("get_bundles_all", replica="aws"))


@pytest.mark.parametrize("kind", ["folders", "table"])
def test_every_bundle_of_many_is_made_once(
    strict: Served, proxy: Proxy, calm: Typist, tmp_path: Path, kind: str
) -> None:
    words = ["upload", *write_source(tmp_path, kind), "--no-progress", "--output", "lines"]
    config = Configuration(tmp_path / "direct", tmp_path / "direct/cache", strict.url)
    with Client(config=config, token=ADMIN_TOKEN) as direct:
        for turn, mode in enumerate(HARMS):
            person = another(calm, tmp_path / f"{turn}")
            earlier = count_bundles(direct)
            proxy.mode = mode
            done = run(person, words)
            proxy.mode = Mode.PASS
            check_output(done)
            ends = ENDS_OF_FLIPS if mode is Mode.FLIP else ENDS
            assert done.exit_code in ends, f"{mode}: {done.exit_code}\n{done.stderr}"
            again = run(person, words)
            assert again.exit_code == 0, f"{mode}: {again.stderr}"
            rows = [json.loads(line) for line in again.stdout.splitlines()]
            assert {row["state"] for row in rows} <= {"uploaded", "unchanged"}
            assert len({row["uuid"] for row in rows}) == BUNDLES
            assert count_bundles(direct) == earlier + BUNDLES
            for number, row in enumerate(rows):
                entries = direct.call("get_bundle", uuid=row["uuid"], replica="aws")["bundle"]
                assert [one["name"] for one in entries["files"]] == ["reads.txt", "run.json"]
                assert entries["files"][0]["size"] == 1000 * (number + 1)
