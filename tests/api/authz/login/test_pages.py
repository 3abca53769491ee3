"""Rendering of login pages."""

import pytest

from api.authz.pages import format_wait

pytestmark = pytest.mark.spec("LOG-11")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "a second"),
        (1, "a second"),
        (90, "90 seconds"),
        (91, "2 minutes"),
        (900, "15 minutes"),
    ],
)
def test_wait_is_shown_in_words(seconds: int | None, said: str) -> None:
    assert format_wait(seconds) == said
