"""Parsing the Procfile."""

import pytest

from ops import procfile
from ops.procfile import ProcessLine, ProcfileError, parse_procfile


def test_a_line_has_its_name_its_command_and_the_comment_above_it() -> None:
    text = "# Answers.\n# And waits.\nweb: gunicorn -c 'a b' app\n"
    assert parse_procfile(text) == (
        ProcessLine("web", ("gunicorn", "-c", "a b", "app"), "Answers. And waits."),
    )


def test_separate_comment_belongs_to_no_process() -> None:
    assert parse_procfile("# A title.\n\nweb: app\n")[0].reason == ""


@pytest.mark.parametrize("text", ["web app", "web:", "a b: c", "web: a\nweb: b"])
def test_a_line_that_cannot_be_used_is_an_error(text: str) -> None:
    with pytest.raises(ProcfileError):
        parse_procfile(text)


def test_every_process_of_ours_has_a_reason() -> None:
    assert [line.name for line in procfile.read_procfile() if not line.reason] == []
