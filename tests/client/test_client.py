"""A store as Python methods."""

import hashlib
from uuid import uuid4

from store_client import Client, create_version


def staged(client: Client, data: bytes) -> str:
    area = str(uuid4())
    client.post_area(uuid=area)
    return str(client.put_area_file(uuid=area, filename="a/b c.txt", content=data)["url"])


def deposited(client: Client, data: bytes) -> tuple[str, str]:
    uuid, version = str(uuid4()), create_version()
    source = staged(client, data)
    client.put_file(uuid=uuid, version=version, creator_uid=7, source_url=source)
    return uuid, version


def test_a_file_is_deposited_and_its_headers_and_its_place_are_told(client: Client) -> None:
    uuid, version = deposited(client, b"content")
    headers = client.head_file(uuid=uuid, replica="aws")
    assert headers["x-store-sha256"] == hashlib.sha256(b"content").hexdigest()
    found = client.get_file(uuid=uuid, replica="aws", version=version)
    assert found["headers"]["x-store-size"] == "7"
    assert client.session.ask("GET", found["location"], authorize=False).content == b"content"
