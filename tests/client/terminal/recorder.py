"""A pseudo-terminal whose screen can be read, and drawn as SVG.

What differs from run to run (ids, versions, ports, times, speeds) is replaced by what is always
the same, as wide as it was.
"""

import fcntl
import html
import io
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self
from uuid import UUID

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS, ROWS = 100, 30
PATIENCE_S = 60.0
PROMPT = "$ "
SHELL = ("bash", "--noprofile", "--norc", "--noediting", "-i")


class Terminal:
    """A program in a pseudo-terminal, and what its screen shows; a context manager."""

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        columns: int = COLUMNS,
        rows: int = ROWS,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        # Not select(), which fails for descriptors from 1,024 on.
        self._output = select.poll()
        self._output.register(self._ours, select.POLLIN)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        # Without a terminal of its own, Ctrl-C would not reach it.
        self._process = subprocess.Popen(
            ("setsid", "--ctty", "--wait", *words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **environ},
        )
        os.close(theirs)
        self.cwd = cwd
        self.raw = b""
        """All bytes that the program wrote."""

    @property
    def text(self) -> str:
        """The lines of the screen, without spaces at their ends."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    def send(self, data: str) -> None:
        """Type characters, as they are."""
        os.write(self._ours, data.encode())

    def wait(self, holds: Callable[[str], object], limit_s: float = PATIENCE_S) -> None:
        """Read until it holds for the screen's text; AssertionError if it does not in time."""
        deadline = time.monotonic() + limit_s
        while not holds(self.text):
            assert time.monotonic() < deadline, f"waited too long; the screen shows:\n{self.text}"
            if not self._read():
                assert holds(self.text), f"it ended; the screen shows:\n{self.text}"
                return

    def wait_until_it_sleeps(self) -> None:
        """Wait until the program waits for a key: Python loses a Ctrl-C just before it reads."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        deadline = time.monotonic() + PATIENCE_S
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, f"is busy; the screen shows:\n{self.text}"
            time.sleep(0.01)

    def end(self, limit_s: float = PATIENCE_S) -> int:
        """Wait for the end of the program; its exit code."""
        deadline = time.monotonic() + limit_s
        while self._read():
            assert time.monotonic() < deadline, f"still runs; the screen shows:\n{self.text}"
        return self._process.wait(limit_s)

    def _read(self) -> bool:
        """Read what there is; False once the program has ended."""
        if not self._output.poll(100):
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._ours)  # a hangup for whoever still runs there
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Shell(Terminal):
    """A shell, in which lines are typed one after the other."""

    def __init__(self, *, cwd: Path, environ: Mapping[str, str], rows: int = ROWS) -> None:
        super().__init__(SHELL, cwd=cwd, environ={**environ, "PS1": PROMPT}, rows=rows)
        self.wait(_shows_prompt)

    def type(self, line: str) -> None:
        """Type a line, and wait until the shell asks for the next."""
        self.start(line)
        self.wait(_shows_prompt)

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait until the shell asks for the next line."""
        self.send("\x03")
        self.wait(_shows_prompt)

    def start(self, line: str) -> None:
        """Type a line whose program goes on."""
        self.send(line)
        self.wait(lambda text: text.endswith(line[-20:]))
        self.send("\n")
        self.wait(lambda text: not text.endswith(line[-20:]) or text.endswith(f"\n{PROMPT}"))


def _shows_prompt(text: str) -> bool:
    return f"\n{text}".endswith(f"\n{PROMPT.rstrip()}")


VERSION = re.compile(r"\d{4}-\d\d-\d\dT\d{6}\.\d{6}Z")
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d{5}")
PORT = re.compile(r"127\.0\.0\.1:\d{5}")
OPERATIONS = re.compile(r"all \d\d operations")
FOLDER = re.compile(r"/tmp/st\w{8}")
STABLE_FOLDER = "/home/ada/study"
STABLE_ADDRESS = "https://stores.example"
STABLE_PORT = "127.0.0.1:20000"


def stable_version(number: int) -> str:
    """The version that stands for the n-th one on a screen."""
    return f"2026-01-{31 - number % 31:02}T101500.{number:06}Z"


def stable_id(number: int) -> str:
    """The uuid that stands for the n-th one on a screen."""
    return str(UUID(int=Random(number).getrandbits(128), version=4))


def normalize(text: str) -> str:
    """Replace what differs from run to run; the text stays as long as it is."""
    for pattern, stable in ((VERSION, stable_version), (ID, stable_id)):
        seen = {found: stable(n) for n, found in enumerate(dict.fromkeys(pattern.findall(text)))}
        text = pattern.sub(lambda found, seen=seen: seen[found[0]], text)  # type: ignore[misc]
    text = OPERATIONS.sub("all 80 operations", FOLDER.sub(STABLE_FOLDER, text))
    text = MOMENT.sub("2026-01-31 10:15:00", text)
    return PORT.sub(STABLE_PORT, ADDRESS.sub(STABLE_ADDRESS, text))


EVENTS = re.compile(r"^\d+ events")
"""How many there are depends on the sessions before; these rows have no colours."""
BAR = re.compile("[━╸╺].*")


def draw(terminal: Terminal, *, bar: str = "") -> str:
    """The screen as SVG, down to its last line; `bar` (markup) is what progress bars show."""
    screen = terminal.screen
    used = len(terminal.text.splitlines())
    cells = [[screen.buffer[y][x] for x in range(screen.columns)] for y in range(used)]
    text = "".join(cell.data or " " for line in cells for cell in line)
    assert len(text) == used * screen.columns, "a character needs more than one cell"
    changed = normalize(text)
    assert len(changed) == len(text)
    console = Console(
        record=True,
        width=screen.columns,
        file=io.StringIO(),
        force_terminal=True,
        legacy_windows=False,
    )
    for y, line in enumerate(cells):
        row = changed[y * screen.columns : (y + 1) * screen.columns]
        row = EVENTS.sub("6 events", row).ljust(screen.columns)
        moving = BAR.search(row)
        shown = Text(no_wrap=True)
        for x, cell in enumerate(line[: moving.start() if moving else None]):
            shown.append(row[x], _style(cell))
        if moving:
            shown.append(Text.from_markup(bar))
        shown.rstrip()
        console.print(shown, highlight=False)
    drawn = console.export_svg(title="", code_format=FORMAT, unique_id="t")
    drawn = re.sub(r"<text [^>]*>\n</text>", "", drawn)
    return "\n".join(line.strip() for line in drawn.splitlines() if line.strip()) + "\n"


FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "<!-- Generated with Rich https://www.textualize.io -->", ""
)
"""Without fonts that a browser would fetch."""


def _style(cell: pyte.screens.Char) -> Style:
    return Style(
        color=_color(cell.fg),
        bgcolor=_color(cell.bg),
        bold=cell.bold or None,
        italic=cell.italics or None,
        underline=cell.underscore or None,
        reverse=cell.reverse or None,
    )


def _color(name: str) -> str | None:
    """The color of rich for that of the terminal."""
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    plain = name.removeprefix("bright")
    plain = "yellow" if plain == "brown" else plain
    return f"bright_{plain}" if name.startswith("bright") else plain


def read_text(drawn: str) -> str:
    """The text of a picture, line by line, for people who compare two of them."""
    lines: dict[float, str] = {}
    for y, x, text in re.findall(
        r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', drawn
    ):
        at = round(float(y) / 12.2)
        lines[float(x)] = lines.get(float(x), "").ljust(at) + html.unescape(text)
    return "\n".join(lines[y].replace("\xa0", " ") for y in sorted(lines))
