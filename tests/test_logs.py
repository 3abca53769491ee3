"""Log lines as text, and when they are text."""

import io
import logging
import sys

import pytest

from config import Settings, SettingsError, load_settings
from config.logs import TextLines, bind_log_fields, wants_colours, wants_text
from ops.supervisor import log_variables

pytestmark = pytest.mark.spec("OPS-03")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def format_text(colours: bool = False, **attributes: object) -> str:
    record = logging.makeLogRecord({"name": "api", "created": 0.25, **attributes})
    return TextLines(colours=colours).format(record)


def test_line_has_time_level_message_and_fields() -> None:
    with bind_log_fields(request_id="r-1"):
        line = format_text(msg="hello %s", args=("world",), levelname="INFO", path="/a b", n=3)
    assert (
        line == '1970-01-01T00:00:00.250Z INFO    api: hello world request_id=r-1 path="/a b" n=3'
    )


@pytest.mark.parametrize("odd", ["\x1b[2J", "\r", "\n", "\u202e", "\x9b", "\x00", "\udc80"])
def test_text_escapes_control_characters(odd: str) -> None:
    try:
        raise ValueError(f"bad {odd} value")
    except ValueError:
        failure = sys.exc_info()
    line = format_text(msg=f"é{odd}", levelname="ERROR", path=f"/{odd}", exc_info=failure)
    head, _, traceback = line.partition("\n")
    assert odd not in head
    assert "é\\u" in head
    assert odd == "\n" or odd not in traceback
    assert "ValueError: bad" in traceback


def test_only_level_and_fields_are_coloured() -> None:
    line = format_text(colours=True, msg="hello", levelname="WARNING", n=3)
    assert "\x1b[33mWARNING\x1b[0m api: hello\x1b[2m n=3\x1b[0m" in line
    assert "\x1b" not in format_text(msg="hello", levelname="WARNING", n=3)


def test_text_is_for_terminals_unless_set() -> None:
    assert [wants_text("auto", stream) for stream in (Terminal(), io.StringIO())] == [True, False]
    assert wants_text("text", io.StringIO())
    assert not wants_text("json", Terminal())


def test_colours_are_for_terminals_without_no_color() -> None:
    assert wants_colours(Terminal(), {})
    assert not wants_colours(io.StringIO(), {})
    assert wants_colours(io.StringIO(), {"FORCE_COLOR": "1"})
    assert not wants_colours(Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"})


def test_supervisor_passes_its_terminal_on() -> None:
    text = {"STORE_LOG_FORMAT": "text"}
    assert log_variables(Settings(), Terminal(), {}) == {**text, "FORCE_COLOR": "1"}
    assert log_variables(Settings(), Terminal(), {"NO_COLOR": "1"}) == text
    assert log_variables(Settings(), io.StringIO(), {}) == {}
    assert log_variables(Settings(log_format="json"), Terminal(), {}) == {}


@pytest.mark.parametrize(("name", "value"), [("FORMAT", "xml"), ("LEVEL", "LOUD")])
def test_unknown_words_stop_the_start(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"STORE_LOG_{name}: must be one of .*{value}"):
        load_settings({f"STORE_LOG_{name}": value})
