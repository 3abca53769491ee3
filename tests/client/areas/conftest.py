"""An upload area in the served store."""

from uuid import uuid4

import pytest

from store_client.client import Client
from store_client.transfer import api


@pytest.fixture
def area(client: Client) -> str:
    """Open, and empty."""
    uuid = str(uuid4())
    api.open_area(client, uuid)
    return uuid
