"""What others wrote moves no cursor."""

import json

import pytest

from store_client.cli.plain import json_text, line, plain

NASTY = "\x1b[2J\x07\x9b1m\x7f\r\u202e\u2066\ud800"


def test_control_sequences_are_escaped_and_words_are_not() -> None:
    assert plain("Größe\t日本\nok") == "Größe\t日本\nok"
    assert plain(NASTY) == r"\x1b[2J\x07\x9b1m\x7f\r\u202e\u2066\ud800"


def test_a_line_stays_one() -> None:
    assert line("one\ntwo\tthree\u2028four") == r"one\ntwo\tthree\u2028four"


def test_json_that_is_escaped_says_the_same() -> None:
    text = json_text(json.dumps({"name": NASTY}, ensure_ascii=False))
    assert json.loads(text) == {"name": NASTY}
    assert text.isprintable()


@pytest.mark.parametrize("shown", [plain, line, json_text])
def test_whatever_is_escaped_can_be_encoded(shown: object) -> None:
    assert callable(shown)
    assert shown(NASTY).encode("ascii")
