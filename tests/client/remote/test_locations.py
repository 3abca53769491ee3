"""Addresses in a store: what they name, and those that name nothing."""

import pytest

from store_client.errors import Misused
from store_client.references import StoreLocation, parse_location

UUID = "5a8f6f3e-0000-4000-8000-00000000d001"
VERSION = "2026-01-31T235959.000000Z"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"store://bundle/{UUID}", StoreLocation("bundle", UUID)),
        (f"store://bundle/{UUID}/", StoreLocation("bundle", UUID)),
        (f"bundle/{UUID.upper()}/a.csv", StoreLocation("bundle", UUID, "", "a.csv")),
        (
            f"store://bundle/{UUID}.{VERSION}/reads/lane 1/R1.gz",
            StoreLocation("bundle", UUID, VERSION, "reads/lane 1/R1.gz"),
        ),
        (
            f"store://bundle/{UUID}/50% done?#1 é::x.txt",
            StoreLocation("bundle", UUID, "", "50% done?#1 é::x.txt"),
        ),
        (f"store://file/{UUID}.{VERSION}", StoreLocation("file", UUID, VERSION)),
    ],
)
def test_parses_address(text: str, place: StoreLocation) -> None:
    assert parse_location(text) == place
    assert parse_location(str(place)) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "store://",
        "store://bundle",
        "store://bundle/",
        "store://bundle/sample/a.csv",
        f"store://{UUID}/a.csv",
        f"store://collection/{UUID}",
        f"store://bundle/{UUID}.latest/a.csv",
        f"store://bundle/{UUID}./a.csv",
        f"store://bundle/{UUID}/../../etc/passwd",
        f"store://bundle/{UUID}//a.csv",
        f"store://bundle/{UUID}/a//b",
        f"store://bundle/{UUID}/a\x00b",
        f"store://bundle/{UUID}/a\\b",
        f"store://file/{UUID}/a.csv",
        f"s3://bundle/{UUID}/a.csv",
        f"https://bundle/{UUID}",
    ],
)
def test_rejects_what_is_no_address(text: str) -> None:
    with pytest.raises(Misused):
        parse_location(text)
