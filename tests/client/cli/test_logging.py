"""What is in no log, however much is told: signatures and tokens. The servers of these tests tell
theirs in the same process, which is not looked at."""

import logging

import pytest

from store_client.cli.terminal import configure_logging, reset_logging
from store_client.client import Client
from store_client.identifiers import create_version
from tests.client.cli.people import Typist

AREA, FILE = "7f6a1f0e-9a3c-4a55-8b0e-2a0a3d3f6f01", "7f6a1f0e-9a3c-4a55-8b0e-2a0a3d3f6f02"


def told(caplog: pytest.LogCaptureFixture) -> str:
    """By the client and the libraries that it stands on."""
    return "\n".join(
        f"{one.name} {one.getMessage()}" for one in caplog.records if one.name != "werkzeug"
    )


def deposited(client: Client) -> None:
    client.post_area(uuid=AREA)
    put = client.put_area_file(uuid=AREA, filename="x", content=b"12345")
    client.put_file(uuid=FILE, version=create_version(), creator_uid=7, source_url=put["url"])


@pytest.mark.spec("CLI-92")
def test_a_signed_url_is_in_no_log_of_a_command(
    admin: Typist, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    deposited(client)
    caplog.set_level(logging.DEBUG)
    words = ("get-file", "--uuid", FILE, "--replica", "aws", "--output", "raw")
    done = admin.types(*words, "--log-level", "DEBUG")
    assert done.stdout_bytes == b"12345"
    for text in (done.stderr, told(caplog)):
        assert "/v1/objects/aws/" in text
        assert "signature" not in text
        assert "Bearer" not in text


@pytest.mark.spec("CLI-92")
def test_a_signed_url_is_in_no_log_of_a_program_that_uses_the_package(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    deposited(client)
    caplog.set_level(logging.DEBUG)
    place = client.get_file(uuid=FILE, replica="aws")["location"]
    assert "signature=" in place
    assert client.session.request("GET", place, authorize=False).content == b"12345"
    assert "/v1/objects/aws/" in told(caplog)
    assert "signature" not in told(caplog)


@pytest.mark.spec("CLI-92")
@pytest.mark.parametrize("library", ["boto3", "botocore", "google.auth", "urllib3.connectionpool"])
def test_cloud_libraries_log_nothing(library: str) -> None:
    configure_logging("DEBUG")
    try:
        assert not logging.getLogger(library).isEnabledFor(logging.INFO)
    finally:
        reset_logging()
