"""The list of mutants fits the code, so that `make mutants` can run."""

import pytest

from tests.mutants import LIST, ROOT, Mutant, read_mutants


@pytest.mark.parametrize("mutant", read_mutants(LIST), ids=lambda mutant: mutant.id)
def test_mutant_changes_one_place(mutant: Mutant) -> None:
    mutant.apply((ROOT / mutant.file).read_text())
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)
