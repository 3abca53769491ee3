"""Type stubs of operations: as the definitions say, and of use to a type checker."""

from pathlib import Path

from mypy import api

from tests.client import stubs
from tests.conformance import ROOT

SAMPLE = """\
from store_client import AsyncClient, Client

def run(client: Client) -> None:
    client.put_bundle(uuid="u", version="v", replica="aws", creator_uid=1, files=[])
    client.get_bundle.iterate(uuid="u", replica="gcp", per_page=10)
    client.get_bundle(uuid="u", replica="azure")
    client.put_bundle(uuid="u", version="v", replica="aws", creator_uid=1, filez=[])
    client.get_bundle.iterate(uuid="u")

async def run_async(client: AsyncClient) -> None:
    await client.get_bundle(uuid="u", replica="gcp")
    async for item in client.get_bundle.iterate(uuid="u", replica="gcp"):
        print(item)
    report = await client.download("u", "here", no_data=True)
    print(report.counts.files)
    await client.get_bundle(uuid="u", replica="azure")
    async for item in client.get_bundle.pages(uuid="u"):
        print(item)
    for item in client.get_bundle.iterate(uuid="u", replica="gcp"):
        print(item)
    await client.download("u", no_date=True)

def read_answers(client: Client) -> None:
    for hit in client.post_search.iterate(replica="aws", es_query={}):
        print(hit["bundle_fqid"].upper())
    for file in client.get_bundle.iterate(uuid="u", replica="aws"):
        print(file["content-type"].upper(), file["size"] + 1)
    print(client.get_bundle(uuid="u", replica="aws")["bundle"]["files"][0]["nome"])
    print(client.post_search(replica="aws", es_query={})["total_hits"].upper())
"""


def test_stubs_match_definitions() -> None:
    assert stubs.PATH.read_text(encoding="utf-8") == stubs.written(), "run `make docs`"


def test_type_checker_rejects_wrong_arguments(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    # With the project's settings, which are strict, `make check` has left most of the work done.
    told, _, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(sample)])
    wrong = [line.split(":")[1] for line in told.splitlines() if ": error:" in line]
    assert sorted(set(wrong), key=int) == ["6", "7", "8", "16", "17", "19", "21", "28", "29"], told
