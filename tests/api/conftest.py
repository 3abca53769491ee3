"""Fixtures of the API on local stores, with caller names as tokens."""

from collections.abc import Callable

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.app import create_app
from config import Settings
from storage.errors import Unauthorized
from storage.model import Principal
from storage.stores import Stores
from tests.api.builders import Depositor
from tests.conftest import Outbox

PEOPLE = {
    "ingest": Principal("ingest@example.org", frozenset({"store_ingest"})),
    "other": Principal("other@example.org", frozenset({"store_ingest"})),
    "reader": Principal("reader@example.org", frozenset()),
    "admin": Principal("admin@example.org", frozenset({"store_admin"})),
}


def verify(token: str) -> Principal:
    """Who a test's token names."""
    if token not in PEOPLE:
        raise Unauthorized("The token is not known")
    return PEOPLE[token]


@pytest.fixture
def app(settings: Settings, stores: Stores, job_queue: Outbox) -> Flask:
    """The application of one test."""
    return create_app(settings, stores, job_queue=job_queue, verify=verify)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """A client of the application."""
    return app.test_client()


@pytest.fixture
def depositor(client: FlaskClient, drain: Callable[[], int]) -> Depositor:
    """Somebody who may ingest."""
    return Depositor(client, drain)
