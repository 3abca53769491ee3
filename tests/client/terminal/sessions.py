"""What is typed in the sessions that the documentation shows."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.client.terminal import recorder
from tests.client.terminal.desk import (
    HEART,
    KIDNEY,
    LIVER,
    Desk,
    closed_port,
    large_digest,
    write_sample,
)
from tests.client.terminal.recorder import Shell, draw
from tests.drill.fault_proxy import Mode


@dataclass(frozen=True)
class Session:
    """A session: what it shows, and what is done in it; `rows` of the terminal."""

    title: str
    act: Callable[[Desk, Shell], None]
    rows: int = recorder.ROWS
    slow: bytes = b""
    """First bytes of requests that are slow, once `act` has begun."""
    bar: str = ""
    """What a progress bar shows from its first character on, as markup."""


def record(desk: Desk, name: str) -> str:
    """Run a session; the picture of its last screen."""
    session = SESSIONS[name]
    with desk.slow(session.slow or b"-") as proxy:
        url = f"http://127.0.0.1:{proxy.port}" if session.slow else ""
        with desk.sit_down(rows=session.rows, url=url) as shell:
            proxy.mode = Mode.SLOW
            session.act(desk, shell)
            return draw(shell, bar=session.bar)


def lines(*typed: str) -> Callable[[Desk, Shell], None]:
    """A session that types these lines, one after the other."""

    def act(desk: Desk, shell: Shell) -> None:
        for line in typed:
            shell.type(line)

    return act


def refused(desk: Desk, shell: Shell) -> None:
    shell.type("store serch zebrafish")
    shell.type("store bundle shwo")
    shell.type("store versions")
    shell.type(f"store bundle list --url 127.0.0.1:{closed_port()}")


def upload(desk: Desk, shell: Shell) -> None:
    write_sample(shell.cwd / "run7")
    shell.type("store upload run7")


def stopped_upload(desk: Desk, shell: Shell) -> None:
    write_sample(shell.cwd / "run7", lane=20_000, large=True)
    shell.start("store upload run7")
    # The three small files are stored long before the large one has arrived.
    shell.wait(lambda text: "3/4 files" in text)
    shell.interrupt()


def upload_many(desk: Desk, shell: Shell) -> None:
    for name in ("monday", "tuesday"):
        folder = write_sample(shell.cwd / "lab" / name, lane=50_000)
        for path in list((folder / "reads").iterdir()):
            path.rename(folder / path.name)
        (folder / "reads").rmdir()
    shell.type("store upload lab --each-folder")


def validate(desk: Desk, shell: Shell) -> None:
    folder = write_sample(shell.cwd / "run9", lane=50_000)
    (folder / "assay.json").write_text('{\n  "instrument": "NovaSeq"\n  "lanes": 2\n}\n')
    (folder / "reads" / "lane3.fastq.gz").write_bytes(b"")
    (shell.cwd / "schema.json").write_text(json.dumps(SCHEMA) + "\n")
    shell.type("cat schema.json")
    shell.type("store validate run9 --schema schema.json")
    shell.type("store upload run9")


SCHEMA = {"required": ["species"], "properties": {"tissue": {"enum": ["liver", "heart"]}}}


def stopped_download(desk: Desk, shell: Shell) -> None:
    shell.start(f"store download {KIDNEY}")
    shell.wait(lambda _: len(list(shell.cwd.glob(f"{KIDNEY}*/*"))) == 2)
    shell.interrupt()


def delete(desk: Desk, shell: Shell) -> None:
    write_sample(shell.cwd / "run8")
    shell.type("store upload run8 --no-progress --json > made.json")
    shell.type(
        """uuid=$(python3 -c 'import json; print(json.load(open("made.json"))["bundle_uuid"])')"""
    )
    shell.type("clear")
    shell.start('store bundle delete $uuid --reason "wrong sample"')
    shell.wait(lambda text: text.endswith("[y/N]:"))
    shell.type("y")


WHOLE = f"[#729c1f]{'━' * 40}[/]"
PARTLY = f"[#f92672]{'━' * 14}╸[/][#3a3a3a]{'━' * 25}[/]"
"""Progress bars at a moment, which depends on the machine."""

SESSIONS: Mapping[str, Session] = {
    "first_contact": Session("First contact: `store` alone", lines("store"), rows=50),
    "near_misses": Session("Near misses, and a store that does not run", refused),
    "whoami": Session("Who you are, and what you may do", lines("store whoami")),
    "bundle_list": Session(
        "Bundles: list, versions and files",
        lines(
            "store bundle list --limit 3",
            f"store bundle versions {LIVER}",
            f"store bundle files {LIVER}",
        ),
    ),
    "bundle_show": Session(
        "A bundle, and what its versions differ in",
        lines(f"store bundle show {LIVER}", f"store bundle diff {LIVER} --patch"),
    ),
    "file": Session(
        "A file: its description and its content",
        lines(f"store file show {HEART}/specimen.json", f"store file cat {HEART}/specimen.json"),
    ),
    "search": Session(
        "Search in words, with facets and fields",
        lines("store search danio --facet organ --fields uuid,organ,sex,size"),
    ),
    "search_fields": Session(
        "Fields, and a wrong one",
        lines(
            "store search fields organ",
            "store search danio --filter organsim=x",
            "store search liver --json uuid,vresion",
        ),
    ),
    "upload": Session(
        "Upload a directory",
        upload,
        bar=f"{WHOLE} [green]800.0/800.0 kB[/] [red]4.2 MB/s[/]",
    ),
    "upload_interrupted": Session(
        "Ctrl-C in an upload",
        stopped_upload,
        slow=b"PUT /v1/area/",
        bar=f"{PARTLY} [green]1.1/3.0 MB[/] [red]1.4 MB/s[/] 0:02 left",
    ),
    "download": Session(
        "Download a bundle",
        lines(f"store download {HEART}"),
        bar=f"{WHOLE} [green]1.2/1.2 MB[/] [red]9.6 MB/s[/]",
    ),
    "download_interrupted": Session(
        "Ctrl-C in a download",
        stopped_download,
        slow=b"GET /v1/objects/aws/blobs/" + f"{large_digest()[:2]}/{large_digest()}".encode(),
        bar=f"{PARTLY} [green]1.5/4.2 MB[/] [red]1.4 MB/s[/] 0:02 left",
    ),
    "upload_many": Session(
        "Upload each folder of a directory",
        upload_many,
        bar=f"{WHOLE} [green]200.1/200.1 kB[/] [red]4.2 MB/s[/]",
    ),
    "validate": Session("Validate before an upload", validate),
    "listen": Session(
        "Follow new bundles, as a subscription would",
        lines("store listen --since 2026-01-01 --types create --limit 3"),
    ),
    "delete": Session("Deletes say what they do, and ask", delete),
}
