"""How many examples property tests generate: few in CI, many in a deep run.

`STORE_TEST_DEPTH=deep` (which `make drill DEEP=1` sets) chooses the deep run.
"""

import os

import hypothesis

DEEP = os.environ.get("STORE_TEST_DEPTH", "ci") == "deep"

_SHARE = 10.0 if DEEP else 0.3
"""Of the number of examples that a test asks for."""
_USUAL = 100
"""What hypothesis generates where a test asks for no number."""


def examples(usual: int) -> int:
    """The number of examples of this run, for a test that usually takes so many."""
    return max(1, round(usual * _SHARE))


def load_profile() -> None:
    """Make hypothesis generate as many examples as this run's depth asks for.

    There is no deadline: a busy machine is no fault of the code under test.
    """
    name = "deep" if DEEP else "ci"
    hypothesis.settings.register_profile(name, deadline=None, max_examples=examples(_USUAL))
    hypothesis.settings.load_profile(name)
