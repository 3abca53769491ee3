"""What others wrote moves no cursor."""

import json

import pytest

from store_client.cli.terminal import escape_json, escape_line, escape_text

NASTY = "\x1b[2J\x07\x9b1m\x7f\r\u202e\u2066\ud800"


@pytest.mark.spec("CLI-48")
def test_escapes_control_sequences_only() -> None:
    assert escape_text("Größe\t日本\nok") == "Größe\t日本\nok"
    assert escape_text(NASTY) == r"\x1b[2J\x07\x9b1m\x7f\r\u202e\u2066\ud800"


@pytest.mark.spec("CLI-48")
def test_a_line_stays_one() -> None:
    assert escape_line("one\ntwo\tthree\u2028four") == r"one\ntwo\tthree\u2028four"


@pytest.mark.spec("CLI-48")
def test_escaped_json_is_equal() -> None:
    text = escape_json(json.dumps({"name": NASTY}, ensure_ascii=False))
    assert json.loads(text) == {"name": NASTY}
    assert text.isprintable()


@pytest.mark.spec("CLI-48")
@pytest.mark.parametrize("shown", [escape_text, escape_line, escape_json])
def test_escaped_text_can_be_encoded(shown: object) -> None:
    assert callable(shown)
    assert shown(NASTY).encode("ascii")
