import pytest

from auth.login.seals import Seals
from tests.auth.builders import NOW

SEALS = Seals.of(b"a secret for tests only")


def test_a_value_is_opened_for_its_purpose_until_its_end() -> None:
    sealed = SEALS.seal("state", ["a", "b"], ends=NOW + 60)
    assert SEALS.open("state", sealed, now=NOW + 59) == ["a", "b"]
    assert SEALS.open("state", sealed, now=NOW + 60) is None
    assert SEALS.open("target", sealed, now=NOW) is None
    assert Seals.of(b"another secret of a test").open("state", sealed, now=NOW) is None


@pytest.mark.parametrize("ahead_s", [1, 30, 3_600])
def test_a_value_of_a_machine_whose_clock_is_ahead_is_opened_until_that_end(ahead_s: int) -> None:
    """It says when it ends, and nothing of when it was made."""
    sealed = SEALS.seal("state", ["a"], ends=NOW + ahead_s + 900)
    assert SEALS.open("state", sealed, now=NOW) == ["a"]
    assert SEALS.open("state", sealed, now=NOW + ahead_s + 900) is None
