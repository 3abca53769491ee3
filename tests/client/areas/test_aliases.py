import pytest

from store_client.areas.selection import resolve_uuid, shortest_aliases
from store_client.errors import Misused
from tests.client.areas.builders import UUIDS

HERE = "https://store.example"
FIRST, SECOND, THIRD = UUIDS


@pytest.mark.spec("ARC-01")
def test_an_alias_is_the_shortest_beginning_that_no_other_area_has() -> None:
    assert shortest_aliases(UUIDS) == {FIRST: "3fa91", SECOND: "3fa92", THIRD: "7777"}
    assert shortest_aliases([]) == {}
    assert shortest_aliases([FIRST, FIRST]) == {FIRST: "3fa9"}


@pytest.mark.spec("ARC-01")
@pytest.mark.parametrize(
    "said",
    [
        FIRST,
        FIRST.upper(),
        f"  {FIRST} ",
        f"s3://bucket/areas/{FIRST}/",
        f"s3://bucket/some/where/areas/{FIRST}",
        f"gs://bucket/areas/{FIRST}/",
        f"{HERE}/area/{FIRST}/",
        f"{HERE}/v1/area/{FIRST}",
        f"HTTPS://Store.Example:443/v1/area/{FIRST.upper()}/",
        "3fa91",
        "3FA91",
    ],
)
def test_an_area_is_named_by_its_uri_its_uuid_or_its_alias(said: str) -> None:
    assert resolve_uuid(said, UUIDS, base_url=HERE) == FIRST


@pytest.mark.spec("ARC-02")
def test_an_ambiguous_alias_is_refused_and_the_areas_that_it_may_mean_are_named() -> None:
    with pytest.raises(Misused) as refused:
        resolve_uuid("3fa9", UUIDS, base_url=HERE)
    assert FIRST in str(refused.value)
    assert SECOND in str(refused.value)
    assert THIRD not in str(refused.value)


@pytest.mark.spec("ARC-02")
def test_an_unknown_alias_is_refused_and_a_whole_uuid_needs_not_be_known() -> None:
    with pytest.raises(Misused, match="no known area begins with 'abcd'"):
        resolve_uuid("abcd", UUIDS, base_url=HERE)
    assert resolve_uuid(FIRST, [], base_url=HERE) == FIRST


@pytest.mark.spec("ARC-02")
def test_an_area_of_another_store_is_refused_with_what_names_that_store() -> None:
    with pytest.raises(Misused) as refused:
        resolve_uuid(f"https://other.example/v1/area/{FIRST}/", UUIDS, base_url=HERE)
    assert "another store" in str(refused.value)
    assert "--url https://other.example" in refused.value.hint


@pytest.mark.spec("ARC-02")
@pytest.mark.parametrize(
    "said",
    [
        "",
        "zz",
        "3fa9/..",
        "s3://bucket/areas/nonsense/",
        f"s3:///areas/{FIRST}/",
        f"s3://bucket/{FIRST}/",
        f"ftp://store.example/v1/area/{FIRST}/",
        f"{HERE}/v1/bundles/{FIRST}",
        f"{HERE}/v1/area/{FIRST}/files/a",
        f"{HERE}/v1/area/{FIRST}/?a=b",
        f"https://[/v1/area/{FIRST}/",
    ],
)
def test_rejects_invalid_area_names(said: str) -> None:
    with pytest.raises(Misused) as refused:
        resolve_uuid(said, UUIDS, base_url=HERE)
    assert refused.value.hint
