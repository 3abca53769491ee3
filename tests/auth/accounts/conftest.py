"""Accounts on a catalog of the test's own, on every engine there is."""

import pytest

from auth.accounts.decisions import Decisions
from storage.catalog import Catalog
from tests.auth.accounts.builders import Given, People


@pytest.fixture
def people(catalog: Catalog) -> People:
    """Makes users, groups and roles."""
    return People(catalog)


@pytest.fixture
def decisions(catalog: Catalog) -> Decisions:
    """What one process decides by."""
    return Decisions(catalog, Given(administrators=("root@example.org",)))
