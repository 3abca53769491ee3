"""`python -m ops demo`: the whole tour in a home that is thrown away afterwards."""

import time
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console

from ops.demo import folder, samples, stage, story, tour
from ops.demo.board import Board
from ops.demo.bundles import SampleBundle
from ops.demo.hearing import new_key
from ops.demo.receiver import receiving
from ops.demo.report import Report
from ops.demo.service import Service


@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Deposit the bundles of this folder instead of our own samples.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Deposit only so many bundles.")
@click.option("--keep", is_flag=True, help="Leave the store's folder behind.")
def demo(source: Path | None, limit: int | None, keep: bool) -> None:
    """Run the main job end to end in a store of its own.

    Starts it, deposits, watches, searches, checks out, collects, withdraws, logs people in; the
    exit code says whether everything held.
    """
    console = Console()
    try:
        bundles = _bundles(source, limit)
    except folder.NothingFound as error:
        raise click.ClickException(str(error)) from error
    if not run(console, bundles, keep=keep):
        raise SystemExit(1)


def _bundles(source: Path | None, limit: int | None) -> tuple[SampleBundle, ...]:
    return folder.bundles(source, limit) if source else samples.bundles()[:limit]


def run(
    console: Console,
    bundles: tuple[SampleBundle, ...],
    *,
    keep: bool = False,
    settings: Mapping[str, str] | None = None,
) -> bool:
    """The tour over these bundles; True when everything held.

    The store has the embedded defaults, but for these settings.
    """
    report, began = Report(), time.monotonic()
    with stage.temporary_home(keep=keep) as home:
        try:
            _play(console, bundles, home, report, settings or {})
        except stage.StoreFailed as error:
            console.print(str(error), markup=False)
            return False
        if keep:
            console.print(f"The store's folder is {home}", markup=False)
    files, size = sum(len(one.files) for one in bundles), sum(one.size for one in bundles)
    report.show(console)
    took = time.monotonic() - began
    console.print(
        f"{len(bundles):,} bundles, {files:,} files, {size:,} bytes in {took:.1f} s.",
        highlight=False,
    )
    return report.good


def _play(
    console: Console,
    bundles: tuple[SampleBundle, ...],
    home: Path,
    report: Report,
    settings: Mapping[str, str],
) -> None:
    console.print("Starting a store ...", highlight=False)
    with (
        stage.running(home, settings) as store,
        receiving(new_key()) as receiver,
        Board(console).shown() as board,
    ):
        report.took("start", store.started_in_s)
        service = Service.open(store.api, store.token)
        tour.tell(story.begin(store, service, receiver, bundles, board, report))
        failed = "" if report.good else store.complaints()
    if failed:
        click.echo(f"\nThe end of the store's log:\n{failed}")
