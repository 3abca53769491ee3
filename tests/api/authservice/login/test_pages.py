"""What pages say, by itself."""

import pytest

from api.authservice.pages import lasting


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
def test_how_long_somebody_waits_is_said_as_people_say_it(seconds: int | None, said: str) -> None:
    assert lasting(seconds) == said
