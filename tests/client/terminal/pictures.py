"""Write the pictures of all sessions: `python -m tests.client.terminal.pictures`."""

import signal
import sys
import tempfile
from pathlib import Path

from ops.procfile import ROOT
from tests.client.terminal.desk import running_desk
from tests.client.terminal.sessions import SESSIONS, record

FOLDER = ROOT / "docs" / "images" / "terminal"
GALLERY = ROOT / "docs" / "terminal.md"
HEAD = """# In the terminal

What `store` shows, as a test recorded it in a pseudo-terminal. Ids, versions and addresses are made up. `make screens` renews the pictures.

[Client](../client/README.md) says how to install it.
"""


def picture_path(name: str) -> Path:
    """The file of a session's picture."""
    return FOLDER / f"{name}.svg"


def build_gallery() -> str:
    """Build the page of the documentation that shows all pictures."""
    parts = [
        f"\n## {session.title}\n\n![{session.title}](images/terminal/{name}.svg)\n"
        for name, session in SESSIONS.items()
    ]
    return HEAD + "".join(parts)


def write(names: list[str]) -> None:
    """Write the pictures of these sessions, all of them by default."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running_desk(Path(folder)) as desk:
        for name in names or SESSIONS:
            picture_path(name).write_text(record(desk, name), encoding="utf-8")
    GALLERY.write_text(build_gallery(), encoding="utf-8")


if __name__ == "__main__":
    # A shell makes what it starts in the background ignore Ctrl-C, and programs inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    write(sys.argv[1:])
