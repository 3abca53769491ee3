"""How far a transfer is: what is counted, and what is shown of it."""

import io
import logging
import re
import threading

import pytest
from rich.console import Console

from store_client.cli.progress import (
    EVERY_S,
    LogDisplay,
    ProgressCounter,
    ProgressDisplay,
    open_progress,
    progress_line,
)
from store_client.cli.rich_views import ProgressBar
from store_client.progress import (
    NO_PROGRESS,
    NoProgress,
    ProgressState,
    TransferProgress,
    format_duration,
    format_size,
    remaining_s,
)


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.spec("CLI-58")
def test_counts_are_exact_with_many_threads() -> None:
    bar = ProgressCounter(ProgressDisplay())

    def work() -> None:
        for _ in range(1000):
            bar.bytes(3)
        bar.file()

    bar.total(files=8, bytes=24_000)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (bar.state.bytes_, bar.state.files) == (24_000, 8)
    assert (bar.state.all_bytes, bar.state.all_files) == (24_000, 8)


@pytest.mark.spec("CLI-58")
def test_failed_attempt_takes_its_bytes_back() -> None:
    bar = ProgressCounter(ProgressDisplay())
    bar.bytes(10)
    bar.bytes(-10)
    bar.file()
    assert (bar.state.bytes_, bar.state.files) == (0, 1)


@pytest.mark.spec("CLI-58")
def test_prints_a_line_every_ten_seconds_without_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    caplog.set_level(logging.INFO, "store_client")
    with ProgressCounter(LogDisplay("upload", clock=clock), clock=clock) as bar:
        bar.total(10, 4_000_000)
        bar.bytes(500_000)
        clock.now = EVERY_S
        bar.bytes(500_000)
        bar.file()
    assert [record.getMessage() for record in caplog.records] == [
        "upload: 0 of 10 files, 1.0 MB of 4.0 MB, 100.0 kB/s, 0:56 left"
    ]


@pytest.mark.spec("CLI-58")
def test_remaining_time_is_of_bytes_and_files_together() -> None:
    state = ProgressState(0.0)
    state.all_files, state.files = 10, 5
    assert remaining_s(state, 6.0) == pytest.approx(6.0)
    state.all_bytes, state.bytes_ = 2_000_000, 1_000_000
    assert remaining_s(state, 6.0) == pytest.approx(6.0)
    state.files = 10
    assert remaining_s(state, 6.0) == pytest.approx(6.0 * 1_000_000 / 3_560_000)


@pytest.mark.spec("CLI-58")
def test_remaining_time_is_unknown_at_the_beginning() -> None:
    state = ProgressState(0.0)
    state.all_files, state.all_bytes, state.bytes_ = 2, 314_600_000, 27
    assert remaining_s(state, 3.0) is None
    assert "left" not in progress_line(state, 3.0)
    state.bytes_ = 31_460_000
    assert remaining_s(state, 3.0) == pytest.approx(27.0, rel=0.1)


def test_finished_bar_shows_no_unknown_speed() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with ProgressCounter(ProgressBar("download", console=console)) as bar:
        bar.total(1, 62)
        bar.bytes(62)
        bar.file()
    assert "62/62 bytes" in screen.getvalue()
    assert " ? " not in re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue())
    assert "0:00 left" not in screen.getvalue()


@pytest.mark.spec("CLI-58")
def test_progress_names_the_phase() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with ProgressCounter(ProgressBar("upload", console=console)) as bar:
        for phase in ("hashing", "sending", "verifying"):
            bar.phase(phase)
            assert f"upload: {phase}" in screen.getvalue()
            assert progress_line(bar.state, 1.0, what="upload").startswith(f"upload: {phase}, ")


@pytest.mark.spec("CLI-58")
def test_unknown_rate_has_no_remaining_time() -> None:
    assert progress_line(ProgressState(0.0), 5.0) == "0 of 0 files, 0 bytes of 0 bytes, 0 bytes/s"


@pytest.mark.spec("CLI-58")
def test_a_terminal_gets_a_bar_with_files_bytes_and_rate() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with ProgressCounter(ProgressBar("down\x1b[2J", console=console)) as bar:
        bar.total(2, 2_000_000)
        bar.bytes(2_000_000)
        bar.file()
        bar.file()
    shown = screen.getvalue()
    assert "2/2 files" in shown
    assert "2.0/2.0 MB" in shown
    assert r"down\x1b[2J" in shown


@pytest.mark.spec("CLI-58")
def test_quiet_and_closed_output_show_no_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for enabled in (False, True):
        with open_progress(enabled=enabled, what="upload") as bar:
            bar.bytes(10)
        assert bar.state.bytes_ == 10
    assert capsys.readouterr() == ("", "")


@pytest.mark.spec("CLI-58")
def test_transfer_works_without_progress() -> None:
    listeners: list[TransferProgress] = [
        NoProgress(),
        NO_PROGRESS,
        ProgressCounter(ProgressDisplay()),
    ]
    for listener in listeners:
        listener.total(1, 1)
        listener.bytes(1)
        listener.file()


@pytest.mark.spec("CLI-58")
@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2e9, "2.0 GB"), (5e15, "5000.0 TB")],
)
def test_sizes_are_read_by_people(amount: float, shown: str) -> None:
    assert format_size(amount) == shown


@pytest.mark.spec("CLI-58")
def test_durations_have_hours_only_when_they_last_some() -> None:
    assert [format_duration(6), format_duration(61.4), format_duration(3723)] == [
        "0:06",
        "1:01",
        "1:02:03",
    ]
