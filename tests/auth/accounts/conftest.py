"""Fixtures of the accounts tests: a catalog on every engine."""

import pytest

from auth.decisions import LocalDecisionPoint
from storage.catalog import Catalog
from tests.auth.accounts.builders import Given, People


@pytest.fixture
def people(catalog: Catalog) -> People:
    """Makes users, groups and roles."""
    return People(catalog)


@pytest.fixture
def decisions(catalog: Catalog) -> LocalDecisionPoint:
    """What one process decides by."""
    return LocalDecisionPoint(catalog, Given(administrators=("root@example.org",)))
