"""An upload area in the served store."""

from uuid import uuid4

import pytest

from store_client.areas import asking
from store_client.client import Client


@pytest.fixture
def area(client: Client) -> str:
    """Open, and empty."""
    uuid = str(uuid4())
    asking.open_area(client, uuid)
    return uuid
