"""The stored pictures are what the program shows; `make screens` renews them."""

import difflib
import re

import pytest

from tests.client.terminal.desk import Desk
from tests.client.terminal.pictures import FOLDER, GALLERY, build_gallery, picture_path
from tests.client.terminal.recorder import read_text
from tests.client.terminal.sessions import SESSIONS, record

pytestmark = pytest.mark.spec("CLI-156")

LARGEST = 60_000


@pytest.mark.parametrize("name", SESSIONS)
def test_screen_is_as_stored(desk: Desk, name: str) -> None:
    drawn = record(desk, name)
    stored = picture_path(name).read_text(encoding="utf-8")
    changes = difflib.unified_diff(
        read_text(stored).splitlines(), read_text(drawn).splitlines(), lineterm=""
    )
    assert "\n".join(changes) == "", "run `make screens` if this is meant"
    assert drawn == stored, "the colours differ; run `make screens` if this is meant"


@pytest.mark.parametrize("name", SESSIONS)
def test_picture_is_small_and_fetches_nothing(name: str) -> None:
    stored = picture_path(name).read_text(encoding="utf-8")
    assert len(stored) < LARGEST
    drawn = re.sub(r"<text[^>]*>[^<]*</text>", "", stored)
    assert re.findall(r"https?:[^\"]*", drawn) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in drawn.replace("url(#", "")
    assert "<script" not in drawn
    assert "127.0.0.1" not in read_text(stored).replace("127.0.0.1:20000", "")


def test_gallery_shows_all_pictures_and_no_other_is_stored() -> None:
    assert GALLERY.read_text(encoding="utf-8") == build_gallery()
    assert {path.stem for path in FOLDER.iterdir()} == set(SESSIONS)
